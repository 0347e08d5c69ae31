# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Keys and values in pages: attnc.paged_attention, append_kv and what stands in for flash_attn_with_kvcache, against the
definition. What no sequence uses is poison: rows of pages are NaN, entries of the table are pages of no pool."""

import itertools
import math
import zlib

import attnc
import attnc.flash_attn
import attnc.flashinfer
import attnc.torch
import pytest
import torch
from test_varlen import DEVICES, NO_GPU, close, offsets

NO_PAGE = 2147480000


def pages_of(x, lengths, rows, layout="nhd", spare=3, generator=None):
    """A cache (B, S, H, D) as (pool, table), pages in random order; what is not used is poison."""
    batch, space, heads, d = x.shape
    entries = -(-space // rows)
    count = batch * entries + spare
    order = torch.randperm(count, generator=generator)[: batch * entries].view(batch, entries)
    pool = torch.full((count, rows, heads, d), math.nan, dtype=x.dtype)
    table = torch.full((batch, entries), NO_PAGE, dtype=torch.int32)
    for b, length in enumerate(lengths):
        for j in range(0, length, rows):
            table[b, j // rows] = order[b, j // rows]
            pool[order[b, j // rows], : min(rows, length - j)] = x[b, j : min(j + rows, length)].cpu()
    pool = pool.to(x.device)
    return (pool if layout == "nhd" else pool.transpose(1, 2).contiguous()), table.to(x.device)


def definition(q, k, v, lengths, *, causal=False, window=(-1, -1), score=None, first=None, scale=None, counts=None):
    """(O, LSE) of q (B, S, H, D) over the first `lengths` rows of k and v (B, S, H, D), in the type of the tensors."""
    outputs, sums = [], []
    group = q.shape[2] // k.shape[2]
    for b, length in enumerate(lengths):
        count = q.shape[1] if counts is None else counts[b]
        qs, ks, vs = q[b].transpose(0, 1), *(x[b, :length].transpose(0, 1).repeat_interleave(group, 0) for x in (k, v))
        s = (qs * (scale or 1 / math.sqrt(q.shape[-1]))) @ ks.transpose(-1, -2)
        i, j = torch.arange(q.shape[1], device=q.device)[:, None], torch.arange(length, device=q.device)
        if score is not None:
            s = score(s, b, torch.arange(q.shape[2], device=q.device)[:, None, None], i, j)
        place = i + length - count
        keep = (j >= (0 if first is None else first[b])) & (i < count)
        left, right = window
        if left >= 0:
            keep = keep & (j >= place - left)
        if right >= 0:
            keep = keep & (j <= place + right)
        if causal:
            keep = keep & (j <= place)
        s = s.masked_fill(~keep, -math.inf)
        lse = s.logsumexp(-1)
        p = torch.exp(s - torch.where(lse.isinf(), 0, lse)[..., None]).to(v.dtype)
        outputs.append((p @ vs).transpose(0, 1))
        sums.append(lse)
    return torch.stack(outputs), torch.stack(sums)


def randn(*shape, device, dtype, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


def check(found, dtype, *inputs, **settings):
    wants = [definition(*(x.to(kind) for x in inputs[:3]), *inputs[3:], **settings) for kind in (torch.float64, dtype)]
    for x, want, base in zip(found, *wants):
        close(x, dtype, want, base, 2)


MASKS = {
    "full": {}, "causal": dict(is_causal=True), "window": dict(window=(30, 2)), "left": dict(window=(17, -1), is_causal=True),
}  # fmt: skip


SHAPES = list(itertools.product([1, 4, 16, 64, 256, 7], [1, 5, 70], MASKS))


@pytest.mark.parametrize(
    "device, rows, queries, mask",
    [("cpu", *shape) for shape in SHAPES[::3]]
    + [pytest.param("cuda", *shape, marks=[pytest.mark.cuda, NO_GPU]) for shape in SHAPES],
)
def test_pages(device, rows, queries, mask):
    lengths = [0, 1, 130, 300, 63]
    for dtype, heads, d, layout in (
        (torch.bfloat16, (4, 2), (64, 64), "hnd"), (torch.float32, (2, 2), (40, 24), "nhd"),
    ):  # fmt: skip
        q = randn(5, queries, heads[0], d[0], device=device, dtype=dtype)
        k, v = (randn(5, 310, heads[1], n, device=device, dtype=dtype, seed=n) for n in d)
        k_pool, table = pages_of(k, lengths, rows, layout, generator=torch.Generator().manual_seed(1))
        v_pool, _ = pages_of(v, lengths, rows, layout, generator=torch.Generator().manual_seed(1))
        used = torch.tensor(lengths, device=device, dtype=torch.int32)
        found = attnc.paged_attention(
            q, k_pool, v_pool, table, used, enable_gqa=True, return_lse=True, layout="bshd", pool_layout=layout, **MASKS[mask]
        )
        settings = dict(MASKS[mask])
        check(found, dtype, q, k, v, lengths, causal=settings.pop("is_causal", False), **settings)


@pytest.mark.parametrize("device", DEVICES)
def test_packed_queries(device):
    """Prefill and decode in one call; a sequence without queries, one without keys."""
    counts, lengths = [1, 40, 0, 1, 7, 20], [100, 40, 30, 0, 64, 33]
    q = randn(sum(counts) + 3, 4, 32, device=device, dtype=torch.float64)
    k, v = (randn(6, 100, 2, 32, device=device, dtype=torch.float64, seed=n) for n in (1, 2))
    pools = [pages_of(x, lengths, 16, generator=torch.Generator().manual_seed(1))[0] for x in (k, v)]
    table = pages_of(k, lengths, 16, generator=torch.Generator().manual_seed(1))[1]
    cu = offsets(counts, device)
    o, lse = attnc.paged_attention(
        q, *pools, table, torch.tensor(lengths, device=device), cu_seqlens_q=cu, max_seqlen_q=40, is_causal=True,
        enable_gqa=True, return_lse=True,
    )  # fmt: skip
    assert o.shape == q.shape and lse.shape == (4, len(q))
    start = 0
    for b, count in enumerate(counts):
        own = q[None, start : start + count]
        want, sums = definition(own, k[b : b + 1], v[b : b + 1], lengths[b : b + 1], causal=True)
        assert torch.allclose(o[start : start + count], want[0], rtol=0, atol=1e-12)
        assert torch.allclose(lse[:, start : start + count], sums[0], rtol=0, atol=1e-12)
        start += count
    assert not o[start:].any() and bool((lse[:, start:] == -math.inf).all())
    flash = attnc.flash_attn.flash_attn_varlen_func(
        q, *pools, cu, offsets(lengths, device), 40, 100, causal=True, block_table=table
    )
    assert torch.equal(flash[:start], o[:start])
    used = torch.tensor(lengths, device=device)
    other = attnc.torch.varlen_attn(
        q, *pools, cu, None, 40, 100, window_size=(-1, 0), enable_gqa=True, seqused_k=used, block_table=table
    )
    assert torch.equal(other, o)


@pytest.mark.parametrize("device", DEVICES)
def test_functions(device):
    """Positions in the sequence, captures, sinks of a window, a tree of drafts in one pass."""
    lengths = [90, 33, 7]
    q, k, v = (randn(3, n, 2, 32, device=device, dtype=torch.float32, seed=m) for n, m in ((6, 1), (96, 2), (96, 3)))
    pools = [pages_of(x, lengths, 8, generator=torch.Generator().manual_seed(1))[0] for x in (k, v)]
    table = pages_of(k, lengths, 8, generator=torch.Generator().manual_seed(1))[1]
    used = torch.tensor(lengths, device=device, dtype=torch.int32)
    slopes = torch.tensor([0.1, 0.3], device=device)
    tree = torch.tensor([[n == m or (n in (2, 3) and m == 0) for m in range(6)] for n in range(6)], device=device)
    first = used - 6

    def mask(b, h, i, j):
        draft = j - first[b]
        return (draft < 0) | tree[i, draft.clamp(0, 5)]

    o = attnc.paged_attention(
        q, *pools, table, used, layout="bshd", mask_mod=mask, score_mod=lambda s, b, h, i, j: s + slopes[h] * (j - i)
    )
    for b, length in enumerate(lengths):
        s = torch.einsum("ihd,jhd->hij", q[b].double(), k[b, :length].double()) / math.sqrt(32)
        i, j = torch.arange(6, device=device)[:, None], torch.arange(length, device=device)
        s = s + slopes.double()[:, None, None] * (j - i)
        draft = j - (length - 6)
        keep = (draft < 0) | tree[i, draft.clamp(0, 5)]
        want = torch.einsum("hij,jhd->ihd", s.masked_fill(~keep, -math.inf).softmax(-1), v[b, :length].double())
        assert (o[b] - want).abs().max() < 2e-6


def rotated(x, cos, sin, start, interleaved, moves=True):
    """Rotary embedding by complex numbers, in float64."""
    out, r = x.double().clone(), cos.shape[1]
    for b, first in enumerate(start):
        for i in range(x.shape[1]):
            place = int(first) + (i if moves else 0)
            turn = torch.complex(cos[place].double(), sin[place].double())
            a, c = (x[b, i, :, : 2 * r].double()[:, n::2] if interleaved else x[b, i, :, n * r : (n + 1) * r].double() for n in (0, 1))
            z = torch.complex(a, c) * turn
            if interleaved:
                out[b, i, :, 0 : 2 * r : 2], out[b, i, :, 1 : 2 * r : 2] = z.real, z.imag
            else:
                out[b, i, :, :r], out[b, i, :, r : 2 * r] = z.real, z.imag
    return out.to(x.dtype)


CASES = list(
    itertools.product(
        [(1, 128), (1, 339), (3, 1024), (64, 800), (64, 256), (3, 799), (64, 2048), (16, 2000), (128, 128)],  # queries, space
        [None, 1, 4, 16, 64, 128, 256],  # rows of a page
        ["full", "causal", "local"],
        [0.0, 0.5, 1.0],  # columns that are rotated
        [False, True],  # interleaved
        [True, False],  # as many new rows as queries, or fewer
        ["mha", "mqa", "gqa"],
        [True, False],  # new rows
        [False, True],  # padding in front
        [False, True],  # rows of the cache by number
        [64, 128, 59],
    )
)


def kvcache_cases(device, count):
    """FlashAttention's own grid, of which few cases run."""
    generator = torch.Generator().manual_seed(7)
    found = []
    while len(found) < count:
        case = CASES[int(torch.randint(len(CASES), (1,), generator=generator))]
        (queries, space), rows, _, fraction, _, _, _, new, pad, by_number, _ = case
        allowed = not (queries > space and new) and (new or not fraction) and not (rows and (by_number or pad))
        if allowed and (device == "cuda" or queries * space <= 60000):
            found.append(case)
    return found


