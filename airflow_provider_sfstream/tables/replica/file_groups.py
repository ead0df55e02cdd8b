"""File groups of a table: the records of a range of IDs, and the files that can contain them. Pure.

The files that this package writes have disjoint ID ranges. Each is a file group, so the change of a record rewrites one
file. Salesforce assigns IDs in order, so new records belong to the last group. Files that other programs wrote may
overlap; overlapping files form one group until it is rewritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

Id = TypeVar("Id", str, int)
TARGET_BYTES = 128 << 20
"""Target size of a file, in bytes."""
TARGET_ROWS = 2_000_000
"""Most rows of a file, regardless of their size."""


@dataclass(frozen=True)
class GroupFile:
    """File of a table, with its size in bytes."""

    path: str
    size: int
    rows: int


@dataclass(frozen=True)
class FileGroup:
    """File group: the records with IDs greater than ``after`` (``None``: no lower bound) and at most ``through``
    (``None``: no upper bound).

    :param is_shared: whether one of its files has records of another group, so that both groups must be rewritten.
    """

    after: str | None
    through: str | None
    files: tuple[GroupFile, ...] = ()
    is_shared: bool = False


def file_groups_of_table(files: Mapping[str, Mapping[str, Any]], more: Iterable[str] = ()) -> tuple[FileGroup, ...]:
    """Return the file groups of a table, in the order of IDs. They cover all IDs, even if the table has no files.

    :param files: the live files by path, as in ``TableVersion``.
    :param more: additional IDs at which a group must end.
    """
    groups = _groups(files)
    ends = sorted({*(last for _, last, _ in groups[:-1] if last is not None), *more})
    file_groups = []
    for after, through in pairwise([None, *ends, None]):
        overlapping = [group for group in groups if _meets(group, after, through)]
        is_shared = any(not _is_inside(group, after, through) for group in overlapping)
        file_groups.append(
            FileGroup(after, through, tuple(file for _, _, members in overlapping for file in members), is_shared)
        )
    return tuple(file_groups)


def ends_of(file_groups: Sequence[FileGroup]) -> tuple[str, ...]:
    """Return the last ID of every file group but the last one."""
    return tuple(file_group.through for file_group in file_groups if file_group.through is not None)


def parts(size: float, rows: int, target: int = TARGET_BYTES) -> int:
    """Return the number of files for some bytes and rows. A file above 1.5 times its target size is split."""
    by_size = round(size / target) if size > 1.5 * target else 1
    return max(1, by_size, -(-rows // TARGET_ROWS))


def quantiles(ids: Sequence[Id], count: int) -> list[Id]:
    """Return the IDs that divide these into ``count`` ranges of about equal size; fewer if there are few IDs.

    :param ids: sorted IDs, or their indexes.
    """
    places = [len(ids) * number // count - 1 for number in range(1, count)]
    return sorted({ids[place] for place in places if 0 <= place < len(ids) - 1})


_Group = tuple[str | None, str | None, list[GroupFile]]


def _groups(files: Mapping[str, Mapping[str, Any]]) -> list[_Group]:
    """Return overlapping files together, with their first and last ID (``None``: not known), in order."""
    members = {path: GroupFile(path, file["size_bytes"], file["num_records"] or 0) for path, file in files.items()}
    ranges = {path: (file.get("min.Id"), file.get("max.Id")) for path, file in files.items()}
    id_ranges = [
        (first, last, path) for path, (first, last) in ranges.items() if first is not None and last is not None
    ]
    if len(id_ranges) < len(files):
        return [(None, None, list(members.values()))]
    groups: list[tuple[str, str, list[GroupFile]]] = []
    for first, last, path in sorted(id_ranges):
        if groups and first <= groups[-1][1]:
            earliest, latest, group_files = groups[-1]
            groups[-1] = (earliest, max(latest, last), [*group_files, members[path]])
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
