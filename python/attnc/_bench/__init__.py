# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What python -m attnc.bench and benchmarks/gpu_forward.py share: variants of attention,
who computes them, the float64 reference, and the times."""
