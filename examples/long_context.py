#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A Llama trained on a sequence of which each process has a part.

Every process holds the whole model (of transformers, with random weights) and some of the tokens, as a shard map deals
them for packed documents; their attention is attnc.distributed.context_parallel_attention. Positions and labels are dealt
like the tokens. After the backward, gradients of weights are added up. Loss and gradients are those of one process.

    python3 examples/long_context.py                    # four processes on the CPU, or on as many GPUs
    torchrun --nproc-per-node 8 examples/long_context.py
"""

from __future__ import annotations

import argparse
import os
import tempfile
from typing import Any, Dict, Optional, Tuple

import attnc
import attnc.distributed as ad
import torch
import torch.distributed as dist
from transformers import AttentionInterface, AttentionMaskInterface, LlamaConfig, LlamaForCausalLM

NAME = "attnc_context"
_shards: Optional[ad.ShardMap] = None  # of the model that runs


def attend(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, scaling: float = 1.0, **_: Any
) -> Tuple[torch.Tensor, None]:
    """The interface of transformers: (B, H, S, D) to (B, S, H, D). The map's mask is the model's."""
    assert _shards is not None and mask is None
    output = ad.context_parallel_attention(query, key, value, shards=_shards, scale=scaling, enable_gqa=True)
    return output.transpose(1, 2), None


def make_model(device: torch.device) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=8192,
    )  # fmt: skip
    return LlamaForCausalLM(config).to(device)


def make_data(tokens: int) -> Dict[str, torch.Tensor]:
    """One sequence of packed documents: what each token is, what comes next, its place in its document."""
    generator = torch.Generator().manual_seed(1)
    text = torch.randint(128, (tokens + 1,), generator=generator)
    starts = torch.tensor([0, tokens // 5, tokens // 2 + 3])
    documents = torch.bucketize(torch.arange(tokens), starts[1:], right=True)
    return {
        "input_ids": text[None, :-1],
        "labels": text[None, 1:],
        "position_ids": (torch.arange(tokens) - starts[documents])[None],
        "documents": documents,
    }


def loss_of(model: LlamaForCausalLM, part: Dict[str, torch.Tensor], tokens: int) -> torch.Tensor:
    """This part's share of the mean over all tokens."""
    logits = model(input_ids=part["input_ids"], position_ids=part["position_ids"]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), part["labels"].flatten(), reduction="sum") / tokens


def train(rank: int, ranks: int, tokens: int, steps: int) -> None:
    global _shards
    on_gpu = dist.get_backend() == "nccl"
    device = torch.device("cuda", rank % torch.cuda.device_count()) if on_gpu else torch.device("cpu")
    data = make_data(tokens)
    documents = data.pop("documents")
    _shards = ad.shard_map(tokens, ranks, is_causal=True, documents=documents)
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, lambda *_, **__: None)
    model = make_model(device)
    model.set_attn_implementation(NAME)
    part = {name: ad.shard(x, _shards, dim=1).to(device) for name, x in data.items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, part, tokens)
        loss.backward()
        for x in (loss.detach_(), *(p.grad for p in model.parameters())):
            dist.all_reduce(x)
        if rank == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
        if step == 0:
            compare(rank, model, loss, {n: p.grad.clone() for n, p in model.named_parameters()}, data, documents)
        optimizer.step()
    if rank == 0:
        kept = ", ".join(map(str, _shards.kept_tiles))
        print(f"kept tiles of each rank: {kept} (fullest over mean {_shards.imbalance:.3f})")


def compare(rank: int, model: Any, loss: torch.Tensor, found: Dict[str, torch.Tensor], data: Any, documents: Any) -> None:
    """Rank 0 does it all by itself, too, with PyTorch's attention and a mask."""
    if rank:
        return
    alone = make_model(loss.device)
    alone.set_attn_implementation("sdpa")
    tokens = documents.shape[0]
    i, j = torch.arange(tokens)[:, None], torch.arange(tokens)
    mask = ((j <= i) & (documents[:, None] == documents))[None, None].to(loss.device)
    whole = {name: x.to(loss.device) for name, x in data.items()}
    logits = alone(input_ids=whole["input_ids"], position_ids=whole["position_ids"], attention_mask=mask).logits
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), whole["labels"].flatten())
    expected.backward()
    torch.testing.assert_close(loss, expected.detach())
    for name, parameter in alone.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-3, atol=1e-5 * parameter.grad.abs().max().item())
    print("loss and gradients as of one process", flush=True)


def main(rank: int, ranks: int, store: Optional[str], tokens: int, steps: int) -> None:
    backend = "nccl" if torch.cuda.device_count() >= ranks else "gloo"
    if backend == "gloo":
        torch.set_num_threads(1)
        attnc.set_num_threads(1)
    if store is None:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=ranks)
    train(dist.get_rank(), ranks, tokens, steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4, help="processes, where torchrun does not start them")
    parser.add_argument("--tokens", type=int, default=1024, help="of the sequence, a multiple of the ranks")
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()
    if "RANK" in os.environ:
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), None, options.tokens, options.steps)
    else:
        with tempfile.TemporaryDirectory() as folder:
            arguments = options.ranks, os.path.join(folder, "store"), options.tokens, options.steps
            torch.multiprocessing.spawn(main, arguments, options.ranks)