@pytest.mark.parametrize(
    "device, case",
    [("cpu", case) for case in kvcache_cases("cpu", 16)]
    + [pytest.param("cuda", case, marks=[pytest.mark.cuda, NO_GPU]) for case in kvcache_cases("cuda", 150)],
)
def test_kvcache(device, case):
    (queries, space), rows, mask, fraction, interleaved, all_new, kind, new, pad, by_number, d = case
    dtype, heads, batch = torch.bfloat16 if d != 59 else torch.float16, 6, 2
    kv_heads = {"mha": 6, "mqa": 1, "gqa": 3}[kind]
    generator = torch.Generator().manual_seed(zlib.crc32(repr(case).encode()))
    integer = lambda low, high: int(torch.randint(low, high, (1,), generator=generator))
    sequences = 4 if by_number else batch
    q = randn(batch, queries, heads, d, device=device, dtype=dtype)
    fresh = queries if all_new else integer(1, queries + 1)
    k_new, v_new = (randn(batch, fresh, kv_heads, d, device=device, dtype=dtype, seed=n) for n in (1, 2))
    k, v = (randn(sequences, space, kv_heads, d, device=device, dtype=dtype, seed=n) for n in (3, 4))
    before = [integer(0, space - queries + 1) if new else integer(1, space + 1) for _ in range(batch)]
    after = [n + fresh * new for n in before]
    numbers = torch.randperm(sequences, generator=generator)[:batch] if by_number else torch.arange(batch)
    padding = [integer(0, n) if n else 0 for n in before] if pad else [0] * batch
    window = (integer(0, space), integer(0, space)) if mask == "local" else (-1, -1)
    r = math.floor(fraction * d / 16) * 8
    angle = torch.rand(space + queries, r, generator=generator) * 2 * math.pi
    cos, sin = ((f(angle)).to(device, dtype) for f in (torch.cos, torch.sin))
    turns = bool(r) and new
    # What there is behind the end is not read, and may be NaN.
    k_own, v_own = (x[numbers.to(device)].clone() for x in (k, v))
    if rows:
        room = [n + fresh * new for n in before]
        k_pool, table = pages_of(k_own, room, rows, generator=torch.Generator().manual_seed(1))
        v_pool, _ = pages_of(v_own, room, rows, generator=torch.Generator().manual_seed(1))
        caches, places = (k_pool, v_pool), dict(block_table=table)
    else:
        caches = k.clone(), v.clone()
        for x in caches:
            for b in range(batch):
                x[int(numbers[b]), before[b] :] = math.nan
        places = dict(cache_batch_idx=numbers.to(device, torch.int32) if by_number else None)
    if pad:
        places["cache_leftpad"] = torch.tensor(padding, device=device, dtype=torch.int32)
    out, lse = attnc.flash_attn.flash_attn_with_kvcache(
        q, *caches, *((k_new, v_new) if new else ()), rotary_cos=cos if turns else None, rotary_sin=sin if turns else None,
        cache_seqlens=torch.tensor(before, device=device, dtype=torch.int32), causal=mask == "causal", window_size=window,
        rotary_interleaved=interleaved, num_splits=integer(0, 2), return_softmax_lse=True, **places,
    )  # fmt: skip
    q_turned, k_turned = q, k_new
    if turns:
        q_turned = rotated(q, cos, sin, before, interleaved, moves=mask != "full")
        k_turned = rotated(k_new, cos, sin, before, interleaved)
    for b in range(batch):
        if new:
            k_own[b, before[b] : after[b]], v_own[b, before[b] : after[b]] = k_turned[b], v_new[b]
    if new:
        for cache, own in ((caches[0], k_own), (caches[1], v_own)):
            for b in range(batch):
                if rows:
                    whole = cache[table[b, : -(-after[b] // rows)].long()].flatten(0, 1)
                else:
                    whole = cache[int(numbers[b])]
                assert torch.allclose(whole[: after[b]].float(), own[b, : after[b]].float(), rtol=1e-2, atol=1e-3)
                # The score of a rounding of the rotation is no error of attention.
                own[b, : after[b]] = whole[: after[b]]
    settings = dict(causal=mask == "causal", window=window, first=padding)
    check((out, lse), dtype, q_turned, k_own, v_own, after, **settings)


@pytest.mark.parametrize("device", DEVICES)
def test_alibi_and_softcap(device):
    lengths = [50, 20]
    q, k = (randn(2, n, h, 32, device=device, dtype=torch.float32) for n, h in ((3, 4), (64, 2)))
    slopes = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.2, 0.1, 0.4, 0.3]], device=device)

    def score(s, b, h, i, j):
        return 5 * torch.tanh(s / 5) - slopes.double()[b][h] * (i + lengths[b] - 3 - j).abs()

    o = attnc.flash_attn.flash_attn_with_kvcache(
        q, k, k, cache_seqlens=torch.tensor(lengths, device=device, dtype=torch.int32), softcap=5.0, alibi_slopes=slopes,
        softmax_scale=0.3, causal=True,
    )  # fmt: skip
    want, _ = definition(*(x.double() for x in (q, k, k)), lengths, causal=True, score=score, scale=0.3)
    assert (o - want).abs().max() < 2e-6
    o = attnc.flash_attn.flash_attn_with_kvcache(q, k[:, :40], k[:, :40], cache_seqlens=33)
    want, _ = definition(*(x.double() for x in (q, k, k)), [33, 33])
    assert (o - want).abs().max() < 2e-6


