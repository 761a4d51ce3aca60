"""What correcting proposals took."""

from __future__ import annotations

from cefito.inference.proposals import compare
from cefito.tracks import TimedStep


def timed(*steps):
    return [TimedStep(name=name, start=start, end=end) for name, start, end in steps]


def test_each_step_is_kept_moved_or_added_and_each_other_proposal_removed():
    proposed = timed(("boil", 0, 10), ("pour", 12, 20), ("stir", 21, 30), ("pour", 40, 44))
    corrected = timed(("boil", 1, 12), ("pour", 12, 25), ("wait", 26, 31), ("pour", 41, 43))
    found = compare([(proposed, corrected), ([], timed(("boil", 0, 5)))])
    counts = {"videos": 2, "steps": 5, "kept": 2, "moved": 1, "added": 2, "removed": 1}
    assert found.model_dump() == counts
    assert found.edits == 1 + 1 + 2 * 3
    assert found.saved == 1 - 8 / 15
    assert found.touched == 4 / 5
