# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What compiles anew and what does not, by the count; several processes and threads."""

import os
import subprocess
import sys
import threading

import attnc
import pytest
import torch
from support import dense

TABLE = torch.randn(300)


def score(s, b, h, i, j):
    return s + TABLE[i + j]


def run(b=1, hq=2, hkv=2, sq=9, sk=11, d=8, dv=8, dtype=torch.float32, score_mod=score, grad=True):
    q, k, v = (torch.randn(b, h, s, e, dtype=dtype).requires_grad_(grad)
               for h, s, e in ((hq, sq, d), (hkv, sk, d), (hkv, sk, dv)))  # fmt: skip
    o = attnc.attention(q, k, v, score_mod=score_mod, enable_gqa=True)
    expected = dense(q, k, v, score_mod)[0]
    torch.testing.assert_close(o, expected, rtol=2e-2 if dtype == torch.bfloat16 else 1e-4, atol=2e-2)
    if grad:
        torch.autograd.grad(o.sum(), (q, k, v))


def test_what_compiles(compiled):
    global TABLE
    run()
    assert compiled() == 2  # the function and its gradient
    for change in (dict(b=3), dict(sq=50, sk=4), dict(sk=1), dict(hq=4), dict(hq=6, hkv=3)):
        run(**change)
        assert compiled() == 0, change
    TABLE = torch.randn(400)
    run()
    assert compiled() == 0
    # Few queries without gradients have programs for their number.
    for queries, programs in ((1, 1), (16, 1), (1, 0), (17, 0), (40, 0)):
        run(sq=queries, grad=False)
        assert compiled() == programs, queries
    for change in (dict(dtype=torch.bfloat16), dict(d=16), dict(dv=16), dict(score_mod=lambda s, b, h, i, j: s * 2)):
        for repeat in range(2):
            run(**change)
            assert compiled() == (0 if repeat else 2), change


PROGRAM = """
import sys, attnc, torch
device = sys.argv[1]
slope = torch.tensor([0.5, 0.25], device=device)
q = torch.linspace(-1, 1, 2 * 20 * 8).view(1, 2, 20, 8).to(device)
q = (q if device == "cpu" else q.bfloat16()).requires_grad_()
o = attnc.attention(q, q, q, score_mod=lambda s, b, h, i, j: s - slope[h] * (i - j).abs(), is_causal=True)
(g,) = torch.autograd.grad(o.square().sum(), q)
counts = attnc.compile_counts()
print(counts["compiled"], counts["from_disk"], o.sum().item(), g.sum().item())
"""


def start(directory, device="cpu"):
    package = os.path.dirname(os.path.dirname(attnc.__file__))
    environment = os.environ | {"ATTNC_CACHE_DIR": str(directory), "PYTHONPATH": package, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", PROGRAM, device], env=environment, stdout=subprocess.PIPE, text=True)


def test_other_processes_compile_nothing(tmp_path):
    first = start(tmp_path).communicate()[0].split()
    assert first[:2] == ["2", "0"]
    others = [start(tmp_path) for _ in range(8)]
    for process in others:
        found = process.communicate()[0].split()
        assert process.returncode == 0 and found[:2] == ["0", "2"]
        assert found[2:] == first[2:]  # the same code, the same bits


def test_processes_that_start_together(tmp_path):
    """Of each program, one of them compiles it and the others wait."""
    processes = [start(tmp_path) for _ in range(8)]
    found = [process.communicate()[0].split() for process in processes]
    assert len({tuple(x[2:]) for x in found}) == 1 and all(int(x[0]) + int(x[1]) == 2 for x in found)
    assert sum(int(x[0]) for x in found) == 2
    assert not list(tmp_path.glob("*.lock"))


@pytest.mark.cuda
def test_processes_that_start_together_on_a_gpu(tmp_path):
    processes = [start(tmp_path, "cuda") for _ in range(8)]
    found = [process.communicate()[0].split() for process in processes]
    assert len({tuple(x[2:]) for x in found}) == 1 and sum(int(x[0]) for x in found) == 2
    assert start(tmp_path, "cuda").communicate()[0].split()[:2] == ["0", "2"]


def hold(path):
    """A process that has a lock and does not give it back."""
    code = f"import fcntl, time; f = open({str(path)!r}, 'w'); fcntl.flock(f, 2); print(1, flush=True); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    process.stdout.readline()
    return process


def test_locks_of_the_dead(tmp_path):
    """Who waits for a process goes on when it has died; what it left behind is no lock."""
    start(tmp_path).communicate()
    keys = [path.name for path in tmp_path.iterdir()]
    for path in tmp_path.iterdir():
        path.unlink()
    holders = [hold(tmp_path / f"{key}.lock") for key in keys]
    waiting = start(tmp_path)
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.communicate(timeout=10)
    for holder in holders:
        holder.kill()
        holder.wait()
    assert waiting.communicate()[0].split()[:2] == ["2", "0"]
    for path in tmp_path.iterdir():
        path.rename(f"{path}.lock")  # files, but nobody's locks
    assert start(tmp_path).communicate()[0].split()[:2] == ["2", "0"]


def test_a_directory_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    assert start(tmp_path / "file").communicate()[0].split()[:2] == ["2", "0"]


def test_damaged_files_are_made_anew(tmp_path):
    first = start(tmp_path).communicate()[0].split()
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:-7])
    assert start(tmp_path).communicate()[0].split() == first


