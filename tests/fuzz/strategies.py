"""Hypothesis strategies for inputs from a hostile or broken server, file or user."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st

from tests.support.hostile_schemas import HOSTILE

HUGE = (2**31, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**400)
NAMES = st.sampled_from(["a", "Id", "Order__e", "x.y.Z", "ChangeEventHeader", "CreatedDate", "", "a b", "`", "..", "é"])
TEXTS = st.one_of(
    st.text(max_size=30),
    st.text(st.characters(codec=None), max_size=10),
    st.sampled_from(["\ud800", "\x00", "\n\x1b[2J", "../../x", "{{ 7 }}", "%s%n", "1e400", "NaN", "٣", "-----BEGIN A"]),
    st.builds(lambda text, times: text * times, st.text(min_size=1, max_size=3), st.sampled_from([100, 5_000])),
)
NUMBERS = st.one_of(st.integers(-5, 5), st.integers(), st.sampled_from(HUGE), st.floats())
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS | NAMES, inner, max_size=4),
    max_leaves=12,
)


def amplified(pieces: st.SearchStrategy[bytes], most: int = 1_000_000) -> st.SearchStrategy[bytes]:
    """Return texts that repeat one piece very often. Code that is linear in the length handles them quickly."""

    def build(head: bytes, piece: bytes, tail: bytes, share: int) -> bytes:
        return head + piece * (most // share // max(len(piece), 1)) + tail

    return st.builds(build, pieces, pieces, pieces, st.sampled_from([1, 10, 1_000, 100_000]))


def bodies(template: Any) -> st.SearchStrategy[bytes]:
    """Return JSON texts: documents similar to ``template``, and broken, deeply nested and long texts."""
    pieces = st.sampled_from(
        [b"[", b"]", b"{", b"}", b'"', b'{"a":', b'"a":1,', b"1,", b"\\", b"\\ud800", b"9", b" ", b"\xff"]
    )
    return st.one_of(
        mutated(template).map(lambda document: json.dumps(document).encode()),
        JSON.map(lambda document: json.dumps(document).encode()),
        st.builds(_spliced, st.just(json.dumps(template).encode()), st.integers(0, 5_000), pieces, st.integers(0, 40)),
        amplified(pieces),
        st.binary(max_size=60),
    )


def _spliced(text: bytes, at: int, piece: bytes, cut: int) -> bytes:
    at %= len(text) + 1
    return text[:at] + piece + text[at + cut :]


@st.composite
def mutated(draw: st.DrawFn, template: Any) -> Any:
    """Return a copy of ``template`` with up to three values replaced, added or removed."""
    document = copy.deepcopy(template)
    for _ in range(draw(st.integers(0, 3))):
        places = list(_places(document))
        if not places:
            break
        holder, key = draw(st.sampled_from(places))
        match draw(st.sampled_from(["replace", "remove", "add"])):
            case "replace":
                holder[key] = draw(JSON)
            case "remove":
                del holder[key]
            case "add" if isinstance(holder, dict):
                holder[draw(TEXTS)] = draw(JSON)
            case "add":
                holder.append(draw(JSON))
    return document


def _places(document: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    keys = document.keys() if isinstance(document, dict) else range(len(document))
    for key in keys:
        found.append((document, key))
        if isinstance(document[key], dict | list):
            found += _places(document[key])
    return found


PRIMITIVES = st.sampled_from(["null", "boolean", "int", "long", "float", "double", "string", "bytes"])


def _named(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = st.lists(st.fixed_dictionaries({"name": st.sampled_from("abcdef") | NAMES, "type": inner}), max_size=4)
    name = st.sampled_from(["R", "S", "T", "Order__e"]) | NAMES
    return st.one_of(
        st.fixed_dictionaries({"type": st.just("record"), "name": name, "fields": fields}),
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
        st.fixed_dictionaries({"type": st.just("map"), "values": inner}),
        st.fixed_dictionaries({"type": st.just("enum"), "name": name, "symbols": st.lists(NAMES, max_size=3)}),
        st.fixed_dictionaries({"type": st.just("fixed"), "name": name, "size": st.integers(-1, 20) | NUMBERS}),
        st.fixed_dictionaries(
            {"type": PRIMITIVES, "logicalType": TEXTS | st.sampled_from(["date", "timestamp-millis"])}
        ),
        st.lists(inner, max_size=3),
    )


TYPES = st.recursive(PRIMITIVES | st.sampled_from(["R", "S", "Order__e"]), _named, max_leaves=10)
SCHEMAS = st.one_of(
    st.lists(TYPES, max_size=5).map(
        lambda types: {
            "type": "record",
            "name": "Order__e",
            "fields": [{"name": f"f{number}", "type": type_} for number, type_ in enumerate(types)],
        }
    ),
    st.sampled_from([schema for schema, _ in HOSTILE.values()]),
    mutated(
        {"type": "record", "name": "Order__e", "fields": [{"name": "CreatedDate", "type": "long", "doc": "x:DateTime"}]}
    ),
)
PAYLOADS = st.one_of(
    st.binary(max_size=200),
    amplified(st.sampled_from([b"\x00", b"\x02", b"\x01", b"\xff", b"\x80", b"\xfe\xff\xff\xff\xff\xff\x01", b"ab"])),
)
