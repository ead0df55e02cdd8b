"""Checks of arguments, before anything is read or written."""

from __future__ import annotations

from math import isfinite
from typing import Any

from airflow_provider_sfstream.exceptions import ConfigurationError


def check_choice(argument: str, value: Any, choices: tuple[str, ...]) -> None:
    """Check that the value of an argument is one of the choices."""
    if value not in choices:
        raise ConfigurationError(f"{argument}={value!r} must be one of {', '.join(map(repr, choices))}.")


def check_positive(**arguments: Any) -> None:
    """Check that arguments are whole numbers above zero."""
    for argument, number in arguments.items():
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise ConfigurationError(f"{argument}={number!r} must be a whole number above zero.")


def is_seconds(value: Any) -> bool:
    """Return whether a value is a finite number of seconds, 0 or more."""
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value >= 0


def check_wake_up_conditions(min_events: Any, max_wait: Any, min_interval: Any) -> None:
    """Check the conditions of a watch."""
    if not isinstance(min_events, int) or isinstance(min_events, bool) or min_events < 1:
        raise ConfigurationError(f"min_events={min_events!r} must be a whole number above 0.")
    if max_wait is not None and not (is_seconds(max_wait) and max_wait > 0):
        raise ConfigurationError(f"max_wait={max_wait!r} must be a number of seconds above 0, or None.")
    if not is_seconds(min_interval):
        raise ConfigurationError(f"min_interval={min_interval!r} must be a number of seconds, 0 or more.")
