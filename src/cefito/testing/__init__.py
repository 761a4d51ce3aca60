"""Tests for packages that add planners or recognisers; needs pytest, imported by tests alone.

```
from cefito.testing import PlannerContract

class TestMine(PlannerContract):
    method = "mine"
```
"""

import pytest

pytest.register_assert_rewrite("cefito.testing.contract", "cefito.testing.recognisers")

from cefito.testing.contract import PlannerContract, assert_same_plans, quick  # noqa: E402
from cefito.testing.recognisers import RecogniserContract  # noqa: E402

__all__ = ["PlannerContract", "RecogniserContract", "assert_same_plans", "quick"]
