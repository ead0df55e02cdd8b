"""Bitmaps of change events: encoding, and decoding to field names for the Streaming API.

``changedFields``, ``nulledFields`` and ``diffFields`` are arrays of texts. ``0x<HEX>`` selects fields of the record,
``<position>-0x<HEX>`` parts of the compound field at that position. Bit *i*, from the least significant end, is
position *i*. (Values captured from orgs.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any


def bitmap(fields: Iterable[int], parts: Mapping[int, Iterable[int]]) -> list[str]:
    """Return the bitmaps for positions of fields, and for positions of parts by the position of their field."""
    texts = {"": _bits(fields), **{f"{position}-": _bits(parts[position]) for position in sorted(parts)}}
    return [f"{prefix}0x{bits.hex().upper()}" for prefix, bits in texts.items() if bits]


def bitmap_fields(texts: Sequence[str], schema: Mapping[str, Any]) -> list[str]:
    """Return the field names that bitmaps select, in the order of ``schema``; a part is ``Field.Part``."""
    bits = {prefix: int(digits, 16) for prefix, _, digits in (text.rpartition("0x") for text in texts)}
    return list(_names(bits, schema))


def _bits(positions: Iterable[int]) -> bytes:
    """Return bytes with these bits set; the last byte has the lowest positions."""
    number = sum(1 << position for position in set(positions))
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def _names(bits: Mapping[str, int], schema: Mapping[str, Any]) -> Iterator[str]:
    records: dict[str, list[Mapping[str, Any]]] = {}
    for position, field in enumerate(schema["fields"]):
        name, branches = field["name"], field["type"] if isinstance(field["type"], list) else [field["type"]]
        for branch in branches:
            if isinstance(branch, Mapping) and branch.get("type") == "record":
                records[_base_name(branch["name"])] = branch["fields"]
        if bits.get("", 0) >> position & 1:
            yield name
        inside = bits.get(f"{position}-", 0)
        if inside:
            parts = next(
                records[known]
                for known in (
                    _base_name(branch["name"] if isinstance(branch, Mapping) else branch) for branch in branches
                )
                if known in records
            )
            yield from (f"{name}.{part['name']}" for place, part in enumerate(parts) if inside >> place & 1)


def _base_name(name: str) -> str:
    """Return the name of a type without its optional namespace."""
    return name.rpartition(".")[2]