@pytest.mark.parametrize("device", DEVICES)
def test_flashinfer(device):
    """Drafts, windows, sinks, scales in tensors, one tensor for both caches; what is written in place."""
    lengths, count = [50, 7, 33], 3
    q = randn(3, count, 4, 32, device=device, dtype=torch.float32)
    k, v = (randn(3, 64, 2, 32, device=device, dtype=torch.float32, seed=n) for n in (1, 2))
    pools = [pages_of(x, lengths, 16, "hnd", generator=torch.Generator().manual_seed(1))[0] for x in (k, v)]
    table = pages_of(k, lengths, 16, generator=torch.Generator().manual_seed(1))[1]
    decode = attnc.flashinfer.trtllm_batch_decode_with_kv_cache
    used = torch.tensor(lengths, device=device, dtype=torch.int32)
    sinks = torch.tensor([0.5, -1.0, 2.0, 0.0], device=device)
    out, lse = torch.empty(9, 4, 32, device=device), torch.empty(9, 4, device=device)
    o, found = decode(
        q.flatten(0, 1), torch.stack(pools, 1), None, table, used, 64, bmm1_scale=torch.tensor([0.25], device=device),
        bmm2_scale=2.0, window_left=20, out=out, sinks=[sinks], q_len_per_req=count, lse=lse, return_lse=True,
    )  # fmt: skip
    assert o is out and found is lse
    want, sums = definition(*(x.double() for x in (q, k, v)), lengths, causal=True, window=(20, 0), scale=0.25)
    total = torch.logaddexp(sums, sinks.double()[None, :, None])
    want = 2 * want * torch.exp(sums - total).transpose(1, 2)[..., None]
    assert (o - want.flatten(0, 1)).abs().max() < 4e-6
    assert (found * math.log(2) - total.transpose(1, 2).flatten(0, 1)).abs().max() < 4e-6
    cu = torch.tensor([0, 3, 6, 9], device=device, dtype=torch.int32)
    same = decode(
        q.flatten(0, 1), (pools[0].transpose(1, 2), pools[1].transpose(1, 2)), None, table, used, 64, bmm1_scale=0.25,
        bmm2_scale=2.0, window_left=20, sinks=sinks, kv_layout="NHD", max_q_len=3, cum_seq_lens_q=cu,
    )  # fmt: skip
    assert (same - o).abs().max() < 4e-6
    for keywords, message in (
        (dict(mask=sinks), "mask"), (dict(backend="xqa"), "backend"), (dict(o_scale=2.0), "o_scale"),
        (dict(max_q_len=3), "max_q_len"), (dict(kv_layout="hnd"), "kv_layout"), (dict(q_len_per_req=2), "query"),
        (dict(enable_block_sparse_attention=True), "enable_block_sparse_attention"),
    ):  # fmt: skip
        with pytest.raises(attnc.Error, match=message):
            decode(q.flatten(0, 1), tuple(pools), None, table, used, 64, **{"q_len_per_req": count, **keywords})


