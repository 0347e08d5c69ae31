# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How long compiling takes, and how long a call keeps the host."""

import os
import tempfile
import time
from functools import partial

import torch

from attnc._bench.timing import host_microseconds

from .cells import Cell

VARIANT = "causal"


def _compile_seconds(text, pipeline, directory):
    """From text to loaded kernels. A comment makes the text new to the process; the disk cache looks
    at the module, where there are no comments."""
    import attnc

    text = f"// {os.urandom(8).hex()}\n{text}"
    begin = time.perf_counter()
    attnc.Executable(text, pipeline=pipeline, cache_directory=directory)
    return time.perf_counter() - begin


def compile_times(options, element):
    """Per head dimension the seconds with an empty disk cache, and again with what it then holds. To
    be called before anything else is compiled: the driver has a cache too."""
    result = {}
    # The first also initialises LLVM and the driver.
    warm = Cell("full", 64, 512, 1, 1).module(element, options.static)
    result["first in the process"] = {"cold": _compile_seconds(warm, options.pipeline, "")}
    for d in (64, 128, 256):
        text = Cell(VARIANT, d, 512, 1, 1).module(element, options.static)
        with tempfile.TemporaryDirectory() as directory:
            cold = _compile_seconds(text, options.pipeline, directory)
            cached = min(_compile_seconds(text, options.pipeline, directory) for _ in range(3))
        result[f"{VARIANT} d{d}"] = {"cold": cold, "cached": cached}
    return result


def call_times(build, contenders, inputs_of):
    """Microseconds of the host per call, for one head of 128 queries and keys."""
    cell = Cell(VARIANT, 128, 128, 1, 1)
    inputs = inputs_of(cell)
    result = {}
    for name in contenders:
        contender = build(name, cell, inputs)
        if contender is None:
            continue
        with contender.context():
            result[name] = host_microseconds(contender.calls[0])
            if name == "attnc":
                result["attnc, C API alone"] = host_microseconds(_bare(contender.calls[0]))
    return result


def _bare(call):
    """The same call without Python's part."""
    from attnc import _capi

    executable = call.func
    call()
    plan = next(iter(executable._plans.known.values()))
    workspace = torch.empty(max(plan.workspace_bytes, 1), dtype=torch.uint8, device=call.args[0].device)
    return partial(_capi._library.attnc_run, executable._handle, plan.arguments, plan.results, workspace.data_ptr(),
                   plan.workspace_bytes, torch.cuda.current_stream().cuda_stream)
