"""What the result of a task that succeeded says to be lost, or set aside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from airflow_provider_sfstream.redaction import redacted


@dataclass(frozen=True)
class Losses:
    """Gaps, missing spans and quarantined rows. True where there is any.

    :param events: stretches of a stream that can no longer be read, each as one sentence.
    :param quarantined: rows that could not be decoded, and wait.
    :param is_uncertain: no event is known to be lost: ``events`` has an uncertain gap, and nothing else.
    """

    events: tuple[str, ...] = ()
    quarantined: int = 0
    is_uncertain: bool = False

    def __bool__(self) -> bool:
        return bool(self.events or self.quarantined)

    @classmethod
    def of(cls, result: Any) -> Self:
        """Return what the XCom result of a task of this package says; nothing of any other result."""
        if not isinstance(result, Mapping):
            return cls()
        gap, missing = result.get("gap"), result.get("missing")
        events = [_gap(gap)] if isinstance(gap, Mapping) else []
        events += [_missing(span) for span in missing if isinstance(span, Mapping)] if isinstance(missing, list) else []
        quarantined = result.get("quarantined")
        is_uncertain = isinstance(gap, Mapping) and gap.get("uncertain") is True and len(events) == 1
        return cls(tuple(events), quarantined if type(quarantined) is int else 0, is_uncertain)

    @property
    def what(self) -> str:
        """What happened, in one sentence."""
        if self.is_uncertain:
            return "Possible loss; nothing is known to be lost. What was there is stored, and the gap is recorded."
        if self.events:
            return "Events were lost. What was there is stored, and the loss is recorded."
        if self.quarantined:
            return "Rows could not be decoded, and are in quarantine."
        return "All is well."

    @property
    def lost(self) -> str:
        """What is lost, or set aside."""
        rows = [f"{self.quarantined} rows wait in quarantine."] if self.quarantined else []
        return " ".join([*self.events, *rows]) or "Nothing."

    @property
    def remedy(self) -> str:
        """What to do; empty where there is nothing."""
        fetch = "Fetch from Salesforce what the events told of, if it is needed." if self.events else ""
        return " ".join(filter(None, (fetch, "Take the rows back from quarantine." if self.quarantined else "")))


def _gap(gap: Mapping[str, Any]) -> str:
    since = gap.get("since") or "an unknown time"
    events = "Possibly events" if gap.get("uncertain") else "Events"
    return redacted(f"{events} from {since} on, found out at {gap.get('detected_at')} ({gap.get('reason')}).")


def _missing(span: Mapping[str, Any]) -> str:
    return redacted(f"Events from {span.get('from')} to {span.get('to')}.")
