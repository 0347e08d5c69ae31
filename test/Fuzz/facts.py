# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes facts in the IR wrong between two passes: each must be reported, by a verifier or by
attn-check-facts or hopper-check-facts.

    facts.py --attn-opt BIN --sources DIRECTORY [--verbose]

The IR is what passes of this build make, of the examples and of tests, up to the pass that leaves
a fact. It must be accepted as it is; then one fact is dropped, flipped or moved, at each of the
first places where it stands, and the IR must be refused with the message that is expected. So no
mutant reaches the passes that rely on the fact, and none ends in a program.

Left out, because the program that they end in is right, if slower:

- attn.fold_loop, attn.full or attn.partial dropped from a loop with nothing else: masks of the loop
  are looked at again, or are computed for all of its tiles.
- attn.tile_kind dropped in a loop that is attn.partial, and attn.guard: the branch is still there.
  (Counts of attn-count-tiles are of the wrong kind.)
- attn.rescaling dropped: the product is computed where its factor is 1, too.
- attn.descending dropped: tiles come in another order. hopper.nonempty dropped: the loop is asked
  whether it runs. attn.may_hold dropped: each tile asks its rows. hopper.aliases dropped: more
  memory. hopper.emulated dropped or another number of 1 or more: more or fewer exponentials by
  polynomials. hopper.early dropped or larger: launches overlap less, or kernels wait for longer.
