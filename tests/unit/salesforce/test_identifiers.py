"""Identifiers of 15 and of 18 characters."""

from __future__ import annotations

import pytest

from airflow_provider_sfstream.salesforce.identifiers import to_18


@pytest.mark.parametrize(
    ("short", "checksum"),
    [
        ("00D000000000001", "EAA"),  # D is the third of its five: 4
        ("AZzAZ00000zzzzz", "1AA"),  # 1 + 2 + 8 + 16 = 27, which is written 1
        ("aaaaaAAAAAaBaBa", "A5K"),  # no capital: 0; five capitals: 31; 2 + 8 = 10
    ],
)
def test_each_checksum_character_encodes_the_capitals_of_five_characters(short: str, checksum: str) -> None:
    assert to_18(short) == short + checksum
    assert to_18(short + checksum) == short + checksum


@pytest.mark.parametrize(
    "identifier", ["", "00D00000000000", "00D0000000000010", "00D-00000000001", "00D0000000000011\n"]
)
def test_invalid_identifier_is_refused(identifier: str) -> None:
    with pytest.raises(ValueError, match="is not a Salesforce identifier"):
        to_18(identifier)
