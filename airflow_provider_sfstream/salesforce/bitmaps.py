"""The bitmaps of change events, which name the fields of ``changedFields``, ``nulledFields`` and ``diffFields``.

Each of these header fields is an array of texts. ``0x<HEX>``, at most one and first, names fields of the event
itself; ``<parent>-0x<HEX>`` names fields inside the compound field at position ``parent``. Bit *i*, counted from the
least significant end, stands for position *i* in the Avro record, so ``0x14`` is positions 2 and 4, and the header is
position 0. An array may hold nested entries alone. (Salesforce's own decoders, and values captured from orgs.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from airflow_provider_sfstream.exceptions import SchemaError

_ENTRY = re.compile(r"(?:(?P<parent>[0-9]{1,5})-)?0[xX](?P<bits>[0-9A-Fa-f]+)")


@dataclass(frozen=True)
class FieldPositions:
    """Positions of fields in an event's Avro record, and inside the compound fields at some of them."""

    top: frozenset[int] = frozenset()
    nested: Mapping[int, frozenset[int]] = field(default_factory=dict)


def decode_bitmap(entries: Sequence[str]) -> FieldPositions:
    """Return the positions in an array of bitmap texts; hex digits may be in either case."""
    top: frozenset[int] = frozenset()
    nested: dict[int, frozenset[int]] = {}
    for entry in entries:
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise SchemaError(
                f"Invalid entry {entry!r} in a change event's field bitmap: expected a form like '0x14' or '4-0x10'. "
                "The event was not applied. Save its payload, and report it."
            )
        positions = _positions(int(match["bits"], 16))
        if match["parent"] is None:
            top |= positions
        else:
            parent = int(match["parent"])
            nested[parent] = nested.get(parent, frozenset()) | positions
    return FieldPositions(top, nested)


def _positions(bits: int) -> frozenset[int]:
    return frozenset(match.start() for match in re.finditer("1", f"{bits:b}"[::-1]))
