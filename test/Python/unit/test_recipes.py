# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The recipes of docs/python.md, as they stand there."""

import os
import re

import attnc
import pytest
import torch
from support import dense

PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "..", "docs", "python.md")
MASKS = {
    "Causal": lambda b, h, i, j: j <= i,
    "A sliding window": lambda b, h, i, j: (j <= i) & (i - j <= 32),
    "ALiBi": lambda b, h, i, j: j <= i,
    "Packed documents": None,
    "The learned relative bias of T5": lambda b, h, i, j: j <= i,
}


def recipes():
    with open(PAGE) as file:
        text = re.search(r"## Recipes\n(.*?)\n## ", file.read(), re.DOTALL).group(1)
    return re.findall(r"\n\n([A-Z][^\n:]*?)[:,][^`]*?```python\n(.*?)```", text, re.DOTALL)


def test_all_are_here():
    assert [title for title, _ in recipes()] == list(MASKS)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("title,code", recipes(), ids=[title for title, _ in recipes()])
def test_recipe(title, code, device, tmp_path):
    g = torch.Generator().manual_seed(0)
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    q, k, v = (torch.randn(2, 4, 130, 64, generator=g).to(device, dtype) for _ in range(3))
    space = {"attnc": attnc, "torch": torch, "q": q, "k": k, "v": v}
    path = tmp_path / "recipe.py"  # errors name lines of a file
    path.write_text(code)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    with torch.device(device):
        exec(compile(code, path, "exec"), space)
        expected = dense(q, k, v, space.get("score_mod"), MASKS[title] or space["mask_mod"])[0]
    o = space["o"]
    tolerance = 2e-5 if device == "cpu" else 2e-2
    torch.testing.assert_close(o, expected, rtol=tolerance, atol=tolerance)
    if "backward()" in code:
        leaves.append(space["table"])
        do = torch.ones_like(o)
        found = [x.grad for x in leaves]
    else:
        do = torch.randn_like(o)
        found = torch.autograd.grad(o, leaves, do)
    for a, b in zip(found, torch.autograd.grad(expected, leaves, do)):
        assert b.abs().max() > 0.01
        assert (a.float() - b.float()).norm() < (1e-5 if device == "cpu" else 1.5e-2) * b.float().norm()
