"""Which landed windows, and which drains, give the events of an interval: pure, without any I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_provider_sfstream.protocol.streams import Gap, ReplayWindow, Span


@dataclass(frozen=True)
class BusDrain:
    """A stretch of the interval that has to be drained: the events after ``after`` (``None``: from the earliest)."""

    span: Span
    after: bytes | None


@dataclass(frozen=True)
class IntervalPlan:
    """What gives the events of an interval, in order of time.

    ``landed`` are the recorded windows to read, ``drains`` what has to be read from Salesforce, ``missing`` what can no
    longer be had. Together they cover the interval.
    """

    landed: tuple[ReplayWindow, ...]
    drains: tuple[BusDrain, ...]
    missing: tuple[Span, ...]


def plan_interval(
    interval: Span,
    *,
    grace: timedelta,
    windows: Sequence[ReplayWindow],
    gaps: Sequence[Gap],
    horizon: datetime,
) -> IntervalPlan:
    """Return the plan of ``interval``."""
    raise NotImplementedError
