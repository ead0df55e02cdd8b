from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_sfstream.tables.decode.json_values import as_double, json_text, parse, parse_object

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(TEXTS, inside, max_size=4),
    max_leaves=12,
)
NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)


@given(VALUES, st.booleans())
def test_every_value_survives_reading_and_writing(value: Any, ascii_only: bool) -> None:
    payload = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert parse(payload) == value
    assert parse(json_text(parse(payload)).encode()) == value


@given(NUMBERS)
@settings(max_examples=50)
def test_no_number_loses_a_digit(text: str) -> None:
    value = parse(text.encode())
    if isinstance(value, float):
        digits = len(Decimal(text).as_tuple().digits)
        same = Decimal(f"{value:.{digits - 1}e}") == Decimal(text) and digits <= 17
        assert same or Decimal(value) == Decimal(text) or Decimal(repr(value)) == Decimal(text)
    else:
        assert Decimal(value) == Decimal(text)
    assert json_text({"a": [value]}).startswith('{"a": [')
    assert parse(json_text([value]).encode()) == [value]


@pytest.mark.parametrize(
    "text",
    ["0.1", "5.960464477539063e-08", "1.10", "5.0", "-12.5e3", "1e22", "0.30000000000000004", "1.7976931348623157e308"],
)
def test_number_that_fits_a_double_is_a_float(text: str) -> None:
    assert parse(text.encode()) == float(text)
    assert type(parse(text.encode())) is float


@pytest.mark.parametrize(
    "text", ["0.1000000000000000055", "9007199254740993.0", "1e400", "1e-400", "123456789012345678.5"]
)
def test_number_that_exceeds_a_double_is_a_decimal(text: str) -> None:
    assert parse(text.encode()) == Decimal(text)
    assert parse(json_text([parse(text.encode())]).encode()) == [Decimal(text)]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b'{"a": 1} x',
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": -Infinity}',
        b'{"a": 1, "b": {"c": 1, "c": 1}}',
        b'{"a": 1, "\\u0061": 1}',
        b'{"a": "\\ud800"}',
        b'{"a": {"\\udc00": 1}}',
        b'{"a": "\xff"}',
        b'{"a": "\xed\xa0\x80"}',
        '{"a": 1}'.encode("utf-16"),
        b'\xef\xbb\xbf{"a": 1}',
        b'{"a": 01}',
        b'{"a": "\n"}',
        b'{"a": ' + b"9" * 5_000 + b"}",
        b"[1]",
        b"null",
        b'"text"',
    ],
)
def test_ambiguous_json_and_json_other_than_an_object_are_refused(payload: bytes) -> None:
    with pytest.raises(ValueError):
        parse_object(payload)


def test_a_surrogate_pair_is_one_character() -> None:
    assert parse(b'"\\ud83d\\ude00 \\u00e9"') == "\U0001f600 \u00e9"


def test_too_deeply_nested_object_is_refused() -> None:
    deep = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    with pytest.raises(RecursionError):
        parse_object(deep)


@pytest.mark.parametrize("number", [0, -(2**53), 2**60, 10**22])
def test_integer_that_fits_a_double_is_converted(number: int) -> None:
    assert as_double(number) == number


@pytest.mark.parametrize("number", [2**53 + 1, -(2**63) + 1, 10**400])
def test_integer_that_would_lose_digits_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="would lose digits"):
        as_double(number)
    assert math.isfinite(as_double(2**53))
