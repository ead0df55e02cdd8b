from __future__ import annotations

import pytest

from sfstream_localorg.identifiers import derived, numbered, to_18


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("001A0000006Vm9r", "001A0000006Vm9rIAC"),  # the example in Salesforce's help
        ("00Dx0000000BV7z", "00Dx0000000BV7zEAG"),
        ("000000000000000", "000000000000000AAA"),
    ],
)
def test_to_18_adds_the_checksum_of_salesforce(short: str, long: str) -> None:
    assert to_18(short) == long
    assert to_18(long) == long


@pytest.mark.parametrize("bad", ["", "001", "001A0000006Vm9", "001A0000006Vm9!", "001A0000006Vm9rIA"])
def test_invalid_identifiers_are_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="not a Salesforce identifier"):
        to_18(bad)


def test_numbered_identifiers_differ_and_keep_their_prefix() -> None:
    identifiers = [numbered("a00", number) for number in range(4000)]
    assert len({i.lower() for i in identifiers}) == 4000  # the 18-character form is unique regardless of case
    assert all(i.startswith("a00") and len(i) == 18 for i in identifiers)


def test_derived_identifiers_are_stable() -> None:
    assert derived("005", "a@b.c") == derived("005", "a@b.c") != derived("005", "a@b.d")