@pytest.mark.parametrize("device", DEVICES)
def test_compiled(device):
    k = randn(2, 64, 2, 32, device=device, dtype=torch.float32)
    pool, table = pages_of(k, [64, 64], 16, generator=torch.Generator().manual_seed(1))

    def step(q, new, pool, used):
        attnc.append_kv(new, new, pool, pool, table, used, layout="bshd")
        return attnc.paged_attention(q, pool, pool, table, used + 1, is_causal=True, enable_gqa=True, layout="bshd")

    compiled = torch.compile(step, fullgraph=True)
    pools = pool.clone(), pool.clone()
    for n in (5, 30):
        q, new = (randn(2, 1, h, 32, device=device, dtype=torch.float32, seed=n) for h in (4, 2))
        used = torch.tensor([n, n + 20], device=device, dtype=torch.int32)
        want, found = step(q, new, pools[0], used), compiled(q, new, pools[1], used)
        assert torch.allclose(want, found, atol=1e-6) and torch.equal(*(x.nan_to_num() for x in pools))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("window", [None, (90, 0)])
def test_batch_invariant(device, dtype, window):
    """Bits of a sequence in any batch, of a prompt in pieces, of tokens one by one, of packed queries."""
    space = 200
    q = randn(5, space, 8, 64, device=device, dtype=dtype)
    k, v = (randn(5, space, 2, 64, device=device, dtype=dtype, seed=n) for n in (1, 2))
    pools = [pages_of(x, [space] * 5, 16, generator=torch.Generator().manual_seed(1))[0] for x in (k, v)]
    table = pages_of(k, [space] * 5, 16, generator=torch.Generator().manual_seed(1))[1]

    def attend(rows, first, last, **keywords):
        used = torch.full((len(rows),), last, device=device, dtype=torch.int32)
        return attnc.paged_attention(
            keywords.pop("query", q[rows, first:last]), *pools, table[rows], used, is_causal=True, window=window, enable_gqa=True,
            layout="bshd", batch_invariant=True, **keywords,
        )  # fmt: skip

    whole = attend(range(5), 0, space)
    generator = torch.Generator().manual_seed(0)
    for _ in range(12 if device == "cpu" else 100):
        rows = torch.randperm(5, generator=generator)[: int(torch.randint(1, 6, (1,), generator=generator))].tolist()
        first = int(torch.randint(space, (1,), generator=generator))
        last = min(space, first + [1, 1, 4, 70][int(torch.randint(4, (1,), generator=generator))])
        assert torch.equal(attend(rows, first, last), whole[rows, first:last])
    tokens = torch.cat([q[0, 100:200], q[1, 199:200], q[2, 150:200]])
    cu = offsets([100, 1, 50], device)
    packed = attend([0, 1, 2], 0, space, query=tokens, cu_seqlens_q=cu, max_seqlen_q=100)
    assert torch.equal(packed, torch.cat([whole[0, 100:200], whole[1, 199:200], whole[2, 150:200]]))


