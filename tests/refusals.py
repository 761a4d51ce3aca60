"""Refusals, which are one line."""

import pytest


def refusal(error, call, *given, match=None, **more):
    """The message of an error that a call must raise, in one line."""
    with pytest.raises(error, match=match) as caught:
        call(*given, **more)
    message = str(caught.value)
    assert "\n" not in message
    return message
