"""Property tests: a few examples in ``make test``, many in ``make test-all``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis.strategies import SearchStrategy


def for_examples(*drawn: SearchStrategy[Any], few: int, many: int, **named: SearchStrategy[Any]) -> Callable[..., Any]:
    """Make a test of a function that holds for all examples, as ``given`` does, with ``few`` and with ``many`` of them.

    :param drawn: strategies of the function's last arguments; ``named`` by name.
    """

    def decorate(holds: Callable[..., Any]) -> Callable[[int], None]:
        @pytest.mark.parametrize("examples", [few, pytest.param(many, marks=pytest.mark.extended)])
        def test(examples: int) -> None:
            settings(max_examples=examples)(given(*drawn, **named)(holds))()

        test.__name__, test.__doc__, test.__module__ = holds.__name__, holds.__doc__, holds.__module__
        return test

    return decorate