@pytest.mark.cuda
@NO_GPU
def test_cuda_graph():
    """Captured once, replayed with other lengths and tables; nothing waits for the device."""
    q = randn(6, 1, 8, 64, device="cuda", dtype=torch.bfloat16)
    k, v = (randn(6, 2048, 2, 64, device="cuda", dtype=torch.bfloat16, seed=n) for n in (1, 2))
    pools = [pages_of(x, [2048] * 6, 16, generator=torch.Generator().manual_seed(1))[0] for x in (k, v)]
    whole = pages_of(k, [2048] * 6, 16, generator=torch.Generator().manual_seed(1))[1]
    used, table = torch.full((6,), 2048, dtype=torch.int32, device="cuda"), whole.clone()
    run = lambda: attnc.paged_attention(q, *pools, table, used, is_causal=True, enable_gqa=True, layout="bshd")
    run()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        run()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = run()
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        lengths = torch.randint(2049, (6,), generator=generator)
        used.copy_(lengths)
        table.copy_(torch.where(torch.arange(128, device="cuda") * 16 < used[:, None], whole, NO_PAGE))
        graph.replay()
        assert torch.equal(o, run())
        want, _ = definition(*(x.double() for x in (q, k, v)), lengths.tolist())
        assert (o - want).abs().max() < 2e-2


