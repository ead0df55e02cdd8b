"""Property tests with few examples in ``make test`` and many in ``make test-all``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis.strategies import SearchStrategy


def for_examples(*drawn: SearchStrategy[Any], few: int, many: int, **named: SearchStrategy[Any]) -> Callable[..., Any]:
    """Return a decorator like ``given`` that runs a property test with ``few`` and with ``many`` examples.

    :param drawn: strategies of the function's last arguments.
    :param few: number of examples in ``make test``.
    :param many: number of examples in ``make test-all``.
    :param named: strategies of other arguments by name.
    """

    def decorate(holds: Callable[..., Any]) -> Callable[[int], None]:
        @pytest.mark.parametrize("examples", [few, pytest.param(many, marks=pytest.mark.extended)])
        def test(examples: int) -> None:
            settings(max_examples=examples)(given(*drawn, **named)(holds))()

        test.__name__, test.__doc__, test.__module__ = holds.__name__, holds.__doc__, holds.__module__
        return test

    return decorate
