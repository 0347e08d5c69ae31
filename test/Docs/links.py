# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Relative links of the documentation lead to files and to headings that exist, and every
page of docs/ is reachable from docs/index.md."""

import os
import re
import sys

root = os.path.abspath(sys.argv[1])
pages = [os.path.join(root, name) for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
for folder, _, files in os.walk(os.path.join(root, "docs")):
    pages += [os.path.join(folder, name) for name in sorted(files) if name.endswith(".md")]


def anchors_of(path):
    """What GitHub makes of a page's headings: letters in lower case, digits, - and _."""
    with open(path) as file:
        text = re.sub(r"^```.*?^```", "", file.read(), flags=re.DOTALL | re.MULTILINE)
    found = set()
    for heading in re.findall(r"^#+ +(.*)$", text, re.MULTILINE):
        heading = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        found.add(re.sub(r"[^\w\- ]", "", heading).replace(" ", "-"))
    return found


status, links = 0, {}
for page in pages:
    with open(page) as file:
        text = re.sub(r"```.*?```", "", file.read(), flags=re.DOTALL)
    links[os.path.normpath(page)] = targets = set()
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path = os.path.normpath(os.path.join(os.path.dirname(page), target) if target else page)
        targets.add(path)
        if not os.path.exists(path):
            print(f"{os.path.relpath(page, root)}: link to {target}, which does not exist")
            status = 1
        elif anchor and path.endswith(".md") and anchor not in anchors_of(path):
            print(f"{os.path.relpath(page, root)}: link to {target}#{anchor}, which is no heading")
            status = 1
index = os.path.normpath(os.path.join(root, "docs", "index.md"))
seen, waiting = set(), [index]
while waiting:
    page = waiting.pop()
    if page not in seen:
        seen.add(page)
        waiting += links.get(page, ())
for page in links:
    if page not in seen and os.path.dirname(page) != os.path.normpath(root):
        print(f"{os.path.relpath(page, root)}: not reachable from docs/index.md")
        status = 1
sys.exit(status)
