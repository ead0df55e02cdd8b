"""State file of the first part: a replay ID that has expired when the second part runs."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from live_check.events import published
from live_check.login import NotRunError
from live_check.probe import AFTER
from live_check.redaction import hashed
from live_check.run import ProbedOrg, ProbeRun

_DURATION = re.compile(r"(\d+)([hm])")


def duration(text: str) -> timedelta:
    """Parse a duration such as ``73h`` or ``30m``.

    :raises ValueError: if the text has another format.
    """
    written = _DURATION.fullmatch(text)
    if written is None:
        raise ValueError(f"{text!r} is not a duration such as 73h")
    return timedelta(hours=int(written[1])) if written[2] == "h" else timedelta(minutes=int(written[1]))


def left_replay_id(org: ProbedOrg) -> bytes:
    """Publish an event and return its replay ID."""
    return published(ProbeRun(org, most_events=1), 1)[0]


def leave(org: ProbedOrg, path: Path) -> None:
    """Publish an event and store its replay ID and the time."""
    left = {
        "org": hashed(org.login.org_id),
        "left_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "replay_id": left_replay_id(org).hex(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(left, indent=1) + "\n")


def read_left(path: Path, after: timedelta, *, org_id: str, now: datetime) -> bytes:
    """Return the replay ID that the first part stored.

    :raises NotRunError: if there is none, it belongs to another org, or it was stored less than ``after`` ago.
    """
    try:
        left = json.loads(path.read_text())
        left_at, replay_id = datetime.fromisoformat(left["left_at"]), bytes.fromhex(left["replay_id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotRunError(
            f"{path} is no state file of a first part ({type(error).__name__}). Run `make live-check` first, and "
            f"--{AFTER} after its events have expired. Nothing was contacted."
        ) from None
    if left.get("org") != hashed(org_id):
        raise NotRunError(f"{path} belongs to another org than {org_id}. Nothing was published or changed.")
    if now < left_at + after:
        raise NotRunError(
            f"{path} was written at {left_at:%Y-%m-%d %H:%M} UTC. Retry after {left_at + after:%Y-%m-%d %H:%M} UTC. "
            "Nothing was published or changed."
        )
    return replay_id
