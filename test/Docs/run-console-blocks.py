# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the commands of a document and compares what they print.

In a ```console block, a line that starts with "$ " is a command (a backslash at
its end goes on in the next line), and what follows is what it prints, both
streams together. A line of three dots stands for any lines, or none; dots within
a line for any text. Commands
run in ROOT with BIN in front of PATH. Usage: run-console-blocks.py DOC ROOT BIN
"""
import os
import re
import subprocess
import sys


def matches(expected, actual):
    pattern = "".join(r"(?:.*\n)*?" if line.strip() == "..." else
                      ".*".join(map(re.escape, line.rstrip().split("..."))) + r"\n"
                      for line in expected)
    return re.fullmatch(pattern, "".join(line + "\n" for line in actual)) is not None


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
