# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares the tables of docs/facts.md with the names in the headers, and with what the
dialects say where a fact is out of place.

    facts.py SOURCES BIN
"""

import os
import re
import subprocess
import sys

sources, binaries = sys.argv[1:]
HEADERS = ["include/attn/Dialect/Attn/IR/Facts.h", "include/attn/Dialect/Hopper/IR/HopperFacts.h"]
# A value of each type, and how the table calls it.
VALUES = {
    "unit": "unit",
    "integer > 0": "1",
    "integer >= 0": "0",
    "integers >= 0": "array<i64: 0>",
    "index": "0 : index",
    "string": '"x"',
    "strings": '["x"]',
    "symbols": "[@x]",
    "conditions": "[#hopper.reach]",
    "`#hopper.nests`": "#hopper.nests<>",
    "`#hopper.schedule`": "#hopper.schedule<block_m = 64, block_n = 64>",
}


def read(name):
    with open(os.path.join(sources, name)) as file:
        return file.read()


def message(attributes):
    """What attn-opt says of a function with these attributes."""
    text = f"func.func private @f() attributes {{{attributes}}}"
    command = [os.path.join(binaries, "attn-opt"), "-", "-o", os.devnull]
    return subprocess.run(command, input=text, capture_output=True, text=True).stderr


rows = re.findall(r"^\| `((?:attn|hopper)\.\w+)` \| ([^|]*) \| ([^|]*) \|", read("docs/facts.md"), re.MULTILINE)
names = [name for header in HEADERS for name in re.findall(r'StringLiteral k\w+Attr = "([\w.]+)"', read(header))]
problems = []
if sorted(name for name, _, _ in rows) != sorted(names):
    problems.append(f"docs/facts.md and the headers differ in {set(names) ^ {name for name, _, _ in rows}}")
for name, ops, kind in rows:
    said = message(f"{name} = {VALUES[kind]}")
    if ops == "any":
        if said:
            problems.append(f"'{name}' stands on any operation, but: {said}")
    elif "func.func" in ops:
        if "stands on" in said:
            problems.append(f"'{name}' stands on functions, but: {said}")
    elif f"attribute '{name}' stands on {ops}, not on" not in said:
        problems.append(f"'{name}' stands on {ops}, a {kind}; but: {said}")
if "unknown attribute 'attn.no_fact'" not in message("attn.no_fact"):
    problems.append("'attn.no_fact' is known")
sys.exit("\n".join(problems) or None)
