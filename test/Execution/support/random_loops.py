# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random nests of affine loops on integers, by each treatment, in the interpreter.

    random_loops.py ATTN_RUN FOLDER [COUNT [SEED]]

A store takes a * 3 + b - c of what was loaded before, so that order matters; some are sums in place. What
is refused is refused with an error; what runs has the elements that the loops leave one by one.
"""
import concurrent.futures
import os
import random
import subprocess
import sys

import numpy

SIZE = 9
MEMREF = f"memref<{SIZE}x{SIZE}xi32>"
TREATMENTS = ["owner-computes", "owner-computes loop-team=cta", "owner-computes loop-team=thread", "ordered-turnstile",
              "auto", "grid-phases", "cluster-reduction", "partial-and-merge", "partial-and-merge loop-merge=last",
              "atomics"]


class Nest:
    def __init__(self, rng):
        self.rng, self.count = rng, 0
        self.sums = rng.random() < 0.5  # nothing but sums of what is not written
        self.body = []
        for _ in range(rng.choice([1, 1, 2])):
            self.loop(rng.choice([1, 2, 2]), [], [["x"]], self.body)

    def name(self):
        self.count += 1
        return f"v{self.count}"

    def index(self, loops):
        if not loops or self.rng.random() < 0.2:
            return None, self.rng.randint(3, 5)
        # Mostly an element of its own for each iteration.
        return self.rng.choice(loops), self.rng.choice([0, 0, 0, 0, 1, -1]) + 1

    def place(self, loops, written=True):
        memory = self.rng.choice("AAABC") if not self.sums else "A" if written else self.rng.choice("BC")
        return memory, self.index(loops[:1] if self.rng.random() < 0.5 else loops), self.index(loops)

    def loop(self, depth, loops, known, body):
        name = "ijk"[len(loops)]
        inner = []
        body.append(("loop", name, self.rng.randint(0, 2), self.rng.randint(3, 7), inner))
        loops, known = loops + [name], known + [[]]
        for _ in range(self.rng.randint(0 if depth else 1, 2)):
            self.statement(loops, known, inner)
        if depth:
            for _ in range(self.rng.choice([1, 1, 2])):
                self.loop(depth - 1, loops, known, inner)
            if self.rng.random() < 0.4:
                self.statement(loops, known, inner)

    def statement(self, loops, known, body):
        kind = self.rng.random()
        values = [v for level in known for v in level]
        if kind < 0.35 or len(values) < 2:
            known[-1].append(self.name())
            body.append(("load", known[-1][-1], self.place(loops, written=False)))
        elif kind < 0.65 or self.sums:
            body.append(("sum", self.place(loops), self.rng.choice(values[-3:])))
        else:
            body.append(("store", self.place(loops), [self.rng.choice(values[-4:]) for _ in range(3)]))

    def text(self):
        lines = [f"func.func @main(%A: {MEMREF}, %B: {MEMREF}, %C: {MEMREF}, %x: i32) {{", "  %three = arith.constant 3 : i32"]
        fresh = iter(range(10**6))

        def access(place):
            memory, *indices = place
            return f"%{memory}[" + ", ".join(str(n) if name is None else f"%{name} + {n}" for name, n in indices) + f"] : {MEMREF}"

        def emit(body, pad):
            for item in body:
                if item[0] == "loop":
                    _, name, low, high, inner = item
                    lines.append(f"{pad}affine.for %{name} = {low} to {high} {{")
                    emit(inner, pad + "  ")
                    lines.append(f"{pad}}} {{attn.loop = \"{name}\"}}")
                elif item[0] == "load":
                    lines.append(f"{pad}%{item[1]} = affine.load {access(item[2])}")
                elif item[0] == "sum":
                    n = next(fresh)
                    lines.append(f"{pad}%old{n} = affine.load {access(item[1])}")
                    lines.append(f"{pad}%new{n} = arith.addi %old{n}, %{item[2]} : i32")
                    lines.append(f"{pad}affine.store %new{n}, {access(item[1])}")
                else:
                    n, (a, b, c) = next(fresh), item[2]
                    lines.append(f"{pad}%p{n} = arith.muli %{a}, %three : i32")
                    lines.append(f"{pad}%q{n} = arith.addi %p{n}, %{b} : i32")
                    lines.append(f"{pad}%r{n} = arith.subi %q{n}, %{c} : i32")
                    lines.append(f"{pad}affine.store %r{n}, {access(item[1])}")

        emit(self.body, "  ")
        return "\n".join(lines + ["  return", "}", ""])

    def run(self, memory, x):
        def wrap(value):
            return (value + 2**31) % 2**32 - 2**31

        def execute(body, values):
            for item in body:
                at = lambda place: tuple(n if name is None else values[name] + n for name, n in place[1:])
                if item[0] == "loop":
                    for n in range(item[2], item[3]):
                        execute(item[4], {**values, item[1]: n})
                elif item[0] == "load":
                    values[item[1]] = int(memory[item[2][0]][at(item[2])])
                elif item[0] == "sum":
                    cells, place = memory[item[1][0]], at(item[1])
                    cells[place] = wrap(int(cells[place]) + values[item[2]])
                else:
                    a, b, c = (values[name] for name in item[2])
                    memory[item[1][0]][at(item[1])] = wrap(a * 3 + b - c)

        execute(self.body, {"x": x})


def main():
    attn_run, folder = sys.argv[1:3]
    count, seed = (int(v) for v in (sys.argv[3:] + ["30", "1"][len(sys.argv) - 3 :])[:2])
    os.makedirs(folder, exist_ok=True)
    rng = random.Random(seed)
    nests = [Nest(rng) for _ in range(count)]
    ran, refused, wrong = dict.fromkeys(TREATMENTS, 0), 0, 0

    def check(number):
        base = os.path.join(folder, str(number))
        with open(base + ".mlir", "w") as file:
            file.write(nests[number].text())
        grid = numpy.arange(SIZE * SIZE).reshape(SIZE, SIZE)
        memory = {m: ((grid * k) % 23 - 11).astype(numpy.int32) for m, k in zip("ABC", (7, 13, 5))}
        numpy.save(base + "-x.npy", numpy.int32(7))
        inputs = [f"--input=3={base}-x.npy"]
        for position, m in enumerate("ABC"):
            numpy.save(f"{base}-{m}.npy", memory[m])
            inputs.append(f"--input={position}={base}-{m}.npy")
        nests[number].run(memory, 7)
        results = []
        for t, treatment in enumerate(TREATMENTS):
            parts = "" if "owner" in treatment or treatment == "auto" else " loop-parts=2"
            outputs = [f"--output={p}={base}-{t}-{m}.npy" for p, m in enumerate("ABC")]
            done = subprocess.run([attn_run, base + ".mlir", "--target=interpreter", "--interleavings=3",
                                   f"--schedule=treatment={treatment} loop-threads=32{parts} ctas=4", *inputs, *outputs],
                                  capture_output=True, text=True, timeout=300)
            if done.returncode:
                legal = ("cannot", "option", "expected", "the grid meets inside", "a launch cannot end", "loops of one nest",
                         "merges only", "deadlock: ")
                results.append(None if any(word in done.stderr.split("\n")[0] for word in legal) else done.stderr[:600])
                continue
            same = all(numpy.array_equal(numpy.load(f"{base}-{t}-{m}.npy"), memory[m]) for m in "ABC")
            results.append("" if same else "other elements")
        return results

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for number, results in enumerate(pool.map(check, range(count))):
            for treatment, result in zip(TREATMENTS, results):
                if result is None:
                    refused += 1
                    continue
                ran[treatment] += 1
                if result:
                    wrong += 1
                    print(f"{treatment}: {result}\n{nests[number].text()}")
    print(", ".join(f"{treatment}: {n}" for treatment, n in ran.items()))
    print(f"{sum(ran.values())} runs, {refused} refused, {wrong} wrong")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
