# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attnc.lower and attnc.explain."""

import shutil

import attnc
import numpy as np
import pytest
import torch

Q = torch.randn(1, 2, 256, 64)
SLOPE = torch.tensor([0.5, 0.25])


def alibi(s, b, h, i, j):
    return s - SLOPE[h] * (i - j).abs()


@pytest.mark.parametrize("gradient", [False, True])
def test_lower_for_the_cpu(gradient):
    lowered = attnc.lower(Q, Q, Q, score_mod=alibi, is_causal=True, gradient=gradient)
    assert list(lowered) == ["attn", "nest", "tiles", "llvm"]
    assert ("attn.backward" if gradient else "attn.forward") in lowered["attn"]
    assert ("@attention(" in lowered["attn"]) != gradient
    assert "attn.fold" in lowered["nest"] and (gradient or "linalg.generic" not in lowered["tiles"])
    assert "scf.forall" in lowered["tiles"] and "llvm.func" in lowered["llvm"]
    assert "tiles (" in repr(lowered) and "// ----- nest -----" in str(lowered)
    assert "<details><summary>attn" in lowered._repr_html_()


def test_lower_for_a_gpu():
    q = Q.bfloat16()
    lowered = attnc.lower(q, q, q, score_mod=alibi, target="cuda")
    assert list(lowered) == ["attn", "nest", "hopper", "ptx"]
    assert "hopper." in lowered["hopper"] and "wgmma.mma_async" in lowered["ptx"]
    if shutil.which("ptxas") or shutil.which("ptxas", path="/usr/local/cuda/bin"):
        assert any("registers" in said for said in lowered.resources.values())


def test_explain():
    found = attnc.explain(Q, Q, Q, is_causal=True)
    assert "statements:" in found.dependences and "carried by" in found.dependences
    assert found.dot.startswith("digraph") and "loop order" in found.order
    # Tiles of 64 queries and 128 keys, of which a causal mask leaves 6 of 8 per head.
    assert found.tiles == (12, 8)
    assert "tiles: 12 visited, 8 of them with mask arithmetic" in str(found) and "MB" in found.prediction
    assert attnc.explain(Q, Q, Q).tiles == (16, 0)
    assert attnc.explain(Q, Q, Q, run=False).tiles is None
    assert "loop order" in found._repr_html_()
    if shutil.which("dot"):
        assert found.svg().lstrip().startswith("<?xml")
    half = Q.bfloat16()
    assert "GFLOP" in attnc.explain(half, half, half, score_mod=alibi).prediction


def test_numpy_arrays():
    x = np.zeros((1, 16, 2, 8), "float32")
    assert "attn.forward" in attnc.lower(x, x, x, layout="bshd")["attn"]
    assert attnc.explain(x, x, x, layout="bshd").tiles == (2, 2)


def test_refusals():
    with pytest.raises(attnc.Error, match="expected target"):
        attnc.lower(Q, Q, Q, target="tpu")
    with pytest.raises(attnc.Error, match="unexpected keyword"):
        attnc.lower(Q, Q, Q, causal=True)
