# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""README's example with arrays of NumPy, without PyTorch, beside the definition. Fails
above as many seconds as the argument says."""

import os
import re
import sys
import time

sys.modules["torch"] = None  # an import of it fails

import numpy as np  # noqa: E402

with open(os.path.join(os.path.dirname(__file__), "..", "..", "..", "README.md")) as page:
    program = re.search(r"```python\n(import attnc, numpy.*?)```", page.read(), re.DOTALL).group(1)
space = {}
start = time.perf_counter()
exec(compile(program, "README.md", "exec"), space)
seconds = time.perf_counter() - start

q, k, v = (space[name].astype("float64") for name in "qkv")
scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
scores[:, :, ~np.tri(q.shape[2], dtype=bool)] = -np.inf
p = np.exp(scores - scores.max(-1, keepdims=True))
np.testing.assert_allclose(space["o"], p / p.sum(-1, keepdims=True) @ v, rtol=1e-5, atol=1e-5)
print(f"README's example: {seconds:.1f} s, right")
assert seconds < float(sys.argv[1]), f"expected under {sys.argv[1]} s"
