# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests of the Python package: `pytest test/Python/unit`, with libattnc.so where the
package finds it. What needs a GPU is skipped without one."""

import os
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "..", "python")]

torch = pytest.importorskip("torch")


def has_hopper() -> bool:
    return torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)


def pytest_configure(config):
    config.addinivalue_line("markers", "cuda: needs a Hopper GPU")
    torch.set_num_threads(2)


def pytest_collection_modifyitems(config, items):
    if has_hopper():
        return
    for item in items:
        if "cuda" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="no Hopper GPU"))


@pytest.fixture
def compiled():
    """How many executables were compiled since the test, or the last call, began."""
    import attnc

    before = [attnc.compile_counts()]

    def count() -> int:
        now = attnc.compile_counts()
        made = now["compiled"] + now["from_disk"] - before[0]["compiled"] - before[0]["from_disk"]
        before[0] = now
        return made

    return count
