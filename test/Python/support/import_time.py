# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How long an import of attnc takes after one of NumPy: the best of three processes.
Fails above as many milliseconds as the argument says."""

import subprocess
import sys

PROGRAM = """
import sys
import time
import numpy
start = time.perf_counter()
import attnc
print(1000 * (time.perf_counter() - start))
print(*(name for name in ("torch", "transformers") if name in sys.modules))
"""

limit, times = float(sys.argv[1]), []
for _ in range(3):
    command = [sys.executable, "-I", "-c", PROGRAM]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert lines[1] == "", f"imported: {lines[1]}"
    times.append(float(lines[0]))
print(f"import attnc: {min(times):.0f} ms after numpy")
assert min(times) < limit, f"expected under {limit:.0f} ms"
