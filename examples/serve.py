#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small inference engine: continuous batching over keys and values in pages.

Requests come and go while others decode. Each holds pages of one pool, as many as its tokens need; a step runs the model
once, either for a piece of a prompt or for one token of every running request, and on a GPU the latter is one CUDA graph,
whatever the lengths. The model is a Llama of transformers with random weights; its attention writes new keys into the
pages (attnc.append_kv) and reads them there (attnc.paged_attention).

    python3 examples/serve.py             # serves a few prompts and compares the tokens with those of generate()
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple

import attnc
import torch
from transformers import AttentionInterface, LlamaConfig, LlamaForCausalLM

NAME = "attnc_pages"


@dataclass
class Request:
    prompt: List[int]
    new_tokens: int
    tokens: List[int] = field(default_factory=list)  # that were generated
    pages: List[int] = field(default_factory=list)
    stored: int = 0  # tokens whose keys and values are in the pages
    slot: Optional[int] = None

    @property
    def room(self) -> int:
        """Tokens that it may come to store: the last one is never read."""
        return len(self.prompt) + self.new_tokens - 1

    @property
    def is_done(self) -> bool:
        return len(self.tokens) == self.new_tokens


@dataclass
class Step:
    """What the attention of each layer reads while the model runs: pools of a layer, pages and rows of each sequence."""

    pools: List[Tuple[torch.Tensor, torch.Tensor]]
    table: torch.Tensor
    stored: torch.Tensor


_step: Optional[Step] = None


def attend(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, scaling: float = 1.0, **_: Any
) -> Tuple[torch.Tensor, None]:
    """The interface of transformers: (B, H, S, D), keys of the new tokens only, to (B, S, H, D)."""
    assert _step is not None and mask is None
    pools = _step.pools[module.layer_idx]
    attnc.append_kv(key, value, *pools, _step.table, _step.stored)
    output = attnc.paged_attention(
        query, *pools, _step.table, _step.stored + key.shape[2], is_causal=True, scale=scaling, enable_gqa=True
    )
    return output.transpose(1, 2), None


