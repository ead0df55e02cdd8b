"""Windows in, tables out: the event log job as its tests run it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow_provider_sfstream.spark.event_log.job import EventLogMetrics, EventLogOptions, run
from tests.support.json_windows import JsonEvent, land_json_window
from tests.support.landing_files import LandedEvent, land_window

DAY = datetime(2026, 1, 10, tzinfo=UTC)
SPAN = (DAY, DAY + timedelta(days=3))


class Lake:
    """A landing and tables in a temporary folder."""

    def __init__(self, spark: Any, folder: Path, writer: Any = "auto") -> None:
        self.writer = writer
        self.spark, self.landing, self.output = spark, folder / "landing", folder / "tables"

    def land(self, window_id: str, events: list[LandedEvent], schemas: dict[str, Any], **given: Any) -> str:
        return land_window(self.landing, window_id, events, schemas, **{"event_times": SPAN} | given)

    def land_json(
        self,
        window_id: str,
        topic: str,
        events: Sequence[JsonEvent],
        schemas: Mapping[str, dict[str, Any]] | None = None,
        **given: Any,
    ) -> str:
        return land_json_window(self.landing, window_id, topic, events, schemas, **given)

    def run(self, *manifests: str, **given: Any) -> EventLogMetrics:
        return run(self.spark, EventLogOptions(manifests, self.output.as_uri(), **{"writer": self.writer} | given))

    def rows(self, table: str = "Order__e") -> list[dict[str, Any]]:
        frame = self.spark.read.option("mergeSchema", True).parquet(str(self.output / table))
        rows = [row.asDict(recursive=True) for row in frame.collect()]
        return sorted(rows, key=lambda row: (row.get("_replay_id") or row.get("replay_id"), row["window_id"]))

    def files(self) -> dict[str, bytes]:
        return {str(p.relative_to(self.output)): p.read_bytes() for p in self.output.rglob("*.parquet")}


def as_utc(local: datetime) -> datetime:
    """Spark hands timestamps over in the local time zone, without naming it."""
    return local.astimezone(UTC)
