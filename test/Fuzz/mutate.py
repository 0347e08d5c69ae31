# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Feeds mutated IR to attn-opt: it may refuse, it may not crash or hang.

    mutate.py --attn-opt BIN --count 10000 [--seed 7] [--jobs 8]

The mutants come from the .mlir files of test/ and examples/. A mutant is cut
out of one file (one piece between `// -----` lines, one function of it where it
has several) and changed in one to four places. Mutants run in batches with
--split-input-file, a line `// -----` between them; a batch that fails is run
again one mutant at a time. What counts as a failure: death by a signal, an
exit status other than 0 and 1, or no end within the time limit. A failing
mutant is written to --work, and printed with the command that shows it.

Crashes of MLIR itself are counted apart, and only where that is shown: with
--mlir-opt, a failing mutant is also given to that tool, which holds none of
this project's code; where it dies on the same text (or on one linalg.generic
of it: its parser takes any attribute for a string; or on one of its arrays: whose
parser takes any type for an integer or float) the crash is upstream's.

Mutants that use a name before they define it are not drawn. MLIR's parser binds
such a use to a value inside of a later region, and when the op of that region
then fails to parse, frees the value under its user: memory is damaged long
before anything of this project runs.
"""

import argparse
import concurrent.futures
import os
import random
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time

TOKEN = re.compile(
    r"0x[0-9A-Fa-f]+|\d+\.\d*(?:[eE][-+]?\d+)?|[%@#!^]?[A-Za-z_][\w.$-]*|[%#^]?\d+|->|==|::|\"[^\"\n]*\"|\s+|.",
    re.DOTALL)
NUMBERS = ["0", "1", "-1", "2", "3", "7", "64", "255", "4096", "2147483648", "-2147483649",
           "4611686018427387904", "9223372036854775807", "18446744073709551616", "1.0e38", "-0.0",
           "0xFF800000", "0x7FC00000", "0x7FF0000000000000"]
TYPES = ["f32", "f64", "f16", "bf16", "i1", "i8", "i32", "i64", "index", "none", "f8E4M3FN",
         "tensor<?xf32>", "tensor<?x?x?x64xf32>", "tensor<*xf32>", "tensor<0xf32>", "tensor<f32>",
         "tensor<2x8x?x64xbf16>", "tensor<?x?x?x0xf32>", "memref<?xf32>", "vector<4xf32>",
         "vector<[4]xf32>", "tuple<>", "complex<f32>", "!llvm.ptr", "() -> ()"]
ELEMENT = {"f32", "f64", "f16", "bf16", "i1", "i8", "i16", "i32", "i64", "index"}

# Parse and verify; then whatever is a pass of this build (see known_passes).
_DERIVE = ["--attn-expand", "--attn-fuse-reductions"]
PIPELINES = [
    [],
    ["--canonicalize", "--cse"],
    ["--attn-expand", "--canonicalize"],
    _DERIVE,
    _DERIVE + ["--attn-plan-nest", "--attn-tile-nest"],
    _DERIVE + ["--attn-plan-nest", "--attn-tile-nest", "--canonicalize", "--attn-project-masks", "--attn-count-tiles"],
    ["--attn-project-masks"],
    ["--attn-print-dependences"],
    ["--attn-hoist-invariants", "--attn-fuse-loops"],
    ["--attn-interchange-loops"],
    ["--attn-distribute-reductions"],
    ["--attn-parallelize-loops"],
    ["--attn-emit-shape-function"],
    ["--attn-tile-pipeline"],
]
# Down to the LLVM dialect: half a second for a mutant that is valid, so only
# every fourth goes through it.
WHOLE = ["--attn-cpu-pipeline"]
SEPARATOR = "\n// -----\n"


def corpus(root):
    """Pieces of IR: (name, text). A piece is at most one function long where
    the file can be cut that way, so that a mutant is small."""
    pieces = []
    for top in ("test", "examples"):
        for folder, _, files in sorted(os.walk(os.path.join(root, top))):
            for name in sorted(files):
                if not name.endswith(".mlir"):
                    continue
                with open(os.path.join(folder, name)) as file:
                    text = file.read()
                text = "\n".join(
                    line for line in text.splitlines()
                    if not re.match(r"\s*//(?! -----)", line)) + "\n"
                for part in text.split("// -----"):
                    pieces += [(name, piece) for piece in cut(part) if piece.strip()]
    return pieces


def cut(text):
    """One piece per top-level function, each with the aliases of its file."""
    starts = [m.start() for m in re.finditer(r"^func\.func", text, re.MULTILINE)]
    if len(starts) < 2:
        return [text]
    ends = starts[1:] + [len(text)]
    return [text[:starts[0]] + text[a:b] for a, b in zip(starts, ends)]


def uses_early(text):
    """Whether some name occurs before it is defined: as a result, or as an
    argument (`%x: type`, without a space)."""
    seen = set()
    for line in text.splitlines():
        results = re.match(r"\s*((?:%\w+(?::\d+)?[\s,]*)+)=", line)
        new = set(re.findall(r"%\w+", results.group(1))) if results else set()
        new |= set(re.findall(r"(%\w+):(?!:)", line)) | set(re.findall(r"(?:for|parallel|forall)\s*\(?(%\w+)", line))
        new |= set(re.findall(r"(%\w+) = %", line))  # iter_args(%a = %init)
        if any(name not in seen and name not in new for name in re.findall(r"%\w+", line)):
            return True
        seen |= new
    return False


class Mutator:
    def __init__(self, pieces, rng):
        self.pieces, self.rng = pieces, rng

    def mutant(self):
        """(what was done, text)"""
        while True:
            done, text = self._draw()
            if not uses_early(text):
                return done, text

    def _draw(self):
        name, text = self.rng.choice(self.pieces)
        done = []
        for _ in range(self.rng.choice([1, 1, 1, 2, 2, 3, 4])):
            change = self.rng.choice([
                self.number, self.number, self.type, self.type, self.swap_tokens, self.drop_token,
                self.drop_line, self.repeat_line, self.swap_lines, self.rename_op, self.rename_value,
                self.rename_value, self.drop_attribute, self.splice, self.truncate, self.insert_token])
            changed = change(text)
            if changed and changed != text:
                text = changed
                done.append(change.__name__)
        # A mutant must not break out of its part of a batch.
        return f"{name}: {', '.join(done) or 'unchanged'}", text.replace("// -----", "//")

    def _tokens(self, text, wanted):
        tokens = TOKEN.findall(text)
        places = [n for n, token in enumerate(tokens) if wanted(token)]
        return tokens, places

    def _replace(self, text, wanted, new):
        tokens, places = self._tokens(text, wanted)
        if not places:
            return None
        where = self.rng.choice(places)
        tokens[where] = new(tokens[where])
        return "".join(tokens)

    def number(self, text):
        # Also the sizes inside of types, which are glued to an x: 2x8x?x64xf32.
        places = list(re.finditer(r"(?<![\w%#.])-?\d+(?:\.\d+)?(?=[\s,\])>:}]|x)|(?<=x)\d+(?=x)", text))
        if not places:
            return None
        place = self.rng.choice(places)
        new = self.rng.choice(NUMBERS + ["?"])
        return text[:place.start()] + new + text[place.end():]

    def type(self, text):
        places = list(re.finditer(r"\b(?:tensor|vector|memref)<[^<>\n]*>|\b(?:f32|f64|f16|bf16|i1|i32|i64|index)\b", text))
        if not places:
            return None
        place = self.rng.choice(places)
        old = place.group()
        if old in ELEMENT or self.rng.random() < 0.5:
            new = self.rng.choice(TYPES + sorted(ELEMENT) * 3)
            if old not in ELEMENT:
                new = re.sub(r"(f32|f64|f16|bf16|i1|i32|i64|index)>", self.rng.choice(sorted(ELEMENT)) + ">", old)
        else:
            new = self.rng.choice(TYPES)
        if self.rng.random() < 0.4:  # everywhere: what still verifies goes deeper
            return text.replace(old, new)
        return text[:place.start()] + new + text[place.end():]

    def swap_tokens(self, text):
        tokens, places = self._tokens(text, lambda t: not t.isspace())
        if len(places) < 2:
            return None
        a = self.rng.randrange(len(places) - 1)
        b = min(len(places) - 1, a + self.rng.choice([1, 1, 2, 3, 8]))
        a, b = places[a], places[b]
        tokens[a], tokens[b] = tokens[b], tokens[a]
        return "".join(tokens)

    def drop_token(self, text):
        return self._replace(text, lambda t: not t.isspace(), lambda t: "")

    def insert_token(self, text):
        return self._replace(
            text, lambda t: not t.isspace(),
            lambda t: t + " " + self.rng.choice(["{", "}", "(", ")", "<", ">", ",", "%0", "@f", "x", "->",
                                                 "loc(unknown)", "\"\"", "\0", "\u00e9", "#a"]))

    def _lines(self, text):
        lines = text.splitlines(True)
        return lines, [n for n, line in enumerate(lines) if line.strip()]

    def drop_line(self, text):
        lines, places = self._lines(text)
        if places:
            del lines[self.rng.choice(places)]
        return "".join(lines)

    def repeat_line(self, text):
        lines, places = self._lines(text)
        if places:
            where = self.rng.choice(places)
            lines.insert(where, lines[where])
        return "".join(lines)

    def swap_lines(self, text):
        lines, places = self._lines(text)
        if len(places) > 1:
            a, b = self.rng.sample(places, 2)
            lines[a], lines[b] = lines[b], lines[a]
        return "".join(lines)

    def rename_op(self, text):
        """An operation becomes another one of the corpus, or one beside it."""
        op = re.compile(r"\b(?:attn|arith|math|linalg|tensor|affine|scf|func|vector|memref)\.\w+")
        here = list(op.finditer(text))
        if not here:
            return None
        place = self.rng.choice(here)
        there = op.findall(self.rng.choice(self.pieces)[1])
        family = place.group().split(".")[0]
        near = [name for name in there if name.startswith(family)]
        new = self.rng.choice(near or there or ["arith.constant"])
        return text[:place.start()] + new + text[place.end():]

    def rename_value(self, text):
        """An operand becomes another value of the piece."""
        values = re.findall(r"%[\w]+", text)
        if not values:
            return None
        return self._replace(text, lambda t: t.startswith("%"), lambda t: self.rng.choice(values))

    def drop_attribute(self, text):
        places = list(re.finditer(r"[{,]\s*\w+ = [^,{}\n]+|\b(?:scale|sink|captures|dims|maps)\b\s*(?:\([^()]*\)|\[[^\]]*\]|\S+)", text))
        if not places:
            return None
        place = self.rng.choice(places)
        keep = "{" if place.group().startswith("{") else ""
        return text[:place.start()] + keep + text[place.end():]

    def splice(self, text):
        """Some lines of another piece in place of some lines of this one."""
        mine, other = text.splitlines(True), self.rng.choice(self.pieces)[1].splitlines(True)
        if not mine or not other:
            return None
        a, b = self.rng.randrange(len(mine)), self.rng.randrange(len(other))
        return "".join(mine[:a] + other[b:b + self.rng.randint(1, 4)] + mine[a + self.rng.randint(0, 3):])

    def truncate(self, text):
        return text[:self.rng.randrange(len(text))] if self.rng.random() < 0.3 else None


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run(tool, pipeline, text, seconds, split):
    """None where all is well, else what happened."""
    command = [tool, "-", "-o", os.devnull] + pipeline + ["--split-input-file"] * split
    # Freed and fresh memory holds a pattern: a wild read shows itself sooner.
    environment = dict(os.environ, MALLOC_PERTURB_="165")
    try:
        done = subprocess.run(command, input=text.encode(errors="replace"), stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, timeout=seconds, preexec_fn=limit_memory,
                              env=environment)
    except subprocess.TimeoutExpired:
        return f"no end within {seconds} s"
    if done.returncode in (0, 1):
        return None
    tail = done.stderr.decode(errors="replace").strip()
    lines = tail.splitlines()
    message = next((line for line in lines if re.search("Assertion|UNREACHABLE|LLVM ERROR", line)), "")
    # The function it happened in: ours where one of ours is on the stack.
    frames = [m.group(1) for line in lines for m in [re.match(r"\s*#\d+ 0x\w+ (.*?)(?: \(\S+\))?$", line)] if m]
    frames = [f for f in frames if not re.match(r"llvm::sys|SignalHandler|\(/|/lib|abort|raise|gsignal|__", f)]
    ours = [f for f in frames if "attn::" in f or "(anonymous namespace)" in f]
    where = (ours or frames or ["?"])[0]
    return f"exit status {done.returncode} {message} in {where[:160]}"


def is_upstream(options, pipeline, text):
    """Whether mlir-opt, without any code of ours, fails on this text too."""
    if not options.mlir_opt:
        return False
    aliases = "".join(re.findall(r"^#.*\n", text, re.MULTILINE))
    pieces = [text] + [aliases + text[m.start():] for m in re.finditer(r"linalg\.generic", text)]
    pieces += [f"module attributes {{a = {array}}} {{}}\n" for array in re.findall(r"array<\w+[^<>]*>", text)]
    passes = [option for option in pipeline if not option.startswith(("--attn", "--split"))]
    return run(options.mlir_opt, passes, SEPARATOR.join(pieces), options.timeout, True) is not None


def reduce_batch(options, pipeline, texts):
    """A smallest list of texts that still fails in one process."""
    index = 0
    while index < len(texts):
        fewer = texts[:index] + texts[index + 1:]
        if run(options.attn_opt, pipeline, SEPARATOR.join(fewer), 5 * options.timeout, True):
            texts = fewer
        else:
            index += 1
    return texts


def known_passes(options):
    text = subprocess.run([options.attn_opt, "--help"], capture_output=True, text=True).stdout
    return set(re.findall(r"^\s+(--[\w-]+)", text, re.MULTILINE))


def run_batch(options, pipeline, batch):
    """Failures of a batch: (what was done, text, pipeline, problem, upstream)."""
    text = SEPARATOR.join(mutant for _, mutant in batch)
    if run(options.attn_opt, pipeline, text, options.timeout + 2 * len(batch), True) is None:
        return []
    failures = []
    for what, mutant in batch:
        problem = run(options.attn_opt, pipeline, mutant, options.timeout, False)
        if problem:
            failures.append((what, mutant, pipeline, problem, is_upstream(options, pipeline, mutant)))
    if not failures:  # memory was damaged by one mutant and used by another
        few = reduce_batch(options, pipeline, [mutant for _, mutant in batch])
        text = SEPARATOR.join(few)
        failures.append(("mutants together", text, pipeline + ["--split-input-file"],
                         "fails only together", is_upstream(options, pipeline, SEPARATOR.join(few * 4))))
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attn-opt", required=True)
    parser.add_argument("--mlir-opt", help="tells upstream's crashes from ours")
    parser.add_argument("--count", type=int, default=300, help="mutants")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=50, help="mutants per process")
    parser.add_argument("--timeout", type=float, default=20, help="seconds for one mutant")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--pipeline", action="append",
                        help="options of attn-opt to run instead of the usual pipelines; repeatable")
    parser.add_argument("--work", help="folder for failing mutants (default: a new one)")
    options = parser.parse_args()
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    pieces = corpus(root)
    known = known_passes(options)
    pipelines = [shlex.split(p) for p in options.pipeline] if options.pipeline else [
        p for p in PIPELINES if all(option.split("=")[0] in known for option in p)]
    mutator = Mutator(pieces, random.Random(options.seed))
    start = time.time()
    jobs = []
    for first in range(0, options.count, options.batch):
        batch = [mutator.mutant() for _ in range(min(options.batch, options.count - first))]
        jobs += [(pipeline, batch) for pipeline in pipelines]
        if not options.pipeline and WHOLE[0] in known:
            jobs.append((WHOLE, batch[::4]))
    work = options.work or tempfile.mkdtemp(prefix="attn-fuzz-")
    os.makedirs(work, exist_ok=True)
    seen, ours, foreign = {}, 0, 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for done, found in enumerate(pool.map(lambda job: run_batch(options, *job), jobs)):
            if sys.stderr.isatty():
                print(f"\r{100 * (done + 1) // len(jobs)} %", end="", file=sys.stderr)
            for what, text, pipeline, problem, upstream in found:
                kind = "upstream" if upstream else "crash"
                path = os.path.join(work, f"{kind}-{options.seed}-{ours + foreign}.mlir")
                with open(path, "w") as file:
                    file.write(text)
                foreign += upstream
                ours += not upstream
                if not upstream and problem not in seen:  # each kind of failure once
                    print(f"FAIL {problem}\n  {what}\n  {shlex.join([options.attn_opt, path] + pipeline)}",
                          flush=True)
                seen[problem] = seen.get(problem, 0) + 1
    print(f"{options.count} mutants of {len(pieces)} pieces (seed {options.seed}) through "
          f"{len({tuple(p) for p, _ in jobs})} pipelines: {ours} failures, {foreign} of MLIR's own, "
          f"{time.time() - start:.0f} s")
    return 1 if ours else 0


if __name__ == "__main__":
    sys.exit(main())
