"""What shall go wrong with the commits of managed subscriptions. Decided here, carried out where they are served."""

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
    """Strikes the next ``times`` commits of a subscription, after it let ``after`` of them pass.

    ``developer_name`` is ``None`` for every subscription. ``error`` is the kind of a refusal; ``ending`` is how the
    stream ends, ``None`` for one that goes on.
    """

    name: str
    developer_name: str | None = None
    times: int = 1
    after: int = 0
    error: str = FAILED
    ending: CallEnded | None = None


class ManagedFaults:
    """All faults of commits in force."""

    def __init__(self) -> None:
        self._faults: list[CommitFault] = []

    @staticmethod
    def names() -> list[str]:
        """Return what :meth:`add` knows."""
        return list(_NAMES)

    def add(self, name: str, body: Mapping[str, Any]) -> None:
        """Cause a fault from now on.

        :param body: ``developer_name``, ``times``, ``after``; ``error`` of a refusal; how the stream ends otherwise:
            ``how`` is ``"reset"`` by default, and ``"none"`` for a stream that goes on.
        :raises ValueError: if the body does not describe one; nothing was changed.
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
        """Return the fault that strikes a commit of this subscription now, and count it; ``None`` if none does."""
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
        """Let every commit pass."""
        self._faults.clear()

    def as_list(self) -> list[dict[str, Any]]:
        """Return the faults in force, JSON-able."""
        return [asdict(fault) for fault in self._faults]


def _check(fault: CommitFault) -> None:
    counts = (("times", fault.times, 1), ("after", fault.after, 0))
    for name, count, least in counts:
        if isinstance(count, bool) or not isinstance(count, int) or count < least:
            raise ValueError(f"{name}={count!r} must be a whole number of at least {least}")
    if fault.error not in COMMIT_ERRORS:
        raise ValueError(f"error={fault.error!r} must be one of {', '.join(COMMIT_ERRORS)}")
