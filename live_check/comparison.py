"""Comparison of the answers of two orgs: the table *observed / local org / evidence*. Without I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sfstream_localorg.evidence import evidence_of

NOTHING = "(nothing)"
SKIPPED = ".skipped"
"""Path suffix of a part of an answer that was skipped because the org lacks a requirement."""
WIDTH = 46


@dataclass(frozen=True)
class Row:
    """One value of an answer: of the org, of the local org, and the evidence for the local org's value."""

    path: str
    observed: str
    local: str
    evidence: str

    @property
    def differs(self) -> bool:
        return self.observed != self.local


def rows(observed: Mapping[str, Any], local: Mapping[str, Any]) -> list[Row]:
    """Return a row for each value in the answers to probes that both orgs answered.

    :param observed: results of the org by probe.
    :param local: results of the local org by probe.
    """
    found: list[Row] = []
    for probe, result in observed.items():
        other = local.get(probe, {})
        if "answer" not in result or "answer" not in other:
            continue
        ours, theirs = (dict(_leaves(probe, each["answer"])) for each in (result, other))
        absent = tuple(f"{_whole(path)}." for path in {**ours, **theirs} if path.endswith(SKIPPED))
        found += [
            Row(path, ours.get(path, NOTHING), theirs.get(path, NOTHING), evidence_of(path).evidence)
            for path in [*ours, *(path for path in theirs if path not in ours)]
            if not path.startswith(absent)
        ]
    return found


def unanswered(results: Mapping[str, Any]) -> dict[str, str]:
    """Return the reasons for missing answers, by probe name or by the path of a part of an answer."""
    found: dict[str, str] = {}
    for probe, result in results.items():
        if "answer" in result:
            leaves = _leaves(probe, result["answer"])
            found |= {_whole(path): why for path, why in leaves if path.endswith(SKIPPED)}
        else:
            found[probe] = result.get("skipped") or result.get("failed") or "no answer"
    return found


def _whole(path: str) -> str:
    return path.removesuffix(SKIPPED)


def _leaves(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            yield from _leaves(f"{path}.{key}", each)
    else:
        yield path, value if isinstance(value, str) else json.dumps(value)


def table(found: Sequence[Row], *, only_differences: bool = False) -> str:
    """Return rows as text, with a mark on the rows that differ."""
    shown = [row for row in found if row.differs or not only_differences]
    if not shown:
        return "no differences"
    widths = [
        max(len(row.path) for row in shown),
        *(min(WIDTH, _longest(shown, name)) for name in ("observed", "local")),
    ]
    lines = [_line(widths, " ", "", "observed", "local org", "evidence")]
    lines += [_line(widths, "≠" if r.differs else " ", r.path, r.observed, r.local, r.evidence) for r in shown]
    return "\n".join(lines)


def _longest(shown: Sequence[Row], name: str) -> int:
    return max(9, *(len(getattr(row, name)) for row in shown))


def _line(widths: Sequence[int], mark: str, *cells: str) -> str:
    cut = [_cut(cell, width) for cell, width in zip(cells, widths, strict=False)]
    return f"{mark} {'  '.join(cut)}  {cells[-1]}".rstrip()


def _cut(text: str, width: int) -> str:
    short = text if len(text) <= width else f"{text[: width - 1]}…"
    return f"{short:{width}}"
