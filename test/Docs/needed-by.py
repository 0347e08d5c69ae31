# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The description of each pass ends with a line that says which kernels need it.

Usage: needed-by.py ROOT. Reads every Passes.td below ROOT/include. The line is a paragraph of its
own, `Needed by: ...`, with a full stop.
"""

import os
import re
import sys


def find_passes(path):
    """Names on the command line, and descriptions; None where there is none."""
    with open(path) as file:
        text = file.read()
    for record in re.split(r"^(?=def )", text, flags=re.MULTILINE):
        name = re.match(r'def \w+\s*:\s*Pass<"([\w-]+)"', record)
        if name:
            found = re.search(r"let description = \[\{(.*?)\}\];", record, re.DOTALL)
            yield name.group(1), found and found.group(1)


def main():
    root = os.path.join(sys.argv[1], "include")
    count = faults = 0
    for folder, _, files in os.walk(root):
        for path in [os.path.join(folder, name) for name in sorted(files) if name.endswith("Passes.td")]:
            for name, description in find_passes(path):
                count += 1
                last = (description or "").strip().split("\n\n")[-1].strip()
                if not re.fullmatch(r"Needed by: \S.*\.", last):
                    print(f"{os.path.relpath(path, sys.argv[1])}: {name}: the description does not end with 'Needed by: ...'")
                    faults += 1
    print(f"{count} passes, {faults} do not say who needs them")
    sys.exit(faults > 0 or count == 0)


main()
