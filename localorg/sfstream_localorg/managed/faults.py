"""Faults of commits of managed subscriptions. This module decides when a fault applies; the stream applies it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from sfstream_localorg.managed.commits import COMMIT_ERRORS, FAILED
from sfstream_localorg.streams.endings import CallEnded

REFUSE_COMMIT = "managed_refuse_commit"
LOSE_COMMIT = "managed_lose_commit"
LOSE_ACKNOWLEDGEMENT = "managed_lose_acknowledgement"
_NAMES = (REFUSE_COMMIT, LOSE_COMMIT, LOSE_ACKNOWLEDGEMENT)
_ENDING = ("how", "code", "status", "message")


@dataclass
class CommitFault:
    """A fault of the next ``times`` commits of a subscription, after ``after`` commits without a fault.

    ``developer_name`` is ``None`` for every subscription. ``error`` is the kind of error of a refusal. ``ending`` is
    the end of the stream, ``None`` if the stream continues.
    """

    name: str
    developer_name: str | None = None
    times: int = 1
    after: int = 0
    error: str = FAILED
    ending: CallEnded | None = None


class ManagedFaults:
    """All active faults of commits."""

    def __init__(self) -> None:
        self._faults: list[CommitFault] = []

    @staticmethod
    def names() -> list[str]:
        """Return the names of faults that :meth:`add` accepts."""
        return list(_NAMES)

    def add(self, name: str, body: Mapping[str, Any]) -> None:
        """Add a fault.

        :param body: ``developer_name``, ``times``, ``after``; for a refusal ``error``; for other faults the end of the
            stream, where ``how`` is ``"reset"`` by default, and ``"none"`` if the stream continues.
        :raises ValueError: if the body is invalid; nothing was changed.
        """
        own = ("error",) if name == REFUSE_COMMIT else _ENDING
        known = ("developer_name", "times", "after", *own)
        if unknown := set(body) - set(known):
            raise ValueError(f"{name} has no {', '.join(sorted(unknown))}; there are {', '.join(known)}")
        fault = CommitFault(name, **{key: body[key] for key in body if key not in _ENDING})
        _check(fault)
        if name != REFUSE_COMMIT and body.get("how") != "none":
            fault.ending = CallEnded(**{"how": "reset", **{key: body[key] for key in _ENDING if key in body}})
        self._faults.append(fault)

    def take(self, developer_name: str) -> CommitFault | None:
        """Return the fault that applies to a commit of this subscription, and count it; ``None`` if none applies."""
        for fault in self._faults:
            if fault.developer_name not in (None, developer_name):
                continue
            if fault.after:
                fault.after -= 1
                continue
            fault.times -= 1
            if not fault.times:
                self._faults.remove(fault)
            return replace(fault, ending=fault.ending and replace(fault.ending))
        return None

    def clear(self) -> None:
        """Remove all faults."""
        self._faults.clear()

    def as_list(self) -> list[dict[str, Any]]:
        """Return the active faults as JSON values."""
        return [asdict(fault) for fault in self._faults]


def _check(fault: CommitFault) -> None:
    counts = (("times", fault.times, 1), ("after", fault.after, 0))
    for name, count, least in counts:
        if isinstance(count, bool) or not isinstance(count, int) or count < least:
            raise ValueError(f"{name}={count!r} must be a whole number of at least {least}")
    if fault.error not in COMMIT_ERRORS:
        raise ValueError(f"error={fault.error!r} must be one of {', '.join(COMMIT_ERRORS)}")
