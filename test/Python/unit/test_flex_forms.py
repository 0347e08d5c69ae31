# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Forms of FlexAttention beside the definition: each function once, with features and types in turn,
and a part of the forms of PyTorch's tests. ATTNC_FLEX_FORMS=all runs all of them, for hours."""

import os
import re

import pytest
from flex_class import FORMS, LEARNED
from flex_forms import DTYPES, FEATURES, forms, judge, run
from flex_functions import FUNCTIONS

ALL = os.environ.get("ATTNC_FLEX_FORMS") == "all"


def _in_turn():
    """Of each function one form, not always the same."""
    for number, (name, function) in enumerate(FUNCTIONS.items()):
        features = [x for x, feature in FEATURES.items() if not (function.eager_only and feature.compiled)]
        dtypes = [x for x, kind in DTYPES.items() if kind not in function.without]
        yield name, features[number % len(features)], dtypes[number % len(dtypes)]


def _expect(function, feature, dtype, verdict, why):
    expected = FUNCTIONS[function]
    if expected.refused:
        assert verdict == "refused" and re.search(expected.refused, why), (verdict, why)
    else:
        assert verdict == "right", (verdict, why)


@pytest.mark.parametrize("function, feature, dtype", list(forms() if ALL else _in_turn())[:: 1 if ALL else 5])
def test_functions(function, feature, dtype):
    _expect(function, feature, dtype, *run(function, feature, dtype))


_CLASS = {**FORMS, **LEARNED}


@pytest.mark.parametrize("name", list(_CLASS) if ALL else [*list(FORMS)[::37], *list(LEARNED)[::31]])
def test_forms_of_pytorch(name):
    verdict, why = judge(_CLASS[name])
    function = next((f for f in FUNCTIONS.values() if f": {f.name}, " in name), None)
    if function is not None and function.refused:
        assert verdict == "refused" and re.search(function.refused, why), (verdict, why)
    else:
        assert verdict == "right", (verdict, why)
