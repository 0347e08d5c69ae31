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
    with torch.device(device):
        if device == "cuda":  # no gradient of tables there
            code = code.replace(", requires_grad=True", "").replace("o.sum().backward()", "")
            for x in (q, k, v):
                x.requires_grad_()
        exec(compile(code, path, "exec"), space)
        mask = MASKS[title] or space["mask_mod"]
        table = space.get("table")
        if table is not None and table.requires_grad:
            found, table.grad = table.grad, None
        expected = dense(q, k, v, space.get("score_mod"), mask)[0]
    tolerance = 2e-5 if device == "cpu" else 2e-2
    torch.testing.assert_close(space["o"], expected, rtol=tolerance, atol=tolerance)
    if device == "cuda":
        do = torch.randn_like(expected)
        for a, b in zip(torch.autograd.grad(space["o"], (q, k, v), do), torch.autograd.grad(expected, (q, k, v), do)):
            assert (a.float() - b.float()).norm() < 1.5e-2 * b.float().norm()
    if table is not None and table.requires_grad:
        expected.sum().backward()
        assert table.grad.abs().max() > 0.01
        torch.testing.assert_close(found, table.grad, rtol=1e-4, atol=1e-4)
