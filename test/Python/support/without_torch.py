# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import sys

sys.modules["torch"] = None  # an import of it fails

import attnc  # noqa: E402
import numpy as np  # noqa: E402

q, k, v = (np.random.default_rng(n).standard_normal((1, 2, 10, 8), dtype="float32") for n in range(3))
slope = np.array([0.5, 0.25], "float32")
o = attnc.attention(q, k, v, score_mod=lambda s, b, h, i, j: s - slope[h] * abs(i - j), is_causal=True)
i, j = np.arange(10)[:, None], np.arange(10)[None]
s = np.einsum("bhid,bhjd->bhij", q, k) / np.sqrt(8) - slope[:, None, None] * abs(i - j)
p = np.exp(np.where(i >= j, s, -np.inf))
np.testing.assert_allclose(o, p / p.sum(-1, keepdims=True) @ v, rtol=1e-5, atol=1e-5)
assert "site" not in attnc.__file__ or attnc._capi.library_path().startswith(attnc.__file__[: -len("__init__.py")])
