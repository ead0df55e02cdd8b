"""Drains whose first try kills its own task process (SIGKILL) at a chosen line; retries are not killed.

There is one DAG for each replay store and line. This file patches the faults into the package, which has no option for
them.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator

LINES = ("undisturbed", "in_drain", "before_manifest", "before_position", "after_position")
MANAGED_LINES = (*LINES, "before_commit", "before_acknowledgement", "after_acknowledgement")


def kill_self(*_: Any) -> None:
    """End this process as an out-of-memory killer would."""
    os.kill(os.getpid(), signal.SIGKILL)


def before(owner: type, method: str, fault: Callable[..., None]) -> None:
    """Call ``fault`` first whenever ``owner.method`` is called."""
    original = getattr(owner, method)

    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        fault(self, *args)
        return original(self, *args, **kwargs)

    setattr(owner, method, wrapped)


def arm(line: str) -> None:
    """Make this process kill itself when it reaches ``line``."""
    from airflow_provider_sfstream.landing.catalog import LandingCatalog
    from airflow_provider_sfstream.landing.parquet import ParquetWindowWriter
    from airflow_provider_sfstream.replay_stores.document.store import DocumentReplayStore
    from airflow_provider_sfstream.replay_stores.table.store import TableReplayStore
    from airflow_provider_sfstream.replay_windows.managed_windows import CommittedWindows
    from airflow_provider_sfstream.salesforce.pubsub.managed_stream import ManagedStream
    from airflow_provider_sfstream.streams.managed.source import ManagedSource

    appended = []
    if line == "in_drain":
        before(
            ParquetWindowWriter,
            "append",
            lambda _, batch: (appended.append(len(batch)), sum(appended) > 400 and kill_self())[0],
        )
    elif line == "before_manifest":
        before(LandingCatalog, "write_manifest", kill_self)
    elif line == "before_position":
        before(DocumentReplayStore, "advance", kill_self)
        before(TableReplayStore, "advance", kill_self)
    elif line == "after_position":
        before(LandingCatalog, "remove_unlisted", kill_self)
    elif line == "before_commit":
        before(ManagedSource, "commit", kill_self)
    elif line == "before_acknowledgement":
        before(ManagedStream, "wait_for_commit", kill_self)
    elif line == "after_acknowledgement":
        before(CommittedWindows, "record", kill_self)


class KilledDrainReplayWindowOperator(DrainReplayWindowOperator):
    """Drain operator whose process kills itself on the first try."""

    def execute(self, context: Any) -> dict[str, Any]:
        """Arm the fault on the first try of the first run, then drain."""
        line = self.dag.dag_id.rsplit(".", 1)[1]
        marker = Path(os.environ["SFSTREAM_TEST_MARKERS"]) / self.dag.dag_id
        if not marker.exists():
            marker.touch()
            arm(line)
        return super().execute(context)


def consumer(store: str, line: str) -> dict[str, str]:
    """Return the arguments that give each of these drains its own position."""
    if store == "managed":
        return {"managed_subscription": f"Killed_{line}"}
    return {"subscription": f"{store}-{line}", "replay_store": store}


for store, lines in (("variable", LINES), ("table", LINES), ("managed", MANAGED_LINES)):
    for line in lines:
        with DAG(
            f"killed.{store}.{line}", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC), max_active_runs=1
        ) as dag:
            KilledDrainReplayWindowOperator(
                task_id="drain",
                topic="/event/Killed__e",
                landing_url=os.environ["SFSTREAM_LAKE"],
                **consumer(store, line),
                max_events=1000,
                idle_timeout=2,
                retry_delay=timedelta(seconds=1),
            )
        globals()[dag.dag_id] = dag
