"""Result of decoding, for all payload formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from airflow_provider_sfstream.tables.decode.arrow_columns import times_of_milliseconds
from airflow_provider_sfstream.tables.decode.avro_columns import Member

TIME = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class DecodedEvents:
    """Columns of equal length: those of the decoder's plan, and the event times (null if missing)."""

    columns: list[pa.Array]
    event_times: pa.Array


@dataclass(frozen=True)
class Undecodable:
    """Payload (its index in the list) that cannot be decoded, and the reason."""

    row: int
    reason: str

    @classmethod
    def because(cls, row: int, reason: BaseException | str) -> Undecodable:
        text = reason if isinstance(reason, str) else f"{type(reason).__name__}: {reason}"
        return cls(row, text[:500].encode(errors="backslashreplace").decode())


class EventDecoder(Protocol):
    """Decoder for payloads of one kind."""

    @property
    def decoder(self) -> str:
        """Decoder name in the metrics."""
        ...

    def decode_all(self, payloads: Sequence[bytes]) -> tuple[DecodedEvents | None, list[Undecodable]]:
        """Return the events of all decodable payloads, in order, and the undecodable payloads."""
        ...


def joined(parts: Sequence[DecodedEvents]) -> DecodedEvents | None:
    """Return decoded parts combined into one; ``None`` if there are none."""
    if len(parts) < 2:
        return parts[0] if parts else None
    columns = [pa.concat_arrays(arrays) for arrays in zip(*(part.columns for part in parts), strict=True)]
    return DecodedEvents(columns, pa.concat_arrays([part.event_times for part in parts]))


def let_through(error: BaseException) -> None:
    """Raise an error again if a payload did not cause it."""
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error
    if isinstance(error, MemoryError):
        raise error


def event_times(members: Sequence[Member], columns: Sequence[pa.Array], rows: int) -> pa.Array:
    """Return the time of each event: the commit of a change event, otherwise ``CreatedDate``."""
    times = pa.nulls(rows, TIME)
    for member, column in zip(members, columns, strict=True):
        if member.name == "ChangeEventHeader" and pa.types.is_struct(column.type):
            return times_of_milliseconds(column.field("commitTimestamp"))
        if member.name == "CreatedDate" and column.type == TIME:
            times = column
    return times
