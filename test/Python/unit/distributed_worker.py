# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One rank of test_distributed.py: `distributed_worker.py RANK RANKS FILE TASK`."""

import datetime
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "python"))

import attnc
import attnc.distributed as ad
import torch
import torch.distributed as dist
from support import Case

EACH = 48  # tokens of a rank


class Spread(torch.autograd.Function):
    """A rank's tokens of a tensor that all ranks have; all get the gradient of all."""

    @staticmethod
    def forward(ctx, x, shards):
        ctx.shards = shards
        return ad.shard(x, shards, dim=2)

    @staticmethod
    def backward(ctx, gradient):
        return ad.unshard(gradient, ctx.shards, dim=2), None


class Join(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shards):
        ctx.shards = shards
        return ad.unshard(x.detach(), shards, dim=2)

    @staticmethod
    def backward(ctx, gradient):
        return ad.shard(gradient, ctx.shards, dim=2), None


def attend_with(shards, **keywords):
    def attend(q, k, v, score_mod, mask_mod):
        parts = [Spread.apply(x, shards) for x in (q, k, v)]
        mask = {} if mask_mod is None else {"mask_mod": mask_mod}
        found = ad.context_parallel_attention(
            *parts, shards=shards, score_mod=score_mod, enable_gqa=True, return_lse=True, timeout=60, **mask, **keywords
        )
        return tuple(Join.apply(x, shards) for x in found)

    return attend


def captured(name, *shape, low=None):
    generator = torch.Generator().manual_seed(5)
    if low is not None:
        return {name: torch.randint(*low, shape, generator=generator, dtype=torch.int32)}
    return {name: torch.randn(*shape, generator=generator, dtype=torch.float64).float()}


