# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attnc among the contenders: its kernels by themselves, from a cell's IR."""

from functools import partial

import attnc
import torch
from attnc._bench.contenders import Contender


class Compiled:
    """Compiles each module once, with the options of one pipeline."""

    def __init__(self, options, pipeline):
        self.options, self.pipeline, self.known = options, pipeline, {}

    def compile(self, cell):
        text = cell.module(self.options.element, self.options.static)
        if text not in self.known:
            self.known[text] = attnc.Executable(text, pipeline=self.pipeline, cache_directory="")
        return self.known[text]

    def __call__(self, cell, inputs):
        executable = self.compile(cell)
        calls, outputs = [], []
        for q, k, v in inputs.copies:
            out = torch.empty_like(q), torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
            outputs.append(out)
            calls.append(partial(executable, q, k, v, *inputs.captures.values(), out=out))
        return Contender(calls, outputs=outputs)