def stress(device, calls, dtype, tolerance):
    """Different shapes and captures at once, forward and backward, in several threads."""
    failures = []

    def work(seed):
        try:
            generator = torch.Generator().manual_seed(seed)
            stream = torch.cuda.Stream() if device == "cuda" else None
            for call in range(calls):
                n = 16 + 8 * ((seed * 7 + call) % 5)
                q, k, v = (torch.randn(1, 2, n, 64, generator=generator).to(device, dtype) for _ in range(3))
                slope = torch.rand(2, generator=generator).to(device)
                f = lambda s, b, h, i, j: s - slope[h] * (i - j).abs()
                leaves = [x.requires_grad_() for x in (q, k, v)]
                with torch.cuda.stream(stream):
                    got = attnc.attention(*leaves, score_mod=f)
                    expected = dense(*leaves, f)[0]
                    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)
                    do = torch.ones_like(got)
                    for a, b in zip(torch.autograd.grad(got, leaves, do), torch.autograd.grad(expected, leaves, do)):
                        torch.testing.assert_close(a, b, rtol=tolerance * 10, atol=tolerance * (1 if device == "cpu" else 3))
        except BaseException as error:  # to be shown by the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_threads():
    stress("cpu", 40, torch.float32, 1e-4)


@pytest.mark.cuda
def test_threads_and_streams():
    stress("cuda", 100, torch.bfloat16, 3e-2)


def test_number_of_threads():
    before = attnc.get_num_threads()
    try:
        results = []
        q = torch.randn(2, 4, 200, 16)
        for threads in (1, 3, 2):
            attnc.set_num_threads(threads)
            assert attnc.get_num_threads() == threads
            results.append(attnc.attention(q, q, q, is_causal=True))
        assert all(torch.equal(results[0], x) for x in results)
        with pytest.raises(attnc.Error, match="expected a number of threads"):
            attnc.set_num_threads(-1)
    finally:
        attnc.set_num_threads(before)


def test_forked_process():
    """A child has none of its parent's threads, and must not wait for them."""
    q = torch.randn(2, 4, 200, 16)
    expected = attnc.attention(q, q, q)
    child = os.fork()
    if child == 0:
        same = torch.equal(attnc.attention(q, q, q), expected)
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_level_of_optimisation(monkeypatch, compiled, tmp_path):
    """Other code for each, with the same results."""
    monkeypatch.setenv("ATTNC_CACHE_DIR", str(tmp_path))
    q, k, v = (torch.randn(1, 1, 9, 20, generator=torch.Generator().manual_seed(n)) for n in range(3))
    results = []
    for level in "0", "1", "3":
        monkeypatch.setenv("ATTNC_OPT_LEVEL", level)
        # Other functions, for a variant keeps its code.
        results.append(attnc.attention(q, k, v, mask_mod=lambda b, h, i, j, level=int(level): i + level >= j + level))
        assert compiled() == 1
    assert torch.allclose(results[0], results[1], atol=1e-6) and torch.allclose(results[0], results[2], atol=1e-6)
    monkeypatch.setenv("ATTNC_OPT_LEVEL", "four")
    with pytest.raises(attnc.Error, match="ATTNC_OPT_LEVEL: expected LLVM's level of optimisation for the CPU, 0 to 3, got 'four'"):
        attnc.attention(q, k, v, mask_mod=lambda b, h, i, j: i > j + 1)
