"""Checks of arguments, before anything is read or written."""

from __future__ import annotations

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
