# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The example of README.md that uses PyTorch: its Python beside the definition, and its IR beside what is made of it."""

import os
import re

import attnc
import torch
from support import dense

PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "..", "README.md")


def block(language, start):
    with open(PAGE) as file:
        return re.search(rf"```{language}\n({start}.*?)```", file.read(), re.DOTALL).group(1)


def run(tmp_path):
    path = tmp_path / "readme.py"  # errors name lines of a file
    path.write_text(block("python", "import attnc, torch"))
    space = {}
    torch.manual_seed(0)
    exec(compile(path.read_text(), path, "exec"), space)
    return space


def words(text):
    """The words of a function, with values numbered as they come. Each region has names of its own."""
    text = re.search(r"func\.func.*?\n\s*\}(?=\s*(\n\}|$))", text, re.DOTALL).group()
    numbered = []
    for piece in re.split(r"(?=score \{|mask \{)", text):
        names = {}
        numbered += re.sub(r"%\w+", lambda name: names.setdefault(name.group(), f"%{len(names)}"), piece).split()
    return numbered


def test_values_and_gradients(tmp_path):
    space = run(tmp_path)
    q, k, v, slopes, o = (space[name] for name in ("q", "k", "v", "slopes", "o"))
    expected = dense(q, k, v, space["score_mod"], space["mask_mod"])[0]
    torch.testing.assert_close(o, expected, rtol=2e-5, atol=2e-5)
    leaves = (q, k, v, slopes)
    for x, b in zip(leaves, torch.autograd.grad(expected, leaves, torch.ones_like(o))):
        assert (x.grad - b).norm() < 1e-4 * b.norm()


def test_ir(tmp_path):
    space = run(tmp_path)
    lowered = attnc.lower(space["q"], space["k"], space["v"], score_mod=space["score_mod"], mask_mod=space["mask_mod"])
    assert words(block("mlir", "func")) == words(lowered.levels["attn"])
