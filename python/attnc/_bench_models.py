# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps of transformers models with random weights, beside their own attention."""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any, Callable, Dict, List, Optional

import torch


def make_model(kind: str, implementation: str, options: argparse.Namespace) -> torch.nn.Module:
    import transformers

    from .transformers import register

    register()
    width, longest = options.heads * options.dim, max(options.lengths) + 8
    common = dict(
        vocab_size=1000,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=4,
        num_attention_heads=options.heads,
        max_position_embeddings=longest,
    )
    if kind == "llama":
        config = transformers.LlamaConfig(**common, num_key_value_heads=max(1, options.heads // 4))
        cls = transformers.LlamaForCausalLM
    else:
        config = transformers.RobertaConfig(**common, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        cls = transformers.RobertaForMaskedLM
    config._attn_implementation = implementation
    torch.manual_seed(0)
    return cls(config).to(options.device, getattr(torch, options.dtype)).train(options.backward)


def measure_model(
    kind: str,
    length: int,
    options: argparse.Namespace,
    time_of: Callable[[Callable[[], Any], str], float],
    peak_memory: Callable[[Callable[[], Any], str], Optional[int]],
) -> List[dict]:
    """A step: the forward, or with --backward also the gradients of all parameters."""
    ids = torch.randint(5, 1000, (options.batch, length), generator=torch.Generator().manual_seed(0)).to(options.device)
    rows, first = [], None
    for name in ("attnc", "sdpa", "eager"):
        if options.only and name not in options.only:
            continue
        row: Dict[str, Any] = {"variant": kind, "length": length, "contender": name}
        rows.append(row)
        try:
            model = make_model(kind, name, options)

            def step() -> torch.Tensor:
                with torch.set_grad_enabled(options.backward):
                    logits = model(input_ids=ids).logits
                    if options.backward:
                        model.zero_grad(set_to_none=True)
                        logits.float().square().mean().backward()
                return logits.detach()

            logits = step().double()
            first = logits if first is None else first
            row["error"] = (logits - first).abs().max().item()
            row["peak_bytes"] = peak_memory(step, options.device)
            end, times = time.perf_counter() + options.seconds, [time_of(step, options.device) for _ in range(3)]
            while time.perf_counter() < end:
                times.append(time_of(step, options.device))
            row["seconds"], row["tflops"] = statistics.median(times), 0.0
        except (RuntimeError, ImportError) as error:
            row["note"] = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
    return rows
