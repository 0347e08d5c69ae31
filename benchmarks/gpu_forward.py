#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The forward on a GPU: attnc beside cuDNN, FlashAttention and FlexAttention.

    python3 benchmarks/gpu_forward.py [--library libattnc.so] [--quick] [--cells REGEX] [--json FILE]

Needs a Hopper GPU and PyTorch; everything runs in this process. Per cell: all results against
float64, then times by turns, medians of CUDA events. FLOPs are 4 d per kept pair and head (causal:
exactly half of all pairs). docs/performance.md has more. The exit status is 0 if attnc compiled,
ran and was right in all cells.
"""

import argparse
import contextlib
import glob
import os
import re
import statistics
import sys
import tempfile
import threading
import time
import warnings
from functools import partial

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path[:0] = [HERE, os.path.join(ROOT, "python")]
from gpu import report as reports  # noqa: E402
from gpu.cells import QUICK, all_cells  # noqa: E402


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", help="libattnc.so (default: ATTNC_LIBRARY, else the newest under build)")
    parser.add_argument("--quick", action="store_true", help="few cells, short")
    parser.add_argument("--cells", metavar="REGEX", default="", help="such as 'd128-.*-causal' or 's(512|1024)-'")
    parser.add_argument("--list", action="store_true", help="names of the cells, and nothing else")
    parser.add_argument("--emit-ir", metavar="DIR", help="write the cells' IR, and nothing else")
    parser.add_argument("--only-attnc", action="store_true", help="without peers")
    parser.add_argument("--without", metavar="NAME", action="append", default=[], help="leave a peer out")
    parser.add_argument("--seconds", type=float, help="of timing, per cell (default 2.5; quick 1)")
    parser.add_argument("--type", choices=("bfloat16", "float16"), default="bfloat16")
    parser.add_argument("--static", action="store_true", help="attnc is told all sizes, not only d")
    parser.add_argument("--pipeline", help="attnc's options, such as \"schedule='block-m=128 block-n=128'\"")
    parser.add_argument("--schedule", metavar="OPTIONS", action="append", default=[],
                        help="time attnc with this schedule as well, such as 'block-m=128 block-n=128', by turns with the rest")
    parser.add_argument("--no-latency", action="store_true", help="without times of compiling and of the host")
    parser.add_argument("--timeout", type=float, default=90, metavar="SECONDS",
                        help="give up when a step takes longer: a kernel that hangs cannot be interrupted")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--plots", metavar="DIR")
    options = parser.parse_args()
    options.element = {"bfloat16": "bf16", "float16": "f16"}[options.type]
    if options.seconds is None:
        options.seconds = 1.0 if options.quick else 2.5
    try:
        pattern = re.compile(options.cells)
    except re.error as error:
        parser.error(f"--cells: {error}")
    options.chosen = [c for c in all_cells() if pattern.search(c.name) and (not options.quick or c.name in QUICK)]
    if not options.chosen:
        parser.error(f"no cell's name matches '{options.cells}'")
    return options


def emit_ir(options):
    os.makedirs(options.emit_ir, exist_ok=True)
    for cell in options.chosen:
        with open(os.path.join(options.emit_ir, f"{cell.name}.mlir"), "w") as file:
            file.write(cell.module(options.element, options.static))


def choose_library(options):
    if not options.library and not os.environ.get("ATTNC_LIBRARY"):
        found = glob.glob(os.path.join(ROOT, "build", "*", "lib", "libattnc.so"))
        options.library = max(found, key=os.path.getmtime, default=None)
    if options.library:
        os.environ["ATTNC_LIBRARY"] = os.path.abspath(options.library)
    if not os.path.exists(os.environ.get("ATTNC_LIBRARY", "")):
        name = os.path.splitext(os.path.basename(sys.argv[0]))[0]
        sys.exit(f"{name}: no library at '{os.environ.get('ATTNC_LIBRARY', 'build/*/lib')}', see --library")


def describe_machine(torch, options):
    properties = torch.cuda.get_device_properties(0)
    return {"device": properties.name, "multiprocessors": properties.multi_processor_count,
            "l2_bytes": properties.L2_cache_size, "torch": torch.__version__, "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(), "type": options.type, "pipeline": options.pipeline,
            "static": options.static}


class Benchmark:
    def __init__(self, options):
        import torch
        from attnc._bench import contenders, reference, timing, variants
        from gpu.compiled import Compiled

        self.torch, self.options = torch, options
        self.Reference, self.Inputs, self.Unsupported = reference.Reference, variants.Inputs, contenders.Unsupported
        self.timing, self.Contender = timing, contenders.Contender
        if not torch.cuda.is_available():
            sys.exit("gpu_forward: no CUDA device")
        self.device = torch.device("cuda", 0)
        torch.cuda.init()
        torch.empty(1, device=self.device)
        self.timer = timing.Timer(self.device)
        self.builders = {"attnc": Compiled(options, options.pipeline)}
        for schedule in options.schedule:
            self.builders[schedule] = Compiled(options, f"schedule='{schedule}'")
        if not options.only_attnc:
            self.builders |= {name: partial(self.bind, make) for name, make in contenders.peers(self.device).items()
                              if name in reports.COLUMNS and name not in options.without}
        self.report = {"machine": describe_machine(torch, options), "complete": False, "rows": []}

    def save(self):
        self.report["summary"] = reports.summary(self.report["rows"])
        reports.write_json(self.report, self.options.json)

    @contextlib.contextmanager
    def step(self, what):
        """Ends the process if what is done inside takes too long."""
        self.doing = what

        def give_up():
            if self.report["rows"]:
                self.report["rows"][-1]["why"] = f"{what}: took longer than {self.options.timeout:.0f} s"
            print(f"gpu_forward: gave up, longer than {self.options.timeout:.0f} s: {what}", flush=True)
            self.save()
            reports.print_summary(self.report)
            sys.stdout.flush()
            os._exit(3)

        timer = threading.Timer(self.options.timeout, give_up)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    @staticmethod
    def bind(make, cell, inputs):
        return make(cell, inputs.captures).bind(inputs.copies)

    def inputs(self, cell):
        return self.Inputs(cell, getattr(self.torch, self.options.type), self.device, self.timer.cache_bytes)

    def build(self, name, cell, inputs, notes=None):
        """None if it does not do this cell; `notes` gets the reason where it should."""
        try:
            with self.step(f"{cell.name}: {name}, first run"):
                contender = self.builders[name](cell, inputs)
                contender.run()
                self.torch.cuda.synchronize()
            return contender
        except self.Unsupported:
            return None
        except Exception as error:  # whatever a peer may raise
            if notes is not None:
                notes[name] = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
            # An error of the GPU stays: nothing can be measured after it.
            self.torch.cuda.synchronize()
            return None

    def check(self, cell, inputs, contenders):
        """Per contender its errors; the first results of attnc, for later."""
        with self.step(f"{cell.name}: reference"):
            reference = self.Reference(cell, *inputs.copies[0], inputs.captures)
            self.torch.cuda.synchronize()
        errors, first = {}, None
        for name, contender in contenders.items():
            with self.step(f"{cell.name}: {name}, check"):
                o, lse = contender.run()
                errors[name] = reference.judge(o, lse)
                if name == "attnc":
                    first = o.clone(), lse.clone()
        errors["every step rounded"] = reference.judge(reference.plain) | {"why": ""}
        return errors, first

    def same_again(self, contender, first):
        """Whether the results that the timed runs left, and new ones, are the same bits."""
        same = lambda results: all(self.torch.equal(a, b) for a, b in zip(results, first))
        return same(contender.outputs[0]) and same(contender.run())

    def run_cell(self, cell):
        notes, inputs = {}, self.inputs(cell)
        row = {"cell": cell.name, "variant": cell.variant, "d": cell.d, "length": cell.length, "batch": cell.batch,
               "heads": cell.heads, "training": cell.training, "flops": cell.flops(), "notes": notes, "tflops": {},
               "seconds": {}, "errors": {}, "ok": False, "why": "not run"}
        self.report["rows"].append(row)
        contenders = {name: self.build(name, cell, inputs, notes) for name in self.builders}
        contenders = {name: x for name, x in contenders.items() if x}
        row["errors"], first = self.check(cell, inputs, contenders)
        with self.step(f"{cell.name}: times"):
            # What the tensor core does at the same temperature and power, where it should be the limit.
            beside = {}
            if cell.variant == "full" and cell.length >= 8192:
                beside["cuBLAS"] = self.Contender([self.timing.make_gemm(self.device)])
            times = self.timer.measure(contenders | beside, self.options.seconds)
        if beside:
            row["gemm_tflops"] = self.timing.GEMM_FLOPS / statistics.median(times.pop("cuBLAS")) * 1e-12
        for name, values in times.items():
            middle, low, high = self.timing.quartiles(values)
            row["seconds"][name] = {"median": middle, "quartiles": [low, high], "rounds": len(values)}
            row["tflops"][name] = cell.flops() / middle * 1e-12
        reports.add_scaled(cell, self.options.element, row["tflops"])
        row |= reports.ratios(row["tflops"])
        if "attnc" not in contenders:
            row["why"] = notes["attnc"]
        else:
            row["why"] = row["errors"]["attnc"]["why"]
            if not row["why"] and not self.same_again(contenders["attnc"], first):
                row["why"] = "other results in later runs"
        row["ok"] = not row["why"]
        for name, found in row["errors"].items():
            if found.get("why"):
                notes.setdefault(name, found["why"])
        return row

    def latencies(self):
        from gpu import latency

        try:
            with self.step("times of compiling"):
                self.report["compile_s"] = latency.compile_times(self.options, self.options.element)
            self.report["call_us"] = latency.call_times(self.build, self.builders, self.inputs)
        except (RuntimeError, OSError) as error:
            print(f"no latencies: {str(error).splitlines()[0]}")

    def run(self):
        rates = self.report["gemm_tflops"] = [self.timing.gemm_tflops(self.device)]
        if not self.options.no_latency:
            self.latencies()
        print(", ".join(f"{key} {value}" for key, value in self.report["machine"].items()))
        print(reports.heading())
        for cell in self.options.chosen:
            begin = time.perf_counter()
            try:
                self.run_cell(cell)
            except RuntimeError as error:
                self.report["rows"][-1] |= {"ok": False, "why": f"{self.doing}: {str(error).splitlines()[0]}"}
                raise
            finally:
                row = self.report["rows"][-1]
                row["wall_s"] = time.perf_counter() - begin
                print(reports.line(row), flush=True)
                for name, note in row["notes"].items():
                    print(f"    {name}: {note}", flush=True)
                self.save()
            self.torch.cuda.empty_cache()
        rates.append(self.timing.gemm_tflops(self.device))
        self.report["complete"] = True


def main():
    options = parse_arguments()
    if options.list:
        print("\n".join(f"{c.name:22} {c.batch}x{c.heads}x{c.length}x{c.d} {c.flops() * 1e-12:.3f} TFLOP"
                        for c in options.chosen))
        return 0
    if options.emit_ir:
        emit_ir(options)
        return 0
    choose_library(options)
    warnings.filterwarnings("ignore")
    with tempfile.TemporaryDirectory() as cache:
        # Of the driver: what it compiled yesterday would not be compiled today.
        os.environ["CUDA_CACHE_PATH"] = cache
        try:
            benchmark = Benchmark(options)
        except ImportError as error:
            sys.exit(f"gpu_forward: {error}")
        try:
            benchmark.run()
        except RuntimeError as error:
            print(f"gpu_forward: stopped: {str(error).splitlines()[0]}", flush=True)
        benchmark.save()
        reports.print_summary(benchmark.report)
        if options.plots:
            from gpu import plots

            print(plots.plot(benchmark.report, options.plots))
    rows = benchmark.report["rows"]
    return 0 if benchmark.report["complete"] and all(row["ok"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
