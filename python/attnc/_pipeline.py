# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Charts of the loops that a GPU kernel's warpgroups spend their time in, read off the
hopper level: what is started, what is waited for, and what is computed meanwhile."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

_NAME = r"%[\w#]+"
_SLOW = ("exp2", "exp", "log", "tanh", "erf", "sin", "cos", "divf")


@dataclass
class Step:
    """`kind`: load, store, product, wait, release, barrier or arithmetic. `until`: the step
    at which what this one started is waited for, in the same iteration."""

    kind: str
    text: str
    until: Optional[int] = None


@dataclass
class Role:
    """Warpgroups with one program; `steps` of one iteration of its innermost loop."""

    name: str
    warpgroups: int
    registers: int
    steps: List[Step] = field(default_factory=list)


@dataclass
class Kernel:
    roles: List[Role]


# The structure of the text: a line and the lines of its regions.


@dataclass
class _Node:
    line: str
    order: int
    children: List[_Node] = field(default_factory=list)

    def walk(self) -> Iterator[_Node]:
        for child in self.children:
            yield child
            yield from child.walk()


def _parse(text: str) -> _Node:
    root = _Node("", -1)
    stack = [root]
    for order, raw in enumerate(text.splitlines()):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("}") and len(stack) > 1:
            # The second region of an op is beside the first; its line says nothing new.
            closed = stack.pop()
            if line.endswith("{"):
                stack.append(closed)
            continue
        node = _Node(line, order)
        stack[-1].children.append(node)
        if line.endswith("{"):
            stack.append(node)
    return root


# Ops whose result is (part of) their first operand.
_VIEWS = re.compile(
    rf"(?:hopper\.(?:tensor_map|slot|transpose)|tile\.(?:rows|columns)|memref\.(?:reinterpret_cast|subview|cast|expand_shape|"
    rf"collapse_shape|extract_strided_metadata))\S* ({_NAME})"
)


class _Names:
    """What values stand for. Regions beside one another use the same names again: the last
    definition before a use is the one that counts."""

    def __init__(self, nodes: Sequence[_Node], arguments: Sequence[str]) -> None:
        self.definitions: Dict[str, List[Tuple[int, str]]] = {}
        self.arguments = arguments
        for node in nodes:
            found = re.match(rf"({_NAME})(?::\d+)?(?:, {_NAME}(?::\d+)?)* = (.*)", node.line)
            if found:
                self.definitions.setdefault(found[1], []).append((node.order, found[2]))

    def root(self, value: str, order: int) -> Tuple[str, int, str]:
        """What a view is of, where that is defined, and how."""
        while True:
            known = [entry for entry in self.definitions.get(value.partition("#")[0], []) if entry[0] < order]
            if not known:
                return value, -1, ""
            order, text = known[-1]
            found = _VIEWS.match(text)
            if not found:
                return value, order, text
            value = found[1]

    def tensor(self, value: str, order: int) -> str:
        """The name of an argument, of which this is a view."""
        value, _, _ = self.root(value, order)
        found = re.match(r"%arg(\d+)$", value)
        if found and int(found[1]) < len(self.arguments):
            return self.arguments[int(found[1])]
        return "workspace"


def _shape(text: str) -> str:
    found = re.search(r"<((?:\d+x)+)", text)
    return found[1].rstrip("x") if found else ""


def _without_marks(text: str) -> str:
    """A copy, whether or not it leaves out rows that are marked."""
    return re.sub(r" without\(.*?\) if %[\w#]+", "", text)


def _operands(text: str) -> List[str]:
    return re.findall(_NAME, text)


class _Buffers:
    """What stands in shared memory: by allocation, the tensor that is copied to it; by
    barrier, the one that it announces, and the one whose room it announces, which is
    waited for before a copy."""

    def __init__(self, launch: _Node, names: _Names) -> None:
        self.names = names
        self.tensors: Dict[Tuple[str, int], str] = {}
        self.full: Dict[Tuple[str, int], str] = {}
        self.empty: Dict[Tuple[str, int], str] = {}
        waited: Optional[Tuple[str, int]] = None
        for node in launch.walk():
            found = re.match(rf"hopper\.mbarrier\.wait ({_NAME})", node.line)
            if found:
                waited = self.key(found[1], node.order)
            copy = _without_marks(node.line)
            found = re.match(rf"hopper\.tma\.load ({_NAME})\[.*?\] to ({_NAME}), ({_NAME})", copy)
            if found:
                tensor = names.tensor(found[1], node.order)
                self.tensors[self.key(found[2], node.order)] = tensor
                self.full[self.key(found[3], node.order)] = tensor
                if waited:
                    self.empty.setdefault(waited, tensor)
                waited = None
            found = re.match(rf"tile\.copy ({_NAME})\[.*?\] to ({_NAME})", node.line)
            if found:
                self.tensors[self.key(found[2], node.order)] = names.tensor(found[1], node.order)

    def key(self, value: str, order: int) -> Tuple[str, int]:
        return self.names.root(value, order)[:2]


