# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps of transformers models with random weights, beside their own attention."""

from __future__ import annotations

import argparse
import statistics
from typing import Any, Dict, List

import torch

from .contenders import Contender
from .timing import make_timer, peak_memory


def make_model(kind: str, implementation: str, options: argparse.Namespace) -> torch.nn.Module:
    import transformers

    from ..transformers import register

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


def measure_model(kind: str, length: int, options: argparse.Namespace) -> List[dict]:
    """A step: the forward, or with --backward also the gradients of all parameters."""
    ids = torch.randint(5, 1000, (options.batch, length), generator=torch.Generator().manual_seed(0)).to(options.device)
    rows, first, steps = [], None, {}
    for name in ("attnc", "sdpa", "eager"):
        if options.only and name not in options.only:
            continue
        row: Dict[str, Any] = {"variant": kind, "length": length, "contender": name}
        rows.append(row)
        try:
            model = make_model(kind, name, options)

            def step(model: torch.nn.Module = model) -> torch.Tensor:
                with torch.set_grad_enabled(options.backward):
                    logits = model(input_ids=ids).logits
                    if options.backward:
                        logits.float().square().mean().backward()
                        model.zero_grad(set_to_none=True)
                return logits.detach()

            logits = step().double()
            first = logits if first is None else first
            row["error"] = (logits - first).abs().max().item()
            row["peak_bytes"] = peak_memory(step, options.device)
            steps[name] = Contender([step])
        except (RuntimeError, ImportError) as error:
            row["note"] = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
    times = make_timer(options.device).measure(steps, options.seconds) if steps else {}
    for row in rows:
        if row["contender"] in times:
            row["seconds"], row["tflops"] = statistics.median(times[row["contender"]]), 0.0
    return rows
