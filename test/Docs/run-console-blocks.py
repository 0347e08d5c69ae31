# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the commands of a document and compares what they print.

In a ```console block, a line that starts with "$ " is a command (a backslash at
its end goes on in the next line), and what follows is what it prints, both
streams together. A line of three dots stands for any lines, or none; dots within
a line for any text. A value's name (%x) stands for any name, for the same one
wherever it occurs again in what the command prints. Indentation does not count.
Commands run in ROOT with BIN in front of PATH. Usage: run-console-blocks.py DOC ROOT BIN
"""
import os
import re
import subprocess
import sys

NAME = r"%[A-Za-z0-9_]+"


def match_line(expected, actual, names):
    """`names` and what this line adds to them, or None."""
    pattern, fresh = "", {}
    for piece in re.split(rf"(\.\.\.|{NAME})", expected):
        if piece == "...":
            pattern += ".*"
        elif not re.fullmatch(NAME, piece):
            pattern += re.escape(piece)
        elif piece in names:
            pattern += re.escape(names[piece]) + r"(?!\w)"
        elif piece in fresh:
            pattern += rf"(?P={fresh[piece]})(?!\w)"
        else:
            fresh[piece] = f"name{len(fresh)}"
            pattern += rf"(?P<{fresh[piece]}>{NAME})"
    found = re.fullmatch(pattern, actual)
    return found and {**names, **{name: found[group] for name, group in fresh.items()}}


def matches(expected, actual):
    """Depth first over what each gap stands for; `seen` holds what has failed."""
    seen, stack = set(), [(0, 0, {})]
    while stack:
        line, at, names = stack.pop()
        key = (line, at, tuple(sorted(names.items())))
        if key in seen:
            continue
        seen.add(key)
        if line == len(expected):
            if at == len(actual):
                return True
        elif expected[line].strip() == "...":
            stack += [(line, at + 1, names)] if at < len(actual) else []
            stack.append((line + 1, at, names))
        elif at < len(actual):
            found = match_line(expected[line].strip(), actual[at].strip(), names)
            stack += [(line + 1, at + 1, found)] if found is not None else []
    return False


def main():
    document, root, tools = sys.argv[1:4]
    environment = {**os.environ, "PATH": tools + os.pathsep + os.environ["PATH"]}
    text = open(document).read()
    count = 0
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.S | re.M):
        commands = []
        for line in block.splitlines():
            if commands and commands[-1][0].endswith("\\") and not commands[-1][1]:
                commands[-1][0] = commands[-1][0][:-1] + line.strip()
            elif line.startswith("$ "):
                commands.append([line[2:], []])
            else:
                commands[-1][1].append(line)
        for command, expected in commands:
            count += 1
            done = subprocess.run(command, shell=True, cwd=root, env=environment, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            actual = [line.rstrip() for line in done.stdout.splitlines()]
            if not matches(expected, actual):
                sys.exit(f"{document}: '{command}' printed\n{done.stdout}\ninstead of\n" + "\n".join(expected))
    print(f"{count} commands print what {os.path.basename(document)} says")
    sys.exit(count == 0)


main()