class _Reader:
    """One iteration of a loop as steps."""

    def __init__(self, names: _Names, buffers: _Buffers) -> None:
        self.names, self.buffers = names, buffers
        self.steps: List[Step] = []
        self.pending: Dict[str, int] = {}
        self.products = 0
        self.vector_ops: List[str] = []

    def flush(self) -> None:
        if not self.vector_ops:
            return
        slow = [op for op in dict.fromkeys(self.vector_ops) if op in _SLOW]
        special = f", with {', '.join(slow)}" if slow else ""
        count = len(self.vector_ops)
        self.steps.append(Step("arithmetic", f"{count} step{'s' * (count > 1)} on tiles{special}"))
        self.vector_ops = []

    def add(self, kind: str, text: str) -> None:
        self.flush()
        self.steps.append(Step(kind, text))

    def of(self, value: str, order: int) -> str:
        """An operand of a product."""
        known = self.buffers.tensors.get(self.buffers.key(value, order))
        if known:
            return known
        return "shared memory" if "hopper.alloc" in self.names.root(value, order)[2] else "registers"

    def read(self, nodes: Sequence[_Node]) -> List[Step]:
        for node in nodes:
            self.read_line(node.line, node.order)
            # Both sides of a branch around a mask are one tile's arithmetic.
            self.read(node.children)
        return self.steps

    def read_line(self, line: str, order: int) -> None:
        result, _, text = line.partition(" = ") if line.startswith("%") else ("", "", line)
        found = re.match(r"(?:hopper\.|(?=tile\.))([\w.]+)\s*(.*)", text)
        if not found:
            op = re.match(r"(?:arith|math|vector)\.(\w+)", text)
            # Scalars and indices are beside the point.
            if op and re.search(r"vector<\d", text) and op[1] not in ("broadcast", "transpose", "step", "constant"):
                self.vector_ops.append(op[1])
            return
        name, rest = found[1], found[2]
        values = _operands(rest)
        if name == "mbarrier.wait":
            key = self.buffers.key(values[0], order)
            arrived = self.buffers.full.get(key)
            self.add("wait", f"for {arrived}" if arrived else f"for room for {self.buffers.empty.get(key, 'a tile')}")
        elif name == "mbarrier.arrive":
            self.add("release", self.buffers.empty.get(self.buffers.key(values[0], order), "a tile"))
        elif name == "tma.load":
            self.add("load", f"{self.names.tensor(values[0], order)}, {_shape(_without_marks(rest))}")
        elif name in ("tma.store", "tma.reduce"):
            target = re.search(rf" to ({_NAME})", rest)
            verb = "" if name == "tma.store" else ", added in memory"
            self.add("store", f"{self.names.tensor(target[1], order) if target else 'a tile'}{verb}")
        elif name == "tile.copy":
            self.add("load", self.names.tensor(values[0], order))
        elif name == "tile.await":
            self.add("wait", "for copies and for others")
        elif name == "tile.mma":  # done at once
            self.products += 1
            shape = _shape(rest.rpartition(",")[2])
            self.add("product", f"{self.products}: {shape} = {self.of(values[0], order)} x {self.of(values[1], order)}")
        elif name == "wgmma":
            self.products += 1
            shape = _shape(rest.rpartition("->")[2])
            self.add("product", f"{self.products}: {shape} = {self.of(values[0], order)} x {self.of(values[1], order)}")
            self.pending[result.partition(":")[0].strip()] = len(self.steps) - 1
        elif name == "wait":
            self.add("wait", "for products")
            for value in values:
                start = self.pending.pop(value, None)
                if start is not None:
                    self.steps[start].until = len(self.steps) - 1
                    number = self.steps[start].text.partition(":")[0]
                    self.steps[-1].text = f"for product {number}"
        elif name in ("barrier.sync", "barrier.arrive"):
            self.add("barrier", "wait for others" if name == "barrier.sync" else "let others go on")
        elif name in ("tma.wait", "tile.write"):
            self.add("store", {"tma.wait": "wait for copies", "tile.write": "a tile to shared memory"}[name])


def _innermost(role: _Node) -> List[_Node]:
    """The body of the loop that starts most, of those without loops of that kind in them."""
    kinds = "hopper.wgmma", "hopper.tma.load", "tile.mma"
    starts = lambda node: sum(any(kind in n.line for kind in kinds) for n in node.walk())
    loops = [n for n in role.walk() if "scf.for " in n.line]
    inner = [n for n in loops if starts(n) and not any("scf.for " in m.line and starts(m) for m in n.walk())]
    return max(inner, key=starts).children if inner else role.children


