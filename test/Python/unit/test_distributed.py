# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attnc.distributed: how tokens are dealt, and attention over processes, beside the definition on one."""

import os
import subprocess
import sys
import time

import attnc
import attnc.distributed as ad
import pytest
import torch

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "distributed_worker.py")


def run(ranks, folder, task, *arguments, timeout=600, dies=()):
    """What the ranks print; none may fail but those that die."""
    command = [sys.executable, WORKER]
    start = [
        subprocess.Popen(
            [*command, str(rank), str(ranks), str(folder / "store"), task, *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    end, outputs = time.time() + timeout, []
    try:
        for process in start:
            outputs.append(process.communicate(timeout=max(1.0, end - time.time()))[0])
    finally:
        for process in start:
            process.kill()
    for rank, (process, output) in enumerate(zip(start, outputs)):
        assert rank in dies or process.returncode == 0, f"rank {rank}:\n{output}"
    return "".join(outputs)


@pytest.mark.parametrize(
    "names",
    ["full,causal,window,band,documents", "whole documents,prefix,chunked,strided,by head", "alibi,table,cap,read,bias"],
    ids=["bounds", "masks", "scores"],
)
def test_variants(tmp_path, names):
    assert run(2, tmp_path, "variants", names).count("right in 1 ways") == 5


def test_three_ranks(tmp_path):
    assert run(3, tmp_path, "transports", "table").count("right in 4 ways") == 1


def test_four_ranks(tmp_path):
    assert run(4, tmp_path, "transports", "documents").count("right in 3 ways") == 1


def test_narrow_type(tmp_path):
    assert run(2, tmp_path, "narrow", "causal").count("right in 2 ways") == 1


def test_rest(tmp_path):
    assert "all the rest: right" in run(3, tmp_path, "rest")


def test_absent_rank(tmp_path):
    assert run(3, tmp_path, "absent").count("was told") == 2


def test_killed_rank(tmp_path):
    assert run(3, tmp_path, "killed", dies=(1,)).count("was told") == 2


# How tokens are dealt.


def masks(tokens):
    documents = torch.bucketize(torch.arange(tokens), torch.tensor([300, 2000, 2100, 5000]), right=True)
    return {
        "full": {},
        "causal": {"is_causal": True},
        "window": {"is_causal": True, "window": (1023, -1)},
        "documents": {"is_causal": True, "documents": documents},
        "whole documents": {"documents": documents},
        "prefix": {"mask_mod": lambda b, h, i, j: (j < 1500) | (j <= i)},
        "chunked": {"mask_mod": lambda b, h, i, j: (j <= i) & (i // 2048 == j // 2048)},
        "strided": {"mask_mod": lambda b, h, i, j: (j <= i) & ((i - j < 512) | (j % 2048 < 128))},
    }


def keep_of(mask, tokens):
    i, j = torch.arange(tokens)[:, None], torch.arange(tokens)
    keep = torch.ones(tokens, tokens, dtype=torch.bool)
    left, right = mask.get("window", (-1, -1))
    if mask.get("is_causal"):
        keep &= j <= i
    if left >= 0:
        keep &= i - j <= left
    if right >= 0:
        keep &= j - i <= right
    if "documents" in mask:
        keep &= mask["documents"][:, None] == mask["documents"]
    if "mask_mod" in mask:
        keep &= mask["mask_mod"](0, 0, i, j)
    return keep


@pytest.mark.parametrize("name", masks(1))
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_balance(name, ranks):
    """Every token once, all ranks alike; the counts are those of the mask; the keys that are kept are among those that
    are needed."""
    tokens = 8192
    mask = masks(tokens)[name]
    shards = ad.shard_map(tokens, ranks, **mask)
    assert torch.equal(shards.permutation.sort().values, torch.arange(tokens))
    keep = keep_of(mask, tokens)
    tiles = keep.reshape(tokens // 128, 128, tokens // 128, 128).any(3).any(1).sum(1)
    counts = [int(tiles[p.reshape(-1, 128)[:, 0] // 128].sum()) for p in shards.positions]
    assert list(shards.kept_tiles) == counts
    # Where 1,024 tokens of a rank are 8 rows of tiles, a row more or less is much.
    assert shards.imbalance <= (1.03 if tokens / ranks >= 2048 else 1.12), shards.imbalance
    needs = shards.needs(shards.mask)
    for rank in range(ranks):
        columns = keep[shards.positions[rank]].any(0).reshape(-1, shards.chunk).any(1)
        assert torch.equal(needs[rank], columns)


def test_head_and_tail():
    shards = ad.shard_map(8192, 4, is_causal=True)
    assert shards.chunks == ((0, 7), (1, 6), (2, 5), (3, 4)) and shards.imbalance == 1


@pytest.mark.parametrize("tokens, ranks", [(7, 7), (30, 3), (96, 2), (1000, 4), (1300, 13), (640, 5)])
def test_odd_sizes(tokens, ranks):
    for mask in ({}, {"is_causal": True}, {"window": (3, 9)}, {"mask_mod": lambda b, h, i, j: (i + j) % 3 == 0}):
        shards = ad.shard_map(tokens, ranks, **mask)
        assert torch.equal(shards.permutation.sort().values, torch.arange(tokens))
        keep = keep_of(mask, tokens)
        for rank in range(ranks):
            needed = shards.needs(shards.mask)[rank].repeat_interleave(shards.chunk)
            assert not (keep[shards.positions[rank]].any(0) & ~needed).any()


def test_needs_of_other_masks():
    """What cannot be known is sent: functions that read tensors, objects that may change."""
    shards = ad.shard_map(2048, 4)
    nothing = {"is_causal": False, "window": None, "mask_mod": None, "documents": None}
    of = lambda **mask: shards.needs(ad.Mask.of(**{**nothing, **mask}, tokens=2048))
    assert of().all()
    assert of(is_causal=True).sum() == 10
    assert of(is_causal=True, window=(100, -1)).sum() == 7
    assert of(mask_mod=lambda b, h, i, j: (j <= i)).sum() == 10
    ends = torch.zeros(2048, dtype=torch.int32)
    assert of(mask_mod=lambda b, h, i, j: j < ends[i]).all()
    assert of(mask_mod=lambda b, h, i, j: j < ends[i], is_causal=True).sum() == 10


@pytest.mark.parametrize(
    "message, call",
    [
        ("a multiple of 3 ranks", lambda: ad.shard_map(32, 3)),
        ("that do not fall", lambda: ad.shard_map(4, 2, documents=torch.tensor([0, 1, 0, 1]))),
        ("int32 or int64", lambda: ad.shard_map(4, 2, documents=torch.zeros(4))),
        ("shape (4,)", lambda: ad.shard_map(4, 2, documents=torch.zeros(5, dtype=torch.int32))),
        ("torch.distributed to be initialised", lambda: ad.context_parallel_attention(None, None, None, shards=None)),
        ("a rank from 0 to 1", lambda: ad.shard(torch.zeros(4), ad.shard_map(4, 2), dim=0, rank=2)),
        ("4 tokens", lambda: ad.shard(torch.zeros(5), ad.shard_map(4, 2), dim=0, rank=0)),
        ("2^38 pairs", lambda: ad.shard_map(2**20, 2, mask_mod=lambda b, h, i, j: j <= i)),
    ],
)
def test_errors(message, call):
    with pytest.raises(attnc.Error) as error:
        call()
    assert message in str(error.value)


def test_prediction():
    """A window is passed on to neighbours; what takes longer to come than to compute is not gathered for free."""
    link = ad.Link(bandwidth=2e11, latency=1e-5, flops=6e14)
    shape = 1, 64, 8192, 128
    kv = 1, 8, 8192, 128
    cost = lambda shards, kind, lanes=1: ad.predict(shards, link, shape, kv, 128, ad.Transport(kind, lanes))
    causal = ad.shard_map(32768, 4, is_causal=True)
    assert cost(causal, "ring") < cost(causal, "gather")
    alone = 64 * 4 * 128 * sum(causal.kept_tiles) / 4 * 128**2 / link.flops
    assert alone < cost(causal, "ring") < 1.1 * alone
    window = ad.shard_map(32768, 4, is_causal=True, window=(255, -1), tolerance=2.0)
    assert window.chunks == ((0,), (1,), (2,), (3,))
    assert cost(window, "ring") < cost(ad.shard_map(32768, 4, tolerance=2.0), "ring") / 20
