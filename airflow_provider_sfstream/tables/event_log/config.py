"""Config and metrics of the ``event_log`` job."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.job_config import WindowsJobConfig

if TYPE_CHECKING:
    from airflow_provider_sfstream.salesforce.streams import ReplayWindow


@dataclass(frozen=True, kw_only=True)
class EventLogConfig(WindowsJobConfig):
    """Arguments of the ``event_log`` job, besides those of :class:`WindowsJobConfig`.

    With bounds, the job writes the events that count in ``[event_time_from, event_time_to)``. An event counts at its
    event time, but not before ``counts_from`` of its window, and not after it was received.

    :param event_time_from: first event time, with a time zone; ``None``: no bounds.
    :param event_time_to: end of the event times, which is after ``event_time_from``; ``None``: no bounds.
    :param own_windows: IDs of windows that the run of this interval landed. Of these, the job also writes late events:
        those that count before ``late_before`` of the window, because the run of their own interval had ended when
        Salesforce delivered them.
    """

    event_time_from: datetime | None = None
    event_time_to: datetime | None = None
    own_windows: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        first, end = self.event_time_from, self.event_time_to
        for name, time in (("event_time_from", first), ("event_time_to", end)):
            if time is not None and time.tzinfo is None:
                raise ConfigurationError(
                    f"{name}={time.isoformat()} must have a time zone, as in 2026-01-31T00:00:00Z. Nothing was written."
                )
        if (first is None) != (end is None) or (first is not None and end is not None and first >= end):
            raise ConfigurationError(
                "Set both event_time_from and a later event_time_to, or neither of them. Nothing was written."
            )

    def partition_of(self, window: ReplayWindow) -> str:
        """Return the name of the partition that a window is written to.

        A part of a window has its own partition, so that it never replaces the window's. The part with late events has
        another one, because another run of the same interval does not read late events.
        """
        if self.event_time_from is None or self.event_time_to is None:
            return window.window_id
        own = ".own" if window.window_id in self.own_windows else ""
        first, end = self.event_time_from.astimezone(UTC), self.event_time_to.astimezone(UTC)
        return f"{window.window_id}.{first:%Y%m%dT%H%M%S.%fZ}-{end:%Y%m%dT%H%M%S.%fZ}{own}"


@dataclass
class EventLogMetrics:
    """Counts of landed rows: each row was either written or is counted under the reason why not."""

    windows: list[str]
    rows_in: int = 0
    rows_written: int = 0
    duplicates: int = 0
    quarantined: int = 0
    outside_interval: int = 0
    tables: dict[str, int] = field(default_factory=dict)
    decoders: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    application_id: str = ""

    def check(self) -> None:
        """Check that the counts of read and written rows are equal."""
        accounted = self.rows_written + self.duplicates + self.quarantined + self.outside_interval
        if accounted != self.rows_in or self.rows_written != sum(self.tables.values()):
            raise RuntimeError(
                f"The counts of read and written rows differ: {vars(self)}. The landed files are unchanged. Run the "
                "job again, and report this error."
            )