def read_kernels(text: str, arguments: Sequence[str]) -> List[Kernel]:
    """Of the hopper level; `arguments` are names of what the function takes."""
    root = _parse(text)
    kernels = []
    for function in (node for node in root.walk() if node.line.startswith("func.func")):
        names = _Names(list(function.walk()), arguments)
        for launch in (node for node in function.walk() if "gpu.launch" in node.line):
            buffers = _Buffers(launch, names)
            roles = []
            for node in launch.walk():
                found = re.match(r'role "([^"]+)" warpgroups\((\d+)\)(?: registers\((\d+)\))?', node.line)
                if found:
                    reader = _Reader(names, buffers)
                    reader.read(_innermost(node))
                    reader.flush()
                    roles.append(Role(found[1], int(found[2]), int(found[3] or 0), reader.steps))
            if roles:
                kernels.append(Kernel(roles))
    return kernels


# Drawing.


def _title(number: int, count: int, role: Role) -> str:
    kernel = f"kernel {number} of {count}, " if count > 1 else ""
    groups = f"{role.warpgroups} warpgroup{'s' * (role.warpgroups > 1)}"
    registers = f", {role.registers} registers" if role.registers else ""
    return f"{kernel}{role.name}: {groups}{registers}"


def draw_text(kernels: Sequence[Kernel]) -> str:
    """A line per step; bars beside it say which products are under way."""
    lines: List[str] = []
    for number, kernel in enumerate(kernels, 1):
        for role in kernel.roles:
            lines.append(_title(number, len(kernels), role))
            spans = [(i, s.until if s.until is not None else len(role.steps)) for i, s in enumerate(role.steps)
                     if s.kind == "product"]  # fmt: skip
            for index, step in enumerate(role.steps):
                bars = "".join("┬" if a == index else "┴" if b == index else "│" if a < index < b else " "
                               for a, b in spans)  # fmt: skip
                lines.append(f"  {bars}{' ' * bool(spans)}{step.kind:10} {step.text}")
    return "\n".join(lines)


_COLOURS = {
    "load": "#4c78a8",
    "store": "#9ecae9",
    "product": "#e45756",
    "wait": "#bab0ac",
    "release": "#d8d0cc",
    "barrier": "#eeca3b",
    "arithmetic": "#54a24b",
}
_LANES = {"load": 0, "store": 0, "product": 1, "arithmetic": 2, "wait": 3, "release": 3, "barrier": 3}
_LANE_NAMES = ("copies", "products", "arithmetic", "waits")


def draw_svg(kernels: Sequence[Kernel]) -> str:
    """A picture per role: lanes of what runs, in the order in which it is started. Widths
    are no times."""
    cell, height, left = 96, 22, 80
    parts: List[str] = []
    tops: Dict[int, int]
    y, width = 4, 400
    for number, kernel in enumerate(kernels, 1):
        for role in kernel.roles:
            title = html.escape(_title(number, len(kernels), role))
            parts.append(f'<text x="4" y="{y + 12}" font-weight="bold">{title}</text>')
            y += 20
            # Products that overlap are one below the other.
            rows: List[int] = []
            depth, placed = 0, {}
            for index, step in enumerate(role.steps):
                if step.kind == "product":
                    end = step.until if step.until is not None else len(role.steps)
                    row = next((r for r, busy in enumerate(rows) if busy <= index), len(rows))
                    rows[row:row + 1] = [end]
                    placed[index] = row
                    depth = max(depth, row)
            used, tops, rows_used = {_LANES[step.kind] for step in role.steps}, {}, 0
            for lane, name in enumerate(_LANE_NAMES):
                if lane in used:
                    parts.append(f'<text x="4" y="{y + rows_used * height + 15}">{name}</text>')
                    tops[lane] = rows_used
                    rows_used += 1 + (depth if name == "products" else 0)
            for index, step in enumerate(role.steps):
                end = step.until if step.kind == "product" and step.until is not None else index
                end = len(role.steps) - 1 if step.kind == "product" and step.until is None else end
                x, span = left + index * cell, (max(end - index, 0) + (step.kind != "product" or end == index)) * cell
                top = y + (tops[_LANES[step.kind]] + placed.get(index, 0)) * height
                label = f"release {step.text}" if step.kind == "release" else step.text
                fits = int((span - 8) / 6.2)
                short = label if len(label) <= fits else label[: fits - 1] + "…"
                parts.append(
                    f'<g><title>{html.escape(step.kind + " " + step.text)}</title><rect x="{x + 1}" y="{top + 2}" '
                    f'width="{max(span - 2, 4)}" height="{height - 4}" rx="3" fill="{_COLOURS[step.kind]}"/>'
                    f'<text x="{x + 4}" y="{top + 15}">{html.escape(short)}</text></g>'
                )
            width = max(width, left + len(role.steps) * cell + 8)
            y += rows_used * height + 12
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" font-family="sans-serif" '
        f'font-size="11">{"".join(parts)}</svg>'
    )