- attn.block_m, attn.block_n dropped or another number of 1 or more: other tiles.
- attn.dims, attn.loop, attn.stmt, attn.name: names for whoever reads.
- attn.merge: what a user says, which nothing in the IR shows.
"""

import argparse
import os
import re
import subprocess
import sys

CHECKS = "-pass-pipeline=builtin.module(attn-check-facts,func.func(hopper-check-facts))"
PLACES = 3

parser = argparse.ArgumentParser()
parser.add_argument("--attn-opt", required=True)
parser.add_argument("--sources", required=True)
parser.add_argument("--verbose", action="store_true")
options = parser.parse_args()


def attn_opt(arguments, text=None):
    return subprocess.run([options.attn_opt, *arguments], input=text, capture_output=True, text=True)


def read(name):
    with open(os.path.join(options.sources, name)) as file:
        return file.read()


def after(text, passes, name=None, having=""):
    """The IR behind the passes; or behind the one with this name, of what they run, the first that
    has `having`."""
    arguments = ["-", "--mlir-print-local-scope", *passes]
    if not name:
        done = attn_opt(arguments, text)
        if done.returncode:
            sys.exit(f"{' '.join(passes)}: {done.stderr}")
        return done.stdout
    arguments += ["-o", os.devnull, "--mlir-disable-threading", f"--mlir-print-ir-after={name}"]
    dumps = re.split(r"^// -----// IR Dump After .*\n", attn_opt(arguments, text).stderr, flags=re.MULTILINE)[1:]
    for dump in dumps:
        if having in dump:
            return dump
    sys.exit(f"no IR after {name} that has {having}: {len(dumps)} dumps")


def first_function(text):
    """Comments left out: messages in them are none of the IR."""
    text = "\n".join(line for line in text.split("// -----")[0].splitlines() if not line.lstrip().startswith("//"))
    return text + "\n"


def to(replacement):
    return lambda match: match.expand(replacement)


def swap_sides(match):
    head, first, middle, second, end = match.groups()
    return head + second + middle + first + end


def sides(end):
    """A branch without others inside that ends so."""
    side = r"((?:(?!scf\.if|\} else \{|scf\.for).)*?)"
    return r"(scf\.if [^\n]*\{\n)" + side + r"(\n *\} else \{\n)" + side + r"(\n *\}" + end + ")"


CAUSAL = read("examples/causal.mlir")
HALF = CAUSAL.replace("64xf32", "64xbf16")
NEST = "--attn-nest-pipeline"
TILE = ["--attn-plan-nest=order=m_outer", "--attn-tile-nest", "--canonicalize", "--cse"]
LAUNCH_END = r"(gpu\.terminator\n *\})(?! \{)"
MASKED = r"arith\.constant dense<0xFF800000>( : vector<\d+x\d+xf32>)"

# What makes the IR, then mutants of it: a pattern, what it becomes, and what is said of that.
GROUPS = [
    ("full and partial loops", lambda: after(CAUSAL, [NEST, *TILE, "--attn-project-masks"]), [
        (r"attn\.full\b", to("attn.partial"), "'attn.partial' on a loop without a mask"),
        (r"attn\.partial\b", to("attn.full"), "'attn.full' on a loop with a mask"),
        (r"attn\.full\b", to("attn.full, attn.partial"), "'attn.full' excludes 'attn.partial'"),
        (r"attn\.partial\b", to("attn.full, attn.partial"), "'attn.full' excludes 'attn.partial'"),
        (r"attn\.fold_loop, attn\.full", to("attn.full"), "'attn.full' needs 'attn.fold_loop'"),
        (r"attn\.fold_loop, attn\.partial", to("attn.partial"), "'attn.partial' needs 'attn.fold_loop'"),
        (r"attn\.partial\b", to("attn.tabulated"), "'attn.tabulated' needs a step of 1"),
        (r"attn\.full\b", to("attn.ful"), "unknown attribute 'attn.ful'"),
        (r"attn\.full\b", to("attn.full = false"), "attribute 'attn.full' is a unit"),
        (r"attn\.full\b", to("attn.guard"), "attribute 'attn.guard' stands on scf.if"),
        (r"attn\.full\b", to("attn.block_m = 64"), "attribute 'attn.block_m' stands on attn.fold"),
    ]),
    ("branches around masks", lambda: after(CAUSAL, [NEST, *TILE, "--attn-project-masks=branch=true"]), [
        (sides(r" \{attn\.tile_kind\}"), swap_sides, "'attn.tile_kind' on a branch with 1 masks for full tiles"),
        (r"attn\.fold_loop, attn\.partial", to("attn.fold_loop"), "'attn.tile_kind' needs a fold loop"),
        (r"attn\.partial\b", to("attn.full"), "'attn.tile_kind' needs a fold loop|'attn.full' on a loop with a mask"),
        (r"attn\.tile_kind", to("attn.guard"), "'attn.guard' on a branch whose other side changes the state"),
        # No fact is changed, but what one of them relies on.
        (MASKED, to(r"arith.constant dense<0.0>\1"), "on a loop whose iterations may not be left out"),
    ]),
    ("tables", lambda: after(first_function(read("test/Transforms/Tiles/tabulate-masks.mlir")), ["--attn-tabulate-masks"]), [
        (r"attn\.fold_loop, attn\.tabulated", to("attn.fold_loop"), "'attn.tile_kind' needs a fold loop"),
        (r"attn\.tabulated", to("attn.partial"), "'attn.tile_kind' asks a table"),
        (r"attn\.tabulated", to("attn.full"), "'attn.tile_kind' needs a fold loop"),
        (r" \{attn\.tile_kind\}", to(""), "'attn.tabulated' on a loop without a branch by the kind of a tile"),
        (sides(r" \{attn\.tile_kind\}"), swap_sides, "'attn.tile_kind' on a branch with 1 masks for full tiles"),
    ]),
    ("guards", lambda: after(read("test/Transforms/Tiles/project-masks-windows.mlir"), ["--attn-project-masks"]), [
        (r"attn\.guard", to("attn.tile_kind"), r"'attn.tile_kind' on a branch with \d+ masks for full tiles and 0 for"),
        (r"attn\.fold_loop, attn\.partial", to("attn.fold_loop, attn.full"), "'attn.guard' needs|'attn.full' on a"),
    ]),
    ("rescaling", lambda: after(first_function(read("test/Transforms/Tiles/delay-rescaling.mlir")), ["--attn-delay-rescaling"]), [
        (r"arith\.mulf (%\w+), (%\w+) \{attn\.rescaling\}", to(r"arith.mulf \2, \1 {attn.rescaling}"),
         "'attn.rescaling' on a product whose second factor is not one for each row"),
        (r"arith\.mulf (%\w+, %\w+) \{attn\.rescaling\}", to(r"arith.addf \1 {attn.rescaling}"),
         "attribute 'attn.rescaling' stands on arith.mulf"),
    ]),
    ("sizes of tiles", lambda: after(CAUSAL, [NEST]), [
        (r'\{attn\.loop = "j"\}', to("{attn.block_m = 0}"), "attribute 'attn.block_m' is an integer of 1 or more"),
        (r'\{attn\.loop = "j"\}', to("{attn.block_n = -1}"), "attribute 'attn.block_n' is an integer of 1"),
    ]),
    ("loops that add", lambda: after(HALF, ["--attn-differentiate", "--attn-lower-to-hopper=order=n_outer deterministic=true"],
                                     "hopper-specialize-warps", "hopper.adding"), [
        (r" ?\{hopper\.adding\}|hopper\.adding, |, hopper\.adding", to(""), "'hopper.adding' is missing on a loop"),
        (LAUNCH_END, to(r"\1 {hopper.cooperative, hopper.dealt}"), "'hopper.dealt' on a launch whose CTAs"),
        (LAUNCH_END, to(r"\1 {attn.descending}"), "'attn.descending' on a launch whose tiles are in no order"),
        (LAUNCH_END, to(r"\1 {hopper.adding}"), "attribute 'hopper.adding' stands on scf.for"),
    ]),
    ("semaphores", lambda: after(HALF, ["--attn-differentiate", "--attn-lower-to-hopper=order=n_outer deterministic=true"],
                            "hopper-order-additions", "hopper.dealt"), [
        (r"hopper\.cooperative, hopper\.dealt", to("hopper.cooperative"), "'hopper.cooperative' needs 'hopper.dealt'"),
        (r"hopper\.cooperative, hopper\.dealt", to("hopper.dealt"), "'hopper.dealt' needs 'hopper.cooperative'"),
        (r" \{hopper\.cooperative, hopper\.dealt\}", to(""), "'hopper.cooperative' is missing: CTAs wait"),
        (r"hopper\.adding", to("hopper.addin"), "unknown attribute 'hopper.addin'"),
        (r"hopper\.nonempty", to("hopper.adding"), "'hopper.adding' on a loop inside of another one"),
        (r"hopper\.adding", to("hopper.nonempty"), "'hopper.nonempty' on a loop that is not over the tiles"),
    ]),
    ("trimmed loops", lambda: after(HALF, ["--attn-lower-to-hopper=trim=true pipeline=true"], "hopper-trim-loops", "hopper.trimmed"), [
        (r", hopper\.trimmed\b", to(""), "'hopper.trimmed' on 0 loops with products and 1"),
        (r" \{hopper\.trimmed\}", to(""), "'hopper.trimmed' on 1 loops with products and 0"),
        (r"attn\.partial", to("attn.full"), "'attn.tile_kind' needs|'attn.full' on a loop with a mask"),
        (r"hopper\.trimmed\b", to("hopper.nonempty"), "'hopper.nonempty' on a loop that is not over"),
    ]),
    ("orders of tiles", lambda: after(read("test/Transforms/Programs/sort-tiles.mlir"),
                                      ["-pass-pipeline=builtin.module(func.func(attn-sort-tiles))"])
     .replace(", attn.tabulated", ""), [
        (r"\{mapping", to("{attn.descending, mapping"), "'attn.descending' on a program whose tiles are in no order"),
    ]),
    ("rows that nearly none has", lambda: after(first_function(read("test/Transforms/Programs/branch-by-rows.mlir")),
                                                ["--attn-branch-by-rows"]), [
        (sides(""), swap_sides, "'attn.may_hold' on a question whose answer is taken"),
        (r"reduction <or>", to("reduction <and>"), "'attn.may_hold' needs a disjunction of rows"),
    ]),
    ("aliased memory", lambda: after(read("test/Dialect/Hopper/Transforms/alias-workspace.mlir"),
                                      ["-pass-pipeline=builtin.module(func.func(hopper-alias-workspace))"]), [
        (r"hopper\.aliases = 1", to("hopper.aliases = 0"), "'hopper.aliases' on memory that is needed when"),
        (r"hopper\.aliases = 1", to("hopper.aliases = 2"), "may lie in argument 2, which is no memory"),
        (r"hopper\.aliases = 1 : index", to("hopper.aliases = -1 : index"), "'hopper.aliases' is an index of 0 or more"),
    ]),
    ("emulated exponentials", lambda: after(read("test/Dialect/Hopper/Transforms/emulate-exponentials.mlir"),
                                  ["-pass-pipeline=builtin.module(func.func(hopper-emulate-exponentials{every=2}))"]), [
        (r"hopper\.emulated = 2", to("hopper.emulated = 0"), "'hopper.emulated' is an integer of 1 or more"),
    ]),
    ("kernels", lambda: after(read("test/Conversion/HopperToNVVM/occupancy.mlir"),
                              ["--pass-pipeline=builtin.module(gpu.module(convert-hopper-to-nvvm))"]), [
        (r"hopper\.occupancy = 2", to("hopper.occupancy = 0"), "'hopper.occupancy' is an integer of 1 or more"),
        (r"hopper\.occupancy = 2", to("hopper.occupancy = 20"), "'hopper.occupancy' is 20, for CTAs of"),
        (r"(hopper\.occupancy = 2 : i64, hopper\.shared_bytes =) \d+", to(r"\1 200000"), "for CTAs of 200000 bytes of shared memory"),
        (r"hopper\.early = \d+", to("hopper.early = 0"), "'hopper.early' is an integer of 1 or more"),
        (r"hopper\.tensor_maps = array<i64>", to("hopper.tensor_maps = array<i64: -1>"), "'hopper.tensor_maps' is an array"),
    ]),
]

count, problems = 0, []
for group, make, mutants in GROUPS:
    text = first_function(make()) if group == "guards" else make()
    text = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("//")) + "\n"
    done = attn_opt(["-", "-o", os.devnull, CHECKS], text)
    if done.returncode:
        problems.append(f"{group}: refused as it is: {done.stderr}")
        continue
    for pattern, change, expected in mutants:
        places = list(re.finditer(pattern, text, re.DOTALL))[:PLACES]
        if not places:
            problems.append(f"{group}: nothing to change for: {expected}")
        for place in places:
            mutant = text[:place.start()] + change(place) + text[place.end():]
            done = attn_opt(["-", "-o", os.devnull, CHECKS], mutant)
            count += 1
            if options.verbose:
                print(f"{group}: {pattern}: {done.stderr.splitlines()[:1]}")
            if done.returncode != 1 or not re.search(expected, done.stderr):
                line = text.count("\n", 0, place.start()) + 1
                problems.append(f"{group}: line {line}, {pattern}: expected {expected}, got {done.returncode}: {done.stderr[:600]}")
print(f"{count} mutants")
sys.exit("\n".join(problems) or None)