def variants(tokens, heads):
    """By name: keywords of a Case, those of the map, and what the mask is for the definition."""
    documents = torch.bucketize(torch.arange(tokens), torch.tensor([7, tokens // 2]), right=True)
    causal = lambda b, h, i, j: j <= i
    window = lambda b, h, i, j: (j <= i) & (i - j <= 20)
    band = lambda b, h, i, j: (j - i <= 5) & (i - j <= 9)
    ours = lambda b, h, i, j: (j <= i) & (documents[i] == documents[j])
    whole = lambda b, h, i, j: documents[i] == documents[j]
    prefix = lambda b, h, i, j: (j < 30) | (j <= i)
    chunked = lambda b, h, i, j: (j <= i) & (i // 40 == j // 40)
    strided = lambda b, h, i, j: (j <= i) & ((i - j < 8) | (j % 16 == 0))
    by_head = lambda b, h, i, j: (j <= i) | (h == 1)
    alibi = lambda c: (lambda s, b, h, i, j: s + c["slope"][h] * (j - i), None)
    table = lambda c: (lambda s, b, h, i, j: s + c["table"][h, torch.clamp(i - j, 0, 15)], None)
    cap = lambda c: (lambda s, b, h, i, j: 3 * torch.tanh(s / 3), None)
    read = lambda c: (None, lambda b, h, i, j: (c["group"][i] == c["group"][j]) | (j <= i // 2))
    bias = lambda c: (lambda s, b, h, i, j: s + c["bias"][b, h, i, j], None)
    slope = {"slope": captured("slope", heads)["slope"].abs() / 20}
    return {
        "full": ({}, {}, None),
        "causal": ({}, {"is_causal": True}, causal),
        "window": ({}, {"is_causal": True, "window": (20, -1)}, window),
        "band": ({}, {"window": (9, 5)}, band),
        "documents": ({}, {"is_causal": True, "documents": documents}, ours),
        "whole documents": ({}, {"documents": documents}, whole),
        "prefix": ({}, {"mask_mod": prefix}, prefix),
        "chunked": ({}, {"mask_mod": chunked}, chunked),
        "strided": ({}, {"mask_mod": strided}, strided),
        "by head": ({}, {"mask_mod": by_head, "heads": heads}, by_head),
        "alibi": ({"functions": alibi, "captures": slope}, {"is_causal": True}, causal),
        "table": ({"functions": table, "captures": captured("table", heads, 16)}, {"documents": documents}, whole),
        "cap": ({"functions": cap}, {"is_causal": True}, causal),
        "read": ({"functions": read, "captures": captured("group", tokens, low=(0, 4))}, {}, None),
        "bias": ({"functions": bias, "captures": captured("bias", 2, heads, tokens, tokens)}, {}, None),
    }


def compare(names, ways, dtype=torch.float32, gradients=True, wide_values=False):
    ranks = dist.get_world_size()
    tokens, heads = EACH * ranks, 2 * ranks
    for name in names.split(","):
        case, mask, meant = variants(tokens, heads)[name]
        shape = 2, heads, ranks, tokens, tokens, 16, 24 if wide_values else 16
        shards = ad.shard_map(tokens, ranks, **mask)
        for way in ways:
            Case(shape=shape, dtype=dtype, **case).compare(attend_with(shards, **way), mask=meant, gradients=gradients)
        if dist.get_rank() == 0:
            print(f"{name}: right in {len(ways)} ways", flush=True)


RING, GATHER, HEADS = ({"transport": kind} for kind in ("ring", "gather", "heads"))


# The others' gradients differ from these in their bounds alone; ATTN_TESTS=all compares them, too.
TRAINED = {"causal", "documents", "prefix", "alibi", "table"}


def task_variants(names):
    for name in names.split(","):
        compare(name, [RING], gradients=name in TRAINED or os.environ.get("ATTN_TESTS") == "all")


def task_transports(names):
    ways = [RING, GATHER, HEADS, {}]
    if dist.get_world_size() == 4:
        ways = [RING, {"transport": "ring", "lanes": 2}, {"transport": "gather", "lanes": 2}]
    compare(names, ways, wide_values=True)


def task_narrow(names):
    compare(names, [RING, GATHER], dtype=torch.bfloat16)


def inputs(tokens=None, heads=4, shards=None, **kind):
    ranks = dist.get_world_size()
    tokens = tokens or EACH * ranks
    shards = shards or ad.shard_map(tokens, ranks, is_causal=True)
    generator = torch.Generator().manual_seed(3)
    full = [torch.randn(1, heads, tokens, 16, generator=generator, **kind) for _ in range(3)]
    return shards, full, [ad.shard(x, shards, dim=2).requires_grad_() for x in full]


def task_rest():
    """What PyTorch's own features see; another mask than the map's; determinism; errors that all ranks get."""
    from torch.utils.checkpoint import checkpoint

    rank, ranks = dist.get_rank(), dist.get_world_size()
    shards, full, parts = inputs()
    attend = lambda *x, **k: ad.context_parallel_attention(*x, shards=shards, timeout=30, **k)
    o = attend(*parts, transport="ring")
    whole = attnc.attention(*full, is_causal=True)
    torch.testing.assert_close(ad.unshard(o.detach(), shards, dim=2), whole)
    gradients = torch.autograd.grad(o.square().sum(), parts)
    # The same bits again; through a checkpoint; compiled, which breaks the graph; in layouts of other strides.
    again = torch.autograd.grad(attend(*parts, transport="ring").square().sum(), parts)
    assert all(map(torch.equal, gradients, again))
    o = checkpoint(lambda *x: attend(*x, transport="ring"), *parts, use_reentrant=False)
    assert all(map(torch.equal, gradients, torch.autograd.grad(o.square().sum(), parts)))
    o = torch.compile(lambda *x: attend(*x, transport="ring") * 1, backend="eager")(*parts)
    assert all(map(torch.equal, gradients, torch.autograd.grad(o.square().sum(), parts)))
    strided = [x.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for x in parts]
    assert all(map(torch.equal, gradients, torch.autograd.grad(attend(*strided, transport="ring").square().sum(), strided)))
    # Another mask than the map was made for.
    o = attend(*parts, is_causal=False, transport="ring")
    torch.testing.assert_close(ad.unshard(o.detach(), shards, dim=2), attnc.attention(*full))
    o = attend(*parts, mask_mod=lambda b, h, i, j: (j > i) & (j < 20), transport="ring")  # rows without keys
    whole = attnc.attention(*full, mask_mod=lambda b, h, i, j: (j > i) & (j < 20))
    torch.testing.assert_close(ad.unshard(o.detach(), shards, dim=2), whole)
    assert not torch.autograd.grad(o.sum(), parts)[0].isnan().any()
    distributed_tensors(shards, parts, gradients)
    errors(shards, parts, attend, rank, ranks)
    if rank == 0:
        print("all the rest: right", flush=True)


def distributed_tensors(shards, parts, gradients):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    leaves = [x.detach().requires_grad_() for x in parts]
    q, k, v = (DTensor.from_local(x, mesh, (Shard(2),)) for x in leaves)
    o = ad.context_parallel_attention(q, k, v, shards=shards, transport="ring")
    assert isinstance(o, DTensor) and o.placements == (Shard(2),) and o.shape[2] == shards.tokens
    assert all(map(torch.equal, gradients, torch.autograd.grad(o.to_local().square().sum(), leaves)))


def expect(text, call):
    try:
        call()
    except attnc.Error as error:
        assert text in str(error), str(error)
        return
    raise AssertionError(f"no error with {text!r}")


def errors(shards, parts, attend, rank, ranks):
    """Every rank gets them, and goes on."""
    q, k, v = (x.detach() for x in parts)
    last = ranks - 1
    short = [x[:, :, :-1] if rank == last else x for x in (q, k, v)]
    named = "(1, 4, 47, 16)"
    expect(named if rank == last else f"rank {last} failed: ", lambda: attend(*short))
    expect("expected the same call on all ranks", lambda: attend(q, k, v, scale=0.5 if rank else 0.25))
    expect("shards", lambda: attend(q, k, v, transport="ring" if rank else "gather"))
    bad = (lambda s, b, h, i, j: undefined) if rank == 0 else (lambda s, b, h, i, j: s)  # noqa: F821
    expect("undefined" if rank == 0 else "rank 0 failed: ", lambda: attend(q, k, v, score_mod=bad))
    large = lambda s, b, h, i, j: s + (1e6 if rank == 0 else 1.0) * 1.0
    o = attend(*parts, score_mod=large, transport="ring")
    expect("log-sum-exp" if rank == 0 else "rank 0 failed: ", lambda: torch.autograd.grad(o.sum(), parts))
    if ranks > 2:
        few = dist.new_group([0, 1])
        if rank < 2:
            expect(f"a group of {ranks} ranks", lambda: attend(q, k, v, group=few))
        else:
            expect("that this rank is in", lambda: attend(q, k, v, group=few))
    expect("multiples of", lambda: attend(q[:, :1], k[:, :1], v[:, :1], transport="heads"))
    expect("unshard has no gradient", lambda: ad.unshard(parts[0], shards, dim=2))
    expect("no create_graph", lambda: torch.autograd.grad(attend(*parts).sum(), parts, create_graph=True))


def impatient_call():
    """A call that waits for 3 s, and was made once."""
    shards, _, parts = inputs()
    attend = lambda: ad.context_parallel_attention(*parts, shards=shards, timeout=3, transport="ring")
    attend()
    return attend


def task_absent():
    """A rank that does not come."""
    rank, attend = dist.get_rank(), impatient_call()
    if rank == 1:
        time.sleep(8)
        return
    start = time.time()
    expect("within 3 s no call came from rank 1", attend)
    assert time.time() - start < 6
    print(f"rank {rank} was told", flush=True)


def task_killed():
    """A rank that dies while the others wait for its keys, and in front of the next call."""
    rank, attend = dist.get_rank(), impatient_call()
    if rank == 1:
        from attnc import _peers

        def die(*_):
            os.kill(os.getpid(), signal.SIGKILL)

        _peers.Peers.start = die
    start = time.time()
    expect("rank", attend)
    expect("rank", attend)
    assert time.time() - start < 30
    print(f"rank {rank} was told", flush=True)
    os._exit(0)  # the group cannot be taken down together any more


def main():
    rank, ranks, file, task, *arguments = sys.argv[1:]
    torch.set_num_threads(1)
    attnc.set_num_threads(1)
    store = dist.FileStore(file, int(ranks))
    dist.init_process_group(
        "gloo", store=store, rank=int(rank), world_size=int(ranks), timeout=datetime.timedelta(seconds=60)
    )
    globals()[f"task_{task}"](*arguments)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
