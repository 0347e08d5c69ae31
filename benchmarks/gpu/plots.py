# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pictures of a report of gpu_forward.py."""

import os

from .report import SCALED

COLOURS = {"attnc": "tab:red", "cuDNN": "tab:green", "FA2": "tab:gray", "Flex": "tab:blue", "FA3": "tab:orange",
           SCALED: "tab:orange"}


def _rates(plt, rows):
    figure, axes = plt.subplots(2, 3, figsize=(13, 7), sharex=True, sharey=True, squeeze=False)
    for i, variant in enumerate(("full", "causal")):
        for j, d in enumerate((64, 128, 256)):
            axis = axes[i][j]
            chosen = sorted((r for r in rows if r["training"] and r["d"] == d and r["variant"] == variant),
                            key=lambda r: r["length"])
            for name, colour in COLOURS.items():
                points = [(r["length"], r["tflops"][name]) for r in chosen if name in r["tflops"]]
                if points:
                    axis.plot(*zip(*points), marker="o", color=colour, label=name,
                              linestyle="--" if name == SCALED else "-", linewidth=2 if name == "attnc" else 1)
            axis.set_title(f"d {d}, {variant}")
            axis.set_xscale("log", base=2)
            axis.set_ylim(bottom=0)
            axis.grid(alpha=0.3)
            axis.set_xlabel("queries and keys")
            axis.set_ylabel("TFLOP/s")
    handles = {}
    for axis in axes.flat:
        handles |= {label: handle for handle, label in zip(*axis.get_legend_handles_labels())}
    figure.legend(handles.values(), handles.keys(), loc="upper center", ncol=len(COLOURS), frameon=False)
    return figure


def _ratios(plt, rows):
    chosen = [r for r in rows if "to_best" in r]
    if not chosen:
        return None
    figure, axis = plt.subplots(figsize=(13, 4.5))
    places = range(len(chosen))
    axis.axhline(1, color="black", linewidth=0.8)
    axis.plot(places, [r.get("to_cudnn", float("nan")) for r in chosen], "o", color=COLOURS["cuDNN"],
              label="attnc / cuDNN")
    axis.plot(places, [r["to_best"] for r in chosen], "x", color=COLOURS["attnc"], label="attnc / best")
    axis.set_xticks(places, [r["cell"] for r in chosen], rotation=90, fontsize=7)
    axis.set_ylabel("speed, times")
    axis.grid(alpha=0.3)
    axis.legend()
    return figure


def _errors(plt, rows):
    figure, axis = plt.subplots(figsize=(13, 4.5))
    for name, colour in COLOURS.items():
        points = [(n, r["errors"][name]["relative"]) for n, r in enumerate(rows) if name in r["errors"]]
        if points:
            axis.semilogy(*zip(*points), "x" if name == "attnc" else ".", color=colour, label=name)
    axis.set_xticks(range(len(rows)), [r["cell"] for r in rows], rotation=90, fontsize=7)
    axis.set_ylabel("relative error (Frobenius)")
    axis.grid(alpha=0.3)
    axis.legend()
    return figure


def _variants(plt, rows):
    chosen = [r for r in rows if not r["training"]]
    if not chosen:
        return None
    names = [name for name in COLOURS if any(name in r["tflops"] for r in chosen)]
    figure, axis = plt.subplots(figsize=(13, 4.5))
    for n, name in enumerate(names):
        axis.bar([x + 0.8 * n / len(names) for x in range(len(chosen))],
                 [r["tflops"].get(name, 0) for r in chosen], 0.8 / len(names), align="edge", color=COLOURS[name],
                 label=name)
    axis.set_xticks([x + 0.4 for x in range(len(chosen))], [r["cell"] for r in chosen], rotation=45, ha="right",
                    fontsize=8)
    axis.set_ylabel("TFLOP/s of kept pairs")
    axis.legend()
    return figure


def plot(report, directory):
    """Writes PNG files; says what was written, or why not."""
    try:
        import matplotlib
    except ImportError:
        return "no plots: matplotlib is not installed"
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    os.makedirs(directory, exist_ok=True)
    written = []
    for name, draw in (("rates", _rates), ("ratios", _ratios), ("errors", _errors), ("variants", _variants)):
        figure = draw(plt, report["rows"])
        if figure is None:
            continue
        if name != "rates":
            figure.suptitle(f"forward, {report['machine']['device']}")
            figure.tight_layout()
        path = os.path.join(directory, f"forward-{name}.png")
        figure.savefig(path, dpi=110)
        plt.close(figure)
        written.append(path)
    return "plots: " + ", ".join(written)
