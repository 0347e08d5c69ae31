# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""No source file is longer than 700 lines, no C++ function longer than 100: what is, mixes jobs.

Usage: sizes.py ROOT. A function starts at a line that ends in an opening brace behind a parameter
list, in columns 0 to 4, and ends at the first brace in its column. Tables of constants are none.
"""

import os
import re
import sys

FILE_LINES, FUNCTION_LINES = 700, 100
CPP = ("include", "lib", "tools", "unittests", "test", "examples")
PYTHON = ("python", "test")
CONTROL = re.compile(r"\s*(if|for|while|switch|else|do|catch|namespace|struct|class|enum|union|extern|return)\b")


def start_of_signature(lines, last):
    """The line where the parameter list starts that ends in line `last`; None if there is none."""
    at, open_parens = last, 0
    while at >= 0:
        text = re.sub(r'"[^"]*"|\'.\'', "", lines[at].split("//")[0])
        open_parens += text.count(")") - text.count("(")
        is_continued = text.lstrip().startswith((":", "->", "noexcept"))  # of a constructor, a type
        if open_parens <= 0 and not is_continued:
            return at if "(" in text else None
        at -= 1
    return None


def find_functions(lines):
    """Names and lengths."""
    for last, line in enumerate(lines):
        code = line.split("//")[0].rstrip()
        if not code.endswith("{") or code.endswith("= {"):
            continue
        first = start_of_signature(lines, last)
        if first is None or CONTROL.match(lines[first]):
            continue
        indent = len(lines[first]) - len(lines[first].lstrip())
        if indent > 4:
            continue
        end = last + 1
        while end < len(lines) and not lines[end].startswith(" " * indent + "}"):
            end += 1
        name = re.search(r"([\w:~]+)\(", lines[first])
        yield (name.group(1) if name else lines[first].strip()), end - first + 1


def files(root, folders, suffixes):
    for folder in folders:
        for directory, _, names in os.walk(os.path.join(root, folder)):
            for name in sorted(names):
                if name.endswith(suffixes):
                    path = os.path.join(directory, name)
                    with open(path) as file:
                        yield os.path.relpath(path, root), file.read().split("\n")[:-1]


def find_long(root):
    for path, lines in files(root, CPP, (".cpp", ".h", ".c")):
        if len(lines) > FILE_LINES:
            yield f"{path}: {len(lines)} lines, at most {FILE_LINES} are expected"
        for name, length in find_functions(lines):
            if length > FUNCTION_LINES:
                yield f"{path}: {name} has {length} lines, at most {FUNCTION_LINES} are expected"
    for path, lines in files(root, PYTHON, (".py",)):
        if len(lines) > FILE_LINES:
            yield f"{path}: {len(lines)} lines, at most {FILE_LINES} are expected"


if __name__ == "__main__":
    found = list(find_long(sys.argv[1]))
    print("\n".join(found))
    sys.exit(bool(found))
