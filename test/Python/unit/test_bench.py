# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""python -m attnc.bench, briefly."""

import json

import attnc  # noqa: F401
import pytest
import torch
from attnc import bench
from attnc._bench import contenders
from attnc._bench.cases import Case
from attnc._bench.variants import make_captures, mask_of


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
        assert row["error"] < 2e-5 and not row["wrong"] and row["seconds"] > 0 and row["tflops"] > 0, row
    assert {"attnc", "naive", "sdpa flash"} <= {row["contender"] for row in rows}
    assert "softcap" in capsys.readouterr().out


def test_share_of_pairs():
    for variant in bench.VARIANTS:
        case = Case(variant, 16, 400, 2, 2, window=100)
        mask = mask_of(case, make_captures(case, torch.float32, "cpu"))
        index = (torch.arange(n).view(shape) for n, shape in ((2, (2, 1, 1, 1)), (1, 1), (400, (400, 1)), (400, (400,))))
        keep = torch.ones(()) if mask is None else mask(*index).float()
        assert case.pairs() == pytest.approx(keep.expand(2, 1, 400, 400).sum().item(), rel=0.005), variant


def test_wrong_results_are_seen(tmp_path, capsys, monkeypatch):
    broken = lambda case, captures: contenders.Peer(lambda q, k, v: contenders.naive(case, captures).call(q, k, v) * 1.001)
    monkeypatch.setattr(contenders, "attnc_attention", broken)
    arguments = ["--device", "cpu", "--lengths", "40", "--variants", "causal", "--only", "attnc", "--seconds", "0.01"]
    assert bench.main(arguments) == 1
    assert "WRONG: relative error" in capsys.readouterr().out


@pytest.mark.parametrize("backward", [[], ["--backward"]])
def test_jax(tmp_path, backward):
    pytest.importorskip("jax")
    rows = run(tmp_path, "--lengths", "64", "--variants", "full,causal,window,bias", "--only", "JAX XLA", *backward)
    assert len(rows) == 4 and all(row["seconds"] > 0 and not row["wrong"] for row in rows), rows


def test_time_of_the_host(tmp_path, capsys):
    assert bench.main(["--device", "cpu", "--host", "--json", str(tmp_path / "host.json")]) == 0
    assert "attnc, causal: backward" in json.loads((tmp_path / "host.json").read_text())["host_us"]


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
