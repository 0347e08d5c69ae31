# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Generates affine nests and compares three opinions on their dependences.

For every ordered pair of accesses and every depth: what our graph says, what
upstream's memref dependence check says (both as text, must be equal), and what
a run of the nest shows (every distance that occurs must be inside of what the
graph says). Usage: compare-dependences.py ATTN_OPT MLIR_OPT OUTPUT [COUNT [SEED]]
"""
import random
import re
import subprocess
import sys

SYMBOL = 5  # the value of %n in the run


class Loop:
    def __init__(self, name, lower, upper, step):
        self.name, self.lower, self.upper, self.step = name, lower, upper, step
        self.body = []

    @staticmethod
    def bound(bound):
        """A bound is a number, "n", or (outer loop's name, offset)."""
        if isinstance(bound, tuple):
            return f"affine_map<(d) -> (d + {bound[1]})>(%{bound[0]})"
        return "%n" if bound == "n" else str(bound)


class Branch:
    """affine.if on `coefficient * iv + constant >= 0`."""

    def __init__(self, name, coefficient, constant):
        self.name, self.coefficient, self.constant = name, coefficient, constant
        self.body = []


class Access:
    def __init__(self, memref, store, indices):
        self.memref, self.store, self.indices = memref, store, indices


class Index:
    """sum of coefficient * iv, plus a constant; then mod or floordiv."""

    def __init__(self, terms, constant, operation):
        self.terms, self.constant, self.operation = terms, constant, operation

    def text(self):
        parts = [f"%{name} * {c}" for name, c in self.terms] + [str(self.constant)]
        inner = " + ".join(parts)
        return f"({inner}) {self.operation[0]} {self.operation[1]}" if self.operation else inner

    def value(self, ivs):
        result = self.constant + sum(c * ivs[name] for name, c in self.terms)
        if self.operation:
            kind, by = self.operation
            result = result % by if kind == "mod" else result // by
        return result


def generate(rng):
    """A list of loops and accesses, one to three deep, often imperfect."""
    rank = rng.choice([1, 1, 2, 2, 3])
    counter = [0]

    def index(names):
        chosen = rng.sample(names, min(len(names), rng.choice([0, 1, 1, 1, 2])))
        terms = [(name, rng.choice([1, 1, 1, 1, 2, -1, 3])) for name in chosen]
        operation = None
        if terms and rng.random() < 0.1:
            operation = rng.choice([("mod", 3), ("floordiv", 2)])
        return Index(terms, rng.randint(-3, 4), operation)

    def access(names):
        return Access(rng.choice("AAB"), rng.random() < 0.5,
                      [index(names) for _ in range(rank)])

    def body(depth, names):
        items = []
        if depth == 0 or rng.random() < 0.4:
            items += [access(names) for _ in range(rng.randint(1, 3 if depth == 0 else 1))]
        if depth > 0:
            for _ in range(2 if rng.random() < 0.25 else 1):
                items.append(loop(depth - 1, names))
            if rng.random() < 0.3:
                items.append(access(names))
        if names and rng.random() < 0.15:
            branch = Branch(rng.choice(names), rng.choice([1, -1]), rng.randint(-2, 4))
            branch.body = [access(names)]
            items.insert(rng.randint(0, len(items)), branch)
        return items

    def loop(depth, names):
        counter[0] += 1
        name = f"i{counter[0]}"
        if names and rng.random() < 0.2:
            lower, upper, step = 0, (rng.choice(names), rng.randint(0, 2)), 1
        else:
            lower = rng.randint(0, 2)
            upper = "n" if rng.random() < 0.1 else lower + rng.randint(1, 6)
            step = rng.choice([1, 1, 1, 1, 2, 3])
        result = Loop(name, lower, upper, step)
        result.body = body(depth, names + [name])
        return result

    return [loop(rng.randint(0, 2), []) for _ in range(rng.choice([1, 1, 2]))]


def accesses_of(items):
    for item in items:
        if isinstance(item, Access):
            yield item
        else:
            yield from accesses_of(item.body)


def emit(number, items):
    rank = len(next(accesses_of(items)).indices)
    memref = "memref<" + "100x" * rank + "f32>"
    lines = [f"func.func @nest{number}(%A: {memref}, %B: {memref}, %n: index, %c: f32) {{"]

    def write(items, indent):
        for item in items:
            pad = "  " * indent
            if isinstance(item, Access):
                at = f"%{item.memref}[" + ", ".join(i.text() for i in item.indices) + "]"
                if item.store:
                    lines.append(f"{pad}affine.store %c, {at} : {memref}")
                else:
                    lines.append(f"{pad}affine.load {at} : {memref}")
                continue
            if isinstance(item, Branch):
                lines.append(f"{pad}affine.if affine_set<(d) : (d * {item.coefficient} + "
                             f"{item.constant} >= 0)>(%{item.name}) {{")
            else:
                lines.append(f"{pad}affine.for %{item.name} = {Loop.bound(item.lower)} to "
                             f"{Loop.bound(item.upper)} step {item.step} {{")
            write(item.body, indent + 1)
            lines.append(pad + "}")

    write(items, 1)
    return lines + ["  return", "}"]


def run(items):
    """Every executed access in order: (access, [(loop, iv)...], address)."""
    trace = []

    def evaluate(bound, ivs):
        if isinstance(bound, tuple):
            return ivs[bound[0]] + bound[1]
        return SYMBOL if bound == "n" else bound

    def step(items, path, ivs):
        for item in items:
            if isinstance(item, Access):
                where = (item.memref,) + tuple(i.value(ivs) for i in item.indices)
                trace.append((item, path, where))
            elif isinstance(item, Branch):
                if item.coefficient * ivs[item.name] + item.constant >= 0:
                    step(item.body, path, ivs)
            else:
                for iv in range(evaluate(item.lower, ivs), evaluate(item.upper, ivs), item.step):
                    step(item.body, path + [(item, iv)], {**ivs, item.name: iv})

    step(items, [], {})
    return trace


def observed(items):
    """{(from, to, depth): set of distance vectors} of the run."""
    numbers = {id(a): n for n, a in enumerate(accesses_of(items))}
    by_address = {}
    result = {}
    for access, path, where in run(items):
        for earlier, before in by_address.get(where, []):
            if not (access.store or earlier.store):
                continue
            common = []
            for (loop_a, iv_a), (loop_b, iv_b) in zip(before, path):
                if loop_a is not loop_b:
                    break
                common.append(iv_b - iv_a)
            depth = next((d for d, x in enumerate(common) if x), len(common)) + 1
            key = (numbers[id(earlier)], numbers[id(access)], depth)
            result.setdefault(key, set()).add(tuple(common))
        by_address.setdefault(where, []).append((access, path))
    return result


LINE = re.compile(r"dependence from (\d+) to (\d+) at depth (\d+) = (.*)$")
INTERVAL = re.compile(r"\[(-?\w+|\+\w+), (-?\w+|\+\w+)\]")


def parse(line):
    match = LINE.search(line)
    if not match:
        return None
    return tuple(int(x) for x in match.groups()[:3]), match.group(4).strip()


def allows(verdict, vector, depth):
    if verdict == "false":
        return False
    if verdict == "true":
        return depth > len(vector)
    for distance, (low, high) in zip(vector, INTERVAL.findall(verdict)):
        if (low != "-inf" and distance < int(low)) or (high != "+inf" and distance > int(high)):
            return False
    return True


def main():
    attn_opt, mlir_opt, output = sys.argv[1:4]
    count = int(sys.argv[4]) if len(sys.argv) > 4 else 80
    rng = random.Random(int(sys.argv[5]) if len(sys.argv) > 5 else 20)
    nests = [generate(rng) for _ in range(count)]
    lines, function_at = [], {}
    for number, nest in enumerate(nests):
        for line in emit(number, nest):
            lines.append(line)
            function_at[len(lines)] = number
    with open(output, "w") as file:
        file.write("\n".join(lines) + "\n")

    ours, theirs = [{} for _ in nests], [{} for _ in nests]
    text = subprocess.run([attn_opt, output, "-attn-print-dependences=format=pairs", "-o", "/dev/null"],
                          check=True, capture_output=True, text=True).stdout
    number = -1
    for line in text.splitlines():
        if line.startswith("access pairs of"):
            number = int(line.split("@nest")[1])
        elif parse(line):
            ours[number].update([parse(line)])
    text = subprocess.run([mlir_opt, output, "--mlir-disable-threading", "-o", "/dev/null",
                           "-pass-pipeline=builtin.module(func.func(test-memref-dependence-check))"],
                          check=True, capture_output=True, text=True).stderr
    for line in text.splitlines():
        if "remark:" in line and parse(line):
            theirs[function_at[int(line.split(":")[1])]].update([parse(line)])

    pairs = dependences = seen = differences = 0
    for number, nest in enumerate(nests):
        if ours[number].keys() != theirs[number].keys():
            sys.exit(f"nest {number}: the accesses or depths differ")
        for key, verdict in ours[number].items():
            pairs += 1
            dependences += verdict != "false"
            if verdict != theirs[number][key]:
                differences += 1
                print(f"nest {number}, {key}: ours {verdict}, upstream {theirs[number][key]}")
        for key, vectors in observed(nest).items():
            seen += len(vectors)
            for vector in vectors:
                if not allows(ours[number].get(key, "false"), vector, key[2]):
                    differences += 1
                    print(f"nest {number}, {key}: {vector} occurs, ours {ours[number].get(key)}")
    print(f"{count} nests, {pairs} questions, {dependences} dependences, "
          f"{seen} distances seen in runs, {differences} differences")
    sys.exit(differences != 0)


main()