class Engine:
    """At most `slots` requests decode at a time, with `pages` pages of `rows` tokens between them."""

    def __init__(self, model: LlamaForCausalLM, pages: int, rows: int = 16, slots: int = 4, piece: int = 32) -> None:
        AttentionInterface.register(NAME, attend)
        self.model, self.rows, self.piece = model, rows, piece
        model.set_attn_implementation(NAME)
        config, like = model.config, model.lm_head.weight
        heads, d = config.num_key_value_heads, config.hidden_size // config.num_attention_heads
        self.pools = [
            tuple(like.new_zeros(pages, rows, heads, d) for _ in range(2)) for _ in range(config.num_hidden_layers)
        ]
        # Slots that nobody has write to page 0, which nobody reads.
        self.free = list(range(1, pages))
        self.waiting: List[Request] = []
        self.running: Dict[int, Request] = {}
        self.slots = slots
        entries = config.max_position_embeddings // rows
        integers = dict(dtype=torch.int32, device=like.device)
        self.table = torch.zeros(slots, entries, **integers)
        self.stored = torch.zeros(slots, **integers)
        self.ids = torch.zeros(slots, 1, dtype=torch.int64, device=like.device)
        self.graph: Optional[torch.cuda.CUDAGraph] = None
        self.next_ids = self.ids
        self.prefills = False  # in the last step

    def submit(self, request: Request) -> None:
        self.waiting.append(request)

    def admit(self) -> None:
        """Gives slots and pages to requests, in the order in which they came."""
        while self.waiting and len(self.running) < self.slots:
            request = self.waiting[0]
            needed = -(-request.room // self.rows)
            if needed > len(self.free):
                break
            self.waiting.pop(0)
            request.pages, self.free = self.free[:needed], self.free[needed:]
            request.slot = min(set(range(self.slots)) - set(self.running))
            self.running[request.slot] = request
            self.table[request.slot, :needed] = self.table.new_tensor(request.pages)

    def release(self, request: Request) -> None:
        self.table[request.slot] = 0
        self.stored[request.slot] = 0
        self.free += request.pages
        del self.running[request.slot]

    def step(self) -> bool:
        """One run of the model; whether there was anything to do."""
        self.admit()
        prompts = [r for r in self.running.values() if r.stored < len(r.prompt)]
        others = [r for r in self.running.values() if r.stored >= len(r.prompt)]
        # By turns, so that those who decode do not wait for a whole prompt.
        self.prefills = bool(prompts) and not (others and self.prefills)
        if self.prefills:
            self.prefill(prompts[0])
        elif others:
            self.decode(others)
        for request in [r for r in self.running.values() if r.is_done]:
            self.release(request)
        return bool(self.running or self.waiting)

    def run_model(self, ids: torch.Tensor, table: torch.Tensor, stored: torch.Tensor) -> torch.Tensor:
        """The most likely token behind each sequence's last one."""
        global _step
        _step = Step(self.pools, table, stored)
        places = stored[:, None].to(torch.int64) + torch.arange(ids.shape[1], device=ids.device)
        logits = self.model(input_ids=ids, position_ids=places, use_cache=False, logits_to_keep=1).logits
        _step = None
        return logits[:, -1].argmax(-1, keepdim=True)

    def prefill(self, request: Request) -> None:
        """A piece of a prompt."""
        slot, first = request.slot, request.stored
        piece = request.prompt[first : first + self.piece]
        ids = self.ids.new_tensor([piece])
        token = self.run_model(ids, self.table[slot : slot + 1], self.stored[slot : slot + 1])
        request.stored += len(piece)
        self.stored[slot] = request.stored
        if request.stored == len(request.prompt):
            request.tokens.append(int(token))
            self.ids[slot] = token

    def decode(self, requests: List[Request]) -> None:
        """One token of each of the requests. The run is of all slots: what it writes for others is written again when
        their next tokens come, or is in page 0."""
        if self.ids.is_cuda:
            self.replay()
        else:
            self.next_ids = self.run_model(self.ids, self.table, self.stored)
        tokens = self.next_ids.flatten().tolist()
        for request in requests:
            request.stored += 1
            request.tokens.append(tokens[request.slot])
        slots = self.ids.new_tensor([request.slot for request in requests])
        self.stored[slots] += 1
        self.ids[slots] = self.next_ids[slots]

    def replay(self) -> None:
        if self.graph is None:
            # Nothing of a run remains but rows that the replay writes again.
            run = lambda: self.run_model(self.ids, self.table, self.stored)
            run()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.next_ids = run()
        self.graph.replay()


def tiny_llama(device: str, seed: int = 0) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512,
    )  # fmt: skip
    return LlamaForCausalLM(config).to(device).eval()


def expected(model: LlamaForCausalLM, request: Request) -> List[int]:
    """By transformers alone."""
    prompt = torch.tensor([request.prompt], device=model.device)
    found = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=request.new_tokens, do_sample=False, eos_token_id=None,
        pad_token_id=0,
    )  # fmt: skip
    return found[0, len(request.prompt) :].tolist()


@torch.no_grad()
def main(arguments: Optional[List[str]] = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--pages", type=int, default=40, help="of the pool, shared by all requests")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    model = tiny_llama(options.device, options.seed)
    generator = torch.Generator().manual_seed(options.seed)
    draw = lambda low, high, count=1: torch.randint(low, high, (count,), generator=generator).tolist()
    requests = [Request(draw(0, 256, draw(1, 90)[0]), draw(1, 40)[0]) for _ in range(options.requests)]
    answers = [expected(model, request) for request in requests]
    engine = Engine(model, options.pages)
    steps, start = 0, time.perf_counter()
    for request in requests[:3]:
        engine.submit(request)
    late = requests[3:]
    while engine.step() or late:
        steps += 1
        if late and steps % 5 == 0:  # the others come while these decode
            engine.submit(late.pop(0))
    seconds = time.perf_counter() - start
    tokens = sum(len(request.tokens) for request in requests)
    same = sum(request.tokens == answer for request, answer in zip(requests, answers))
    print(f"{tokens} tokens of {len(requests)} requests in {steps} steps, {seconds:.2f} s; {same} as generate() has them")
    if same < len(requests) or len(engine.free) != options.pages - 1:
        raise SystemExit("expected the tokens of generate(), and all pages back")


if __name__ == "__main__":
    main()
