"""What a task tells of the data it read and wrote, before it is put into the words of OpenLineage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_sfstream.protocol.dataset_names import DatasetName


@dataclass(frozen=True)
class Column:
    """A column of another dataset, from which one has its values unchanged."""

    dataset: DatasetName
    name: str


@dataclass(frozen=True)
class Told:
    """A dataset as one task run saw it; empty or ``None`` is what it does not know.

    :param columns: type of each column by its name, in order.
    :param origins: of the columns that have their values from one column elsewhere, unchanged.
    :param rows: read, or written.
    :param size: in bytes: of the payloads read, or of the files written.
    :param files: how many were written.
    :param version: which state of the dataset this is.
    :param also: what others call the same data: the folder that it is in.
    """

    name: DatasetName
    columns: Mapping[str, str] = field(default_factory=dict)
    origins: Mapping[str, Sequence[Column]] = field(default_factory=dict)
    rows: int | None = None
    size: int | None = None
    files: int | None = None
    version: str | None = None
    also: DatasetName | None = None


@dataclass(frozen=True)
class Lineage:
    """What a task run read and wrote.

    :param windows: facts of the replay windows that it landed or was given, JSON-able.
    """

    inputs: Sequence[Told] = ()
    outputs: Sequence[Told] = ()
    windows: Sequence[Mapping[str, Any]] = ()


def type_text(type_: Any) -> str:
    """Return a column type as SQL writes it: ``struct<Street:string>``, ``array<long>``, ``map<string,double>``."""
    if isinstance(type_, str):
        return type_
    ((kind, inside),) = type_.items()
    if kind == "struct":
        return f"struct<{','.join(f'{name}:{type_text(each)}' for name, each in inside.items())}>"
    return f"map<string,{type_text(inside)}>" if kind == "map" else f"{kind}<{type_text(inside)}>"


def types_text(columns: Mapping[str, Any]) -> dict[str, str]:
    """Return the types of columns as SQL writes them."""
    return {name: type_text(type_) for name, type_ in columns.items()}