@pytest.mark.cuda
@NO_GPU
def test_large_pool():
    """Pages whose elements have numbers beyond 2^31."""
    rows, heads, d = 64, 8, 128
    count = 2**31 // (rows * heads * d) + 100
    pool = torch.empty(count, rows, heads, d, device="cuda", dtype=torch.bfloat16)
    table = torch.tensor([[count - 1, 3], [count - 2, NO_PAGE]], device="cuda", dtype=torch.int32)
    lengths = [100, 64]
    k = randn(2, 128, heads, d, device="cuda", dtype=torch.bfloat16)
    for b, entry, page in ((0, 0, count - 1), (0, 1, 3), (1, 0, count - 2)):
        pool[page] = k[b, entry * rows : (entry + 1) * rows]
    q = randn(2, 1, 16, d, device="cuda", dtype=torch.bfloat16, seed=1)
    used = torch.tensor(lengths, device="cuda", dtype=torch.int32)
    found = attnc.paged_attention(q, pool, pool, table, used, enable_gqa=True, return_lse=True, layout="bshd")
    check(found, torch.bfloat16, q, k, k, lengths)


def test_what_is_refused():
    q, pool = torch.randn(2, 4, 1, 16), torch.randn(5, 8, 2, 16)
    table, used = torch.zeros(2, 3, dtype=torch.int32), torch.tensor([3, 20])
    good = dict(query=q, key_pool=pool, value_pool=pool, block_table=table, seqused_k=used, enable_gqa=True)
    assert attnc.paged_attention(**good).shape == q.shape
    bad_page = table.clone()
    bad_page[1, 2] = 5
    for change, message in (
        (dict(query=q[0]), "query of 4 dimensions"),
        (dict(query=q.numpy()), "query to be a tensor"),
        (dict(key_pool=pool[0]), r"key_pool of shape \(pages, rows, heads, d\)"),
        (dict(value_pool=pool[:4]), "the same pages"),
        (dict(block_table=table.long()), "block_table to be int32"),
        (dict(block_table=table[:1]), "block_table to be int32"),
        (dict(block_table=table.tolist()), "block_table to be a tensor"),
        (dict(block_table=bad_page), r"got 5 in block_table\[1, 2\]"),
        (dict(seqused_k=torch.tensor([3, 25])), "lengths of at most 24"),
        (dict(seqused_k=used.float()), "seqused_k to be int32 or int64"),
        (dict(enable_gqa=False), "enable_gqa"),
        (dict(query=q.clone().requires_grad_()), "no gradients"),
        (dict(query=q, pool_layout="dhn"), "pool_layout"),
        (dict(query=q, layout="hbsd"), "layout"),
        (dict(query=q, num_splits=-1), "num_splits"),
        (dict(query=q, num_splits=2, batch_invariant=True), "num_splits of 0 or 1"),
        (dict(query=q, max_seqlen_q=3), "max_seqlen_q"),
        (dict(query=q[0], cu_seqlens_q=torch.tensor([0, 1, 4])), "max_seqlen_q"),
    ):
        with pytest.raises(attnc.Error, match=message):
            attnc.paged_attention(**{**good, **change})
    k = torch.randn(2, 2, 6, 16)
    with pytest.raises(attnc.Error, match="lengths of at most 24"):
        attnc.append_kv(k, k, pool, pool, table, used)
    with pytest.raises(attnc.Error, match="expected key"):
        attnc.append_kv(k[:, :1], k[:, :1], pool, pool, table, used)
    kvcache = attnc.flash_attn.flash_attn_with_kvcache
    for keywords, message in (
        (dict(k=k), "k and v, or neither"),
        (dict(k=k, v=k), "cache_seqlens"),
        (dict(rotary_cos=k), "rotary_cos"),
        (dict(cache_batch_idx=used), "cache_batch_idx"),
    ):
        with pytest.raises(attnc.Error, match=message):
            kvcache(q.transpose(1, 2), pool, pool, block_table=table, **keywords)
