# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names that were replaced are not used any more: of passes, operations, attributes and options.

Usage: names.py ROOT. Looks into all files but the history (CHANGELOG.md, docs/notes) and what tells a user of an old
option its new name (RenamedOptions.h and its test).
"""

import os
import re
import sys

# Old and new.
TABLE = [
    # Passes.
    ("attn-delay-corrections", "attn-delay-rescaling"),
    ("attn-move-halves-as-integers", "attn-move-float16-as-integers"),
    ("attn-share-kernels", "attn-deduplicate-kernels"),
    ("hopper-advance-reads", "attn-advance-reads"),
    ("hopper-borrow-outputs", "hopper-alias-workspace"),
    ("hopper-branch-by-rows", "attn-branch-by-rows"),
    ("hopper-carry-sums", "attn-carry-sums"),
    ("hopper-divide-exponentials", "hopper-emulate-exponentials"),
    ("hopper-fuse-programs", "attn-fuse-programs"),
    ("hopper-map-programs", "attn-map-programs"),
    ("hopper-prepare-vectors", "attn-prepare-vectors"),
    ("hopper-scale-large-maxima", "attn-scale-large-maxima"),
    ("hopper-share-tiles", "hopper-exchange-rows"),
    ("hopper-sink-reads", "attn-sink-reads"),
    ("hopper-sort-tiles", "attn-sort-tiles"),
    ("hopper-tile-statements", "attn-tile-statements"),
    # Operations and attributes.
    ("attn.correction", "attn.rescaling"),
    ("attn.row_tile", "attn.block_m"),
    ("attn.stream_tile", "attn.block_n"),
    ("hopper.columns", "tile.columns"),
    ("hopper.descending", "attn.descending"),
    ("hopper.gather", "tile.gather"),
    ("hopper.load", "tile.load"),
    ("hopper.may_hold", "attn.may_hold"),
    ("hopper.mma", "tile.mma"),
    ("hopper.polynomial", "hopper.emulated"),
    ("hopper.rows", "tile.rows"),
    ("hopper.share", "tile.share"),
    ("hopper.smem", "tile.smem"),
    ("hopper.tile.load", "tile.read"),
    ("hopper.tile.store", "tile.write"),
    ("hopper.turn.claim", "hopper.semaphore.first_touch"),
    ("hopper.turn.pass", "hopper.semaphore.release"),
    ("hopper.turn.peek", "hopper.semaphore.peek"),
    ("hopper.turn.wait", "hopper.semaphore.wait"),
    ("hopper.within", "hopper.aliases"),
    ("plan <rows", "plan <m_outer"),
    ("plan <split ", "plan <split_kv "),
    ("plan <stream", "plan <n_outer"),
    ("#attn.plan<rows", "#attn.plan<m_outer"),
    ("#attn.plan<split", "#attn.plan<split_kv"),
    ("#attn.plan<stream", "#attn.plan<n_outer"),
    # Options and their values.
    ("growth=", "rescale-threshold="),
    ("polynomials=", "exp2-emulation="),
    ("row-multiple", "block-m-multiple"),
    ("row-tile", "block-m"),
    ("stream-tile", "block-n"),
    ("sum-keys", "block-n-dq"),
    ("sum-queries", "block-m-dkv"),
    ("turns=false", "semaphore=false"),
    ("turns=true", "semaphore=true"),
    ("output=pieces", "output=slabs"),
    ("order=fixed", "deterministic=true"),
    ("order=ordered", "order=n_outer deterministic=true"),
    ("order=rows", "order=m_outer"),
    ("order=split", "order=split_kv"),
    ("order=stream", "order=n_outer"),
]

# Sizes of tiles, which are words of other meanings elsewhere: in texts of options only.
SIZES = [(r"(?<![-\w.(])(?<!, )rows=\d", "block-m="), (r"(?<![-\w.(])(?<!, )keys=\d", "block-n=")]

FOLDERS = ("benchmarks", "docs", "examples", "include", "lib", "python", "scripts", "test", "tools", "unittests")
FILES = ("README.md", "CONTRIBUTING.md")
LEFT_OUT = re.compile(
    r"docs/notes/|test/Docs/names|RenamedOptions|_renamed\.py|renamed-options|build/|__pycache__|\.pyc$")


def files(root):
    yield from FILES
    for folder in FOLDERS:
        for directory, _, names in os.walk(os.path.join(root, folder)):
            for name in sorted(names):
                yield os.path.relpath(os.path.join(directory, name), root).replace(os.sep, "/")


def find(root):
    patterns = [(re.compile(r"(?<!\w)(?<!\w-)" + re.escape(old) + ("" if old.endswith("=") else r"(?![\w-])")), old, new)
                for old, new in TABLE]
    patterns += [(re.compile(old), new.replace("block-m", "rows").replace("block-n", "keys"), new) for old, new in SIZES]
    for path in files(root):
        if LEFT_OUT.search(path):
            continue
        try:
            with open(os.path.join(root, path)) as file:
                lines = file.read().split("\n")
        except (UnicodeDecodeError, OSError):
            continue
        for number, line in enumerate(lines):
            for pattern, old, new in patterns:
                if pattern.search(line.replace("\\", "")):
                    yield f"{path}:{number + 1}: '{old}' is now '{new}'"


if __name__ == "__main__":
    found = list(find(sys.argv[1]))
    print("\n".join(found))
    sys.exit(bool(found))
