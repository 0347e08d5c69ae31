# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attnc.lower and attnc.explain."""

import shutil
import xml.etree.ElementTree

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


@pytest.mark.parametrize("target", ["sm_80", "sm_120"])
def test_lower_for_a_target(target):
    lowered = attnc.lower(Q.bfloat16(), Q.bfloat16(), Q.bfloat16(), target=target)
    assert f".target {target}" in lowered["ptx"] and "mma.sync" in lowered["ptx"] and "tile.mma" in lowered["hopper"]


def test_lower_with_a_precision():
    assert ".tf32" not in attnc.lower(Q, Q, Q, target="sm_80")["ptx"]
    for gradient in (False, True):
        lowered = attnc.lower(Q, Q, Q, target="sm_80", precision="tf32x3", gradient=gradient)
        assert "tf32(3)" in lowered["hopper"] and ".tf32" in lowered["ptx"]


def test_explain():
    found = attnc.explain(Q, Q, Q, is_causal=True)
    assert "statements:" in found.dependences and "carried by" in found.dependences
    assert found.dot.startswith("digraph") and "loop order" in found.order
    # Tiles of 64 queries and 128 keys, of which a causal mask leaves 6 of 8 per head.
    assert found.tiles == (12, 8)
    assert "tiles: 12 visited, 8 of them with mask arithmetic" in str(found) and "MB" in found.prediction
    assert any(said.startswith("[Passed] fused") for said in found.remarks)
    assert any("attn-project-masks" in said for said in found.remarks) and found.remarks[0] in str(found)
    assert attnc.explain(Q, Q, Q).tiles == (16, 0)
    assert attnc.explain(Q, Q, Q, run=False).tiles is None
    assert "loop order" in found._repr_html_()
    if shutil.which("dot"):
        assert found.svg().lstrip().startswith("<?xml")
    half = Q.bfloat16()
    wide = torch.randn(1, 2, 64, 320).bfloat16()
    for q, products in ((half, "wgmma"), (wide, "mma"), (Q, "mma")):
        schedules = [said for said in attnc.explain(q, q, q, run=False).remarks if "hopper-select-schedule" in said]
        assert schedules and all(said.endswith(f"Products={products}") for said in schedules)
    assert "GFLOP" in attnc.explain(half, half, half, score_mod=alibi).prediction


def test_pipeline():
    """The order of the inner loop, as docs/hopper.md describes it: the products of the next
    scores and of the last values are under way together, the softmax beside the latter."""
    q = Q.bfloat16()
    found = attnc.explain(q, q, q, run=False)
    load, compute = found.kernels[0].roles
    assert (load.name, load.warpgroups, compute.name) == ("load", 1, "compute")
    assert [step.text for step in load.steps if step.kind == "load"] == ["K, 128x64", "V, 128x64"]
    kinds = [step.kind for step in compute.steps]
    first, second = (i for i, kind in enumerate(kinds) if kind == "product")
    steps = compute.steps
    assert steps[first].text.endswith("= Q x K") and steps[second].text.endswith("= registers x V")
    assert second < steps[first].until < steps[second].until
    between = steps[steps[first].until : steps[second].until]
    assert any(step.kind == "arithmetic" and "exp2" in step.text for step in between)
    assert [step.text for step in steps if step.kind == "release"] == ["K", "V"]
    assert "┬ product" in found.pipeline() and found.pipeline() in str(found)
    drawing = xml.etree.ElementTree.fromstring(found.pipeline_svg())
    boxes = sum(len(role.steps) for kernel in found.kernels for role in kernel.roles)
    assert len(drawing.findall(".//{http://www.w3.org/2000/svg}rect")) == boxes
    assert "<svg" in found._repr_html_()
    assert not attnc.explain(Q.double(), Q.double(), Q.double(), run=False).no_kernels


def test_pipeline_of_warps():
    """f32 has products of warps, whose threads copy."""
    (role,) = attnc.explain(Q, Q, Q, run=False).kernels[0].roles
    texts = [step.text for step in role.steps]
    assert texts[0] == "for copies and for others" and texts[1:3] == ["K", "V"]
    products = [step.text for step in role.steps if step.kind == "product"]
    assert len(products) == 2 and products[0].endswith("= Q x K") and products[1].endswith("x V")


def test_pipeline_of_a_gradient():
    q = Q.bfloat16()
    lowered = attnc.lower(q, q, q, target="cuda", gradient=True)
    products = [sum(step.kind == "product" for step in role.steps) for k in lowered.kernels for role in k.roles]
    # Two versions of five, and one for the maxima of rows of large scores.
    assert sum(products) == 11 and "dQ" in lowered.pipeline()
    assert "<svg" in lowered._repr_html_()


def test_numpy_arrays():
    x = np.zeros((1, 16, 2, 8), "float32")
    assert "attn.forward" in attnc.lower(x, x, x, layout="bshd")["attn"]
    assert attnc.explain(x, x, x, layout="bshd").tiles == (2, 2)


def test_refusals():
    with pytest.raises(attnc.Error, match="expected a target of"):
        attnc.lower(Q, Q, Q, target="tpu")
    with pytest.raises(attnc.Error, match="'sm_80'"):
        attnc.lower(Q, Q, Q, target="sm_70")
    with pytest.raises(attnc.Error, match="expected precision 'ieee', 'tf32x3' or 'tf32', got 'fp8'"):
        attnc.lower(Q, Q, Q, precision="fp8")
    with pytest.raises(attnc.Error, match="expected precision 'ieee' on a CPU"):
        attnc.attention(Q, Q, Q, precision="tf32")
    with pytest.raises(attnc.Error, match="expected precision 'ieee' for bfloat16"):
        attnc.lower(Q.bfloat16(), Q.bfloat16(), Q.bfloat16(), precision="tf32", target="sm_80")
    with pytest.raises(attnc.Error, match="unexpected keyword"):
        attnc.lower(Q, Q, Q, causal=True)
