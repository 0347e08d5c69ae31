# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""python -m attnc.bench, briefly."""

import json

import attnc  # noqa: F401
import pytest
from attnc import bench


def run(tmp_path, *arguments):
    path = tmp_path / "out.json"
    common = ["--device", "cpu", "--heads", "2", "--seconds", "0.01", "--json", str(path)]
    assert bench.main([*common, *arguments]) == 0
    with open(path) as file:
        return json.load(file)["rows"]


@pytest.mark.parametrize("backward", [[], ["--backward"]])
def test_sweep(tmp_path, backward, capsys):
    rows = run(tmp_path, "--lengths", "20,70", "--variants", "all", "--dim", "16", *backward)
    assert {row["variant"] for row in rows if row["contender"] == "attnc"} == set(bench.VARIANTS)
    for row in rows:
        assert row["error"] < 2e-5 and row["seconds"] > 0 and row["tflops"] > 0, row
    assert {"attnc", "naive", "sdpa flash"} <= {row["contender"] for row in rows}
    assert "softcap" in capsys.readouterr().out


def test_share_of_pairs():
    for variant in bench.VARIANTS:
        case = bench.make_case(variant, 800, 2, "cpu")
        import torch

        i, j = torch.arange(800)[:, None], torch.arange(800)[None]
        keep = torch.ones(800, 800) if case.mask_mod is None else case.mask_mod(0, 0, i, j).float().expand(800, 800)
        assert case.kept() == pytest.approx(keep.mean().item(), rel=0.02), variant


def test_plots(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    run(tmp_path, "--lengths", "20,40", "--variants", "causal", "--only", "attnc,naive", "--plots", str(tmp_path))
    assert (tmp_path / "causal-time.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("kind", ["roberta", "llama"])
def test_models(tmp_path, kind):
    pytest.importorskip("transformers")
    rows = run(tmp_path, "--model", kind, "--lengths", "24", "--dim", "16", "--backward")
    assert [row["contender"] for row in rows] == ["attnc", "sdpa", "eager"]
    assert all(row["error"] < 1e-4 and row["seconds"] > 0 for row in rows)


@pytest.mark.parametrize(
    "arguments,message",
    [
        (["--variants", "causal,other"], "no variant 'other'"),
        (["--lengths", "a"], "expected numbers"),
        (["--lengths", "0"], "expected positive"),
        (["--only", "nobody"], "no contender 'nobody' here"),
    ],
)
def test_refusals(arguments, message, capsys):
    with pytest.raises(SystemExit):
        bench.main(["--device", "cpu", *arguments])
    assert message in capsys.readouterr().err
