"""A table as pieces: each has the records of a range of ids, and the files that may have them. Pure.

Files of a table that this package writes have ranges of ids that do not meet, so that each is a piece by itself, and a
change of one record touches one file. Salesforce gives ids out in order: new records meet in the last piece. Files of
others, whose ranges may overlap, are a piece together until it is rewritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

Id = TypeVar("Id", str, int)
TARGET_BYTES = 128 << 20
"""How large a file is to be."""
TARGET_ROWS = 2_000_000
"""How many rows one has at most, however small they are."""


@dataclass(frozen=True)
class PieceFile:
    """A file, with its size in bytes."""

    path: str
    size: int
    rows: int


@dataclass(frozen=True)
class Piece:
    """The records whose ids come after ``after`` (``None``: from the first on) and not after ``through`` (``None``: to
    the last).

    :param is_shared: whether a file of it has records of another piece, so that both have to be rewritten.
    """

    after: str | None
    through: str | None
    files: tuple[PieceFile, ...] = ()
    is_shared: bool = False


def pieces_of_table(files: Mapping[str, Mapping[str, Any]], more: Iterable[str] = ()) -> tuple[Piece, ...]:
    """Return the pieces of a table, in the order of ids. They cover all ids, also of a table without files.

    :param files: the live files by path, as ``TableVersion`` has them.
    :param more: ids at which pieces are to end too.
    """
    groups = _groups(files)
    ends = sorted({*(last for _, last, _ in groups[:-1] if last is not None), *more})
    found = []
    for after, through in pairwise([None, *ends, None]):
        own = [group for group in groups if _meets(group, after, through)]
        shared = any(not _is_inside(group, after, through) for group in own)
        found.append(Piece(after, through, tuple(file for _, _, members in own for file in members), shared))
    return tuple(found)


def ends_of(pieces: Sequence[Piece]) -> tuple[str, ...]:
    """Return the last id of every piece but the last one."""
    return tuple(piece.through for piece in pieces if piece.through is not None)


def parts(size: float, rows: int, target: int = TARGET_BYTES) -> int:
    """Return in how many files so many bytes and rows are to be. A file is split when it is half as large again."""
    by_size = round(size / target) if size > 1.5 * target else 1
    return max(1, by_size, -(-rows // TARGET_ROWS))


def quantiles(ids: Sequence[Id], count: int) -> list[Id]:
    """Return the ids that divide these into ``count`` ranges of about equal size; fewer where ids are few.

    :param ids: sorted; or their places.
    """
    places = [len(ids) * number // count - 1 for number in range(1, count)]
    return sorted({ids[place] for place in places if 0 <= place < len(ids) - 1})


_Group = tuple[str | None, str | None, list[PieceFile]]


def _groups(files: Mapping[str, Mapping[str, Any]]) -> list[_Group]:
    """Return files whose ranges meet together: the first and the last id (``None``: not known), in order."""
    members = {path: PieceFile(path, file["size_bytes"], file["num_records"] or 0) for path, file in files.items()}
    ranges = {path: (file.get("min.Id"), file.get("max.Id")) for path, file in files.items()}
    known = [(first, last, path) for path, (first, last) in ranges.items() if first is not None and last is not None]
    if len(known) < len(files):
        return [(None, None, list(members.values()))]
    groups: list[tuple[str, str, list[PieceFile]]] = []
    for first, last, path in sorted(known):
        if groups and first <= groups[-1][1]:
            earliest, latest, others = groups[-1]
            groups[-1] = (earliest, max(latest, last), [*others, members[path]])
        else:
            groups.append((first, last, [members[path]]))
    return list(groups)


def _meets(group: _Group, after: str | None, through: str | None) -> bool:
    first, last, _ = group
    return (after is None or last is None or last > after) and (through is None or first is None or first <= through)


def _is_inside(group: _Group, after: str | None, through: str | None) -> bool:
    first, last, _ = group
    begins = after is None or (first is not None and first > after)
    return begins and (through is None or (last is not None and last <= through))
