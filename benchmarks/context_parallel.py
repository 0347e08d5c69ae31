#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attnc.distributed: what a model says of many GPUs, and what the GPUs of a host do.

    python3 benchmarks/context_parallel.py --predict
    torchrun --nproc-per-node 4 benchmarks/context_parallel.py   # forward and backward, beside one GPU's rate
"""

from __future__ import annotations

import argparse
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))

import attnc
import attnc.distributed as ad
import torch
import torch.distributed as dist

INSIDE = ad.Link(bandwidth=450e9, latency=10e-6, flops=600e12)
OUTSIDE = ad.Link(bandwidth=50e9, latency=15e-6, flops=600e12)
HEADS, KV_HEADS, D, EACH = 64, 8, 128, 8192


def masks(tokens: int) -> dict:
    documents = torch.bucketize(torch.arange(tokens), torch.arange(1, 8) * tokens // 8, right=True)
    return {
        "causal": {"is_causal": True},
        "8 documents, causal": {"is_causal": True, "documents": documents},
        "window 4096": {"is_causal": True, "window": (4095, -1)},
    }


def alone(shards: ad.ShardMap, flops: float) -> float:
    """Seconds of a rank whose share is the mean, without any link."""
    return sum(shards.kept_tiles) / shards.ranks * shards.tile**2 * HEADS * 4 * D / flops


def predict() -> None:
    query, key = (1, HEADS, EACH, D), (1, KV_HEADS, EACH, D)
    counts = [8, 16, 32, 64, 128, 256]
    print("| mask | transport |", " | ".join(map(str, counts)), "|")
    print("|---|---|" + "---|" * len(counts))
    for name in masks(EACH):
        rows: dict = {}
        for ranks in counts:
            shards = ad.shard_map(EACH * ranks, ranks, **masks(EACH * ranks)[name])
            for kind, lanes in (("gather", 1), ("ring", 1), ("ring", 8)):
                transport = ad.Transport("gather" if lanes == ranks else kind, lanes)
                seconds = ad.predict(shards, INSIDE, query, key, D, transport, outside=OUTSIDE)
                label = kind if lanes == 1 else f"{kind}, {lanes} lanes"
                rows.setdefault(label, []).append(alone(shards, INSIDE.flops) / seconds)
        for label, found in rows.items():
            print(f"| {name} | {label} |", " | ".join(f"{100 * x:.0f} %" for x in found), "|", flush=True)


def seconds_of(work, device: torch.device, repeat: int = 5) -> float:
    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        if dist.is_initialized():
            dist.barrier()

    work()
    found = []
    for _ in range(repeat):
        wait()
        start = time.perf_counter()
        work()
        wait()
        found.append(time.perf_counter() - start)
    return sorted(found)[repeat // 2]


def run(each: int, heads: int, kv_heads: int) -> None:
    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", rank % torch.cuda.device_count()) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    kind = torch.bfloat16 if on_gpu else torch.float32
    make = lambda h, n: torch.randn(1, h, n, D, dtype=kind, device=device, requires_grad=True)
    parts = [make(h, each) for h in (heads, kv_heads, kv_heads)]
    whole = [make(h, each * ranks) for h in (heads, kv_heads, kv_heads)] if rank == 0 else []
    for name, mask in masks(each * ranks).items():
        shards = ad.shard_map(each * ranks, ranks, **mask)
        for transport in ("gather", "ring", "heads"):
            attend = lambda: ad.context_parallel_attention(*parts, shards=shards, enable_gqa=True, transport=transport)
            with torch.no_grad():
                forward = seconds_of(attend, device)
            both = seconds_of(lambda: attend().sum().backward(), device)
            if rank == 0:
                print(f"{name}, {transport}: forward {forward * 1e3:.2f} ms, with backward {both * 1e3:.2f} ms", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        for name, mask in masks(each * ranks).items():
            documents = mask.pop("documents", None)
            if documents is not None:
                documents = documents.to(device)
                mask["mask_mod"] = lambda b, h, i, j: documents[i] == documents[j]
            attend = lambda: attnc.attention(*whole, enable_gqa=True, **mask)
            with torch.no_grad():
                forward = seconds_of(attend, device)
            both = seconds_of(lambda: attend().sum().backward(), device)
            print(f"{name}, one device: forward {forward * 1e3:.2f} ms, with backward {both * 1e3:.2f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--predict", action="store_true", help="the model's table for many GPUs; needs none")
    parser.add_argument("--tokens", type=int, default=EACH, help="of each rank")
    parser.add_argument("--heads", type=int, default=HEADS)
    parser.add_argument("--kv-heads", type=int, default=KV_HEADS)
    options = parser.parse_args()
    if options.predict:
        predict()
    elif "RANK" not in os.environ:
        parser.error("expected --predict, or to be started by torchrun")
    else:
        run(options.tokens, options.heads, options.kv_heads)


if __name__ == "__main__":
    main()
