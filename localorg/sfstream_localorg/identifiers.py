"""Salesforce identifiers: conversion and generation."""

from __future__ import annotations

import hashlib

_CHECKS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ012345"
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def to_18(identifier: str) -> str:
    """Return the 18-character form of an identifier of 15 or 18 characters.

    Each of the three last characters encodes the upper-case letters among five characters; the first of the five is
    the lowest bit.

    :raises ValueError: if the identifier has another length, or other characters than letters and digits.
    """
    if len(identifier) not in (15, 18) or not set(identifier) <= set(_DIGITS):
        raise ValueError(f"{identifier!r} is not a Salesforce identifier of 15 or 18 letters and digits")
    checks = ""
    for start in range(0, 15, 5):
        upper = "".join("1" if character.isupper() else "0" for character in identifier[start : start + 5])
        checks += _CHECKS[int(upper[::-1], 2)]
    return identifier[:15] + checks


def numbered(prefix: str, number: int) -> str:
    """Return the 18-character identifier for a three-character key prefix and an object number."""
    digits = ""
    while number:
        number, digit = divmod(number, 62)
        digits = _DIGITS[digit] + digits
    return to_18(f"{prefix}{digits:0>12}")


def derived(prefix: str, text: str) -> str:
    """Return a deterministic 18-character identifier for a text."""
    return numbered(prefix, int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big"))
