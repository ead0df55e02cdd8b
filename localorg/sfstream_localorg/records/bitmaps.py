"""The bitmaps of change events, as the org writes them and as the Streaming API spells them out.

``changedFields``, ``nulledFields`` and ``diffFields`` are arrays of texts. ``0x<HEX>`` stands for fields of the record,
``<position>-0x<HEX>`` for the parts of the compound field at that position; bit *i*, from the least significant end, is
position *i*. (Values captured from orgs.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any


def bitmap(fields: Iterable[int], parts: Mapping[int, Iterable[int]]) -> list[str]:
    """Return the texts for positions of fields, and of parts within the compound fields at some positions."""
    texts = {"": _bits(fields), **{f"{position}-": _bits(parts[position]) for position in sorted(parts)}}
    return [f"{prefix}0x{bits.hex().upper()}" for prefix, bits in texts.items() if bits]


def spelled_out(texts: Sequence[str], schema: Mapping[str, Any]) -> list[str]:
    """Return the names that a bitmap of the org stands for, in the order of ``schema``; a part is ``Field.Part``."""
    bits = {prefix: int(digits, 16) for prefix, _, digits in (text.rpartition("0x") for text in texts)}
    return list(_names(bits, schema))


def _bits(positions: Iterable[int]) -> bytes:
    """Return whole bytes in which these bits are set; the last byte has the lowest positions."""
    number = sum(1 << position for position in set(positions))
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def _names(bits: Mapping[str, int], schema: Mapping[str, Any]) -> Iterator[str]:
    records: dict[str, list[Mapping[str, Any]]] = {}
    for position, field in enumerate(schema["fields"]):
        name, branches = field["name"], field["type"] if isinstance(field["type"], list) else [field["type"]]
        for branch in branches:
            if isinstance(branch, Mapping) and branch.get("type") == "record":
                records[_bare(branch["name"])] = branch["fields"]
        if bits.get("", 0) >> position & 1:
            yield name
        inside = bits.get(f"{position}-", 0)
        if inside:
            parts = next(
                records[known]
                for known in (_bare(branch["name"] if isinstance(branch, Mapping) else branch) for branch in branches)
                if known in records
            )
            yield from (f"{name}.{part['name']}" for place, part in enumerate(parts) if inside >> place & 1)


def _bare(name: str) -> str:
    """Return a type's name without its namespace, which may be written or implied."""
    return name.rpartition(".")[2]
