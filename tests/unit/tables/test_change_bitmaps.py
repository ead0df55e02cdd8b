from __future__ import annotations

import json
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_sfstream.tables.rows.change_decoding import BitmapReader
from airflow_provider_sfstream.tables.rows.replica_columns import replica_columns
from sfstream_localorg.records.entities import STANDARD_ENTITIES
from tests.support.change_events import flat_columns, named_columns, random_bitmap

SCHEMA = STANDARD_ENTITIES[0].schema()
COLUMNS = replica_columns(json.dumps(SCHEMA))
NAMES = [column.name for column in COLUMNS]
TEXTS = pa.list_(pa.string())
Bitmaps = tuple[list[str], list[str]]


def reader(places: list[int] | None = None, width: int | None = None) -> BitmapReader:
    return BitmapReader(COLUMNS, places or range(len(COLUMNS)), width or len(COLUMNS))


def arrays(events: list[Bitmaps]) -> tuple[pa.Array, pa.Array]:
    return pa.array([event[0] for event in events], TEXTS), pa.array([event[1] for event in events], TEXTS)


def names_of(words: np.ndarray, table: list[str]) -> set[str]:
    bits = sum((int(word) % (1 << 64)) << (64 * at) for at, word in enumerate(words))
    assert bits >> len(table) == 0
    return {name for at, name in enumerate(table) if bits >> at & 1}


def read(*events: Bitmaps) -> tuple[list[set[str]], list[set[str]]]:
    """Return the fields that each event sets, and the fields that it sets to null."""
    found = reader().read(*arrays(list(events)))
    assert not found.unreadable
    nulled = [{NAMES[at] for at, rows in found.nulled.items() if rows[row]} for row in range(len(events))]
    return [names_of(words, NAMES) for words in found.bits], nulled


def position(name: str) -> int:
    return next(column.position for column in COLUMNS if column.name == name)


def top(*names: str) -> str:
    return f"0x{sum(1 << position(name) for name in names):X}"


@given(st.integers(0, 2**32), st.integers(0, 60))
@settings(max_examples=20)
def test_bitmaps_of_a_batch_equal_those_of_single_events(seed: int, count: int) -> None:
    shape = random.Random(seed)
    kinds = [(random_bitmap(SCHEMA, shape), random_bitmap(SCHEMA, shape, 0.03)) for _ in range(12)]
    events = [shape.choice(kinds) for _ in range(count)]
    sets, nulls = read(*events)
    flat = flat_columns(SCHEMA)
    for (changed, nulled), chosen, to_null in zip(events, sets, nulls, strict=True):
        assert to_null == named_columns(nulled, flat, [*changed, *nulled])
        assert chosen == named_columns(changed, flat, changed) | to_null


def test_table_may_have_more_columns_in_another_order() -> None:
    width = 200
    places = random.Random(3).sample(range(width), len(COLUMNS))
    events: list[Bitmaps] = [([top("Phone")], []), (["5-0x3"], [top("LastName")]), ([top("GUID__pc")], [])]
    wide = reader(places, width)
    found = wide.read(*arrays(events))
    assert found.bits.shape == (3, 4)
    table = [""] * width
    for name, place in zip(NAMES, places, strict=True):
        table[place] = name
    narrow = reader().read(*arrays(events))
    assert [names_of(words, table) for words in found.bits] == [names_of(words, NAMES) for words in narrow.bits]
    assert names_of(wide.everything(), table) == set(NAMES)


def test_bits_are_stored_in_words_of_64() -> None:
    reader = BitmapReader(COLUMNS[:1], [63], 64)
    assert reader.everything().tolist() == [-(1 << 63)]
    assert reader.read(*arrays([(["0x02"], []), ([], [])])).bits.tolist() == [[-(1 << 63)], [0]]


PARTS = ["BillingStreet", "BillingCity", "BillingState", "BillingPostalCode", "BillingCountry"]
ADDRESS = [name for name in NAMES if name.startswith("Billing")]


@pytest.mark.parametrize(
    ("changed", "nulled", "sets", "nulls"),
    [
        ([], [], [], []),
        ([top("Phone", "Fax")], [top("Fax")], ["Phone", "Fax"], ["Fax"]),
        ([top("Phone")], [top("Fax")], ["Phone", "Fax"], ["Fax"]),  # nulled alone sets too
        (["5-0x03"], ["5-0x02"], PARTS[:2], PARTS[1:2]),
        ([], ["5-0x1F"], PARTS, PARTS),  # nested entries alone
        (["0x20"], [], ADDRESS, []),  # a whole compound field
        (["0x20"], ["0x20"], ADDRESS, ADDRESS),
        (["0x20"], ["5-0x02"], ADDRESS, PARTS[1:2]),
        (["0x20", "5-0x01"], [], PARTS[:1], []),  # its parts are listed separately
        (["0x02"], [], ["Name", "Salutation", "FirstName", "LastName"], []),
        (["1-0x06"], [], ["FirstName", "LastName"], []),
        # A business account becomes a person account: the text of its name becomes null, and its parts are set.
        (["0x02", "1-0x06"], ["0x02"], ["Name", "FirstName", "LastName"], ["Name"]),
        (["0x02", "1-0x06"], ["1-0x06"], ["Name", "FirstName", "LastName"], ["FirstName", "LastName"]),
        (["0x01"], ["0x1"], [], []),  # the header is no column
        (["0x" + "F" * 8 + "0" * 40], [], [], []),  # beyond the schema
        (["5-0xFF00000000", "400-0x1"], ["0-0x1"], [], []),
        (["0xfF00"], [], [c.name for c in COLUMNS if 8 <= c.position < 16], []),  # digits of either case
        (["0x80", "0x100"], [], ["Phone", "Fax"], []),
    ],
)
def test_bitmap_entries_set_their_fields(
    changed: list[str], nulled: list[str], sets: list[str], nulls: list[str]
) -> None:
    assert read((changed, nulled)) == ([set(sets)], [set(nulls)])


@pytest.mark.parametrize(
    "bad", ["", "14", "0x", "0xZZ", "Name", "0x1|0x2", "0x1 0x2 ", " 0x1", "7-0x01", "null", "1-2-0x1", "|"]
)
@pytest.mark.parametrize("where", ["changed", "nulled"])
def test_invalid_bitmap_affects_only_its_event(bad: str, where: str) -> None:
    good: Bitmaps = ([top("Phone")], [])
    broken: Bitmaps = ([bad], []) if where == "changed" else ([], [bad])
    found = reader().read(*arrays([good, broken, good, broken, good]))
    assert list(found.unreadable) == [1, 3]
    assert all("not applied" in reason for reason in found.unreadable.values())
    assert [names_of(words, NAMES) for words in found.bits[::2]] == [{"Phone"}] * 3
    assert not found.bits[1::2].any()


def test_null_bitmap_entry_is_invalid() -> None:
    found = reader().read(pa.array([["0x80"], [None]], TEXTS), pa.array([[], []], TEXTS))
    assert list(found.unreadable) == [1]


def test_empty_batch_has_no_bitmaps() -> None:
    found = reader().read(*arrays([]))
    assert (len(found.bits), found.nulled, found.unreadable) == (0, {}, {})
