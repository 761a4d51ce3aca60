"""Tests for packages that add planners; needs pytest, and is imported by tests alone.

```
from cefito.testing import PlannerContract

class TestMine(PlannerContract):
    method = "mine"
```
"""

import pytest

pytest.register_assert_rewrite("cefito.testing.contract")

from cefito.testing.contract import PlannerContract, assert_same_plans, quick  # noqa: E402

__all__ = ["PlannerContract", "assert_same_plans", "quick"]
