"""Random workload of one seed on its own org, replicated window by window and compared with the org.

The caller chooses how to start the job, so that the same seeds run in a Spark session and on a cluster.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from airflow_provider_sfstream._airflow import AirflowSkipException
from airflow_provider_sfstream.actions.tables.replica import read_snapshot
from airflow_provider_sfstream.tables.replica.config import ReplicaConfig
from airflow_provider_sfstream.tables.replica.job import run
from airflow_provider_sfstream.tables.replica.reader import read_replica
from airflow_provider_sfstream.tables.rows.merging import Deletes
from airflow_provider_sfstream.tables.runner.on_spark import SparkEngine
from tests.support.computed_fields import add_computed_fields
from tests.support.event_replica import EventReplica
from tests.support.localorg import LocalOrg
from tests.support.org_workload import TOPIC, OrgWorkload, RandomWindows
from tests.support.refreshing import refresh
from tests.support.replica_comparison import (
    Difference,
    Rows,
    differences,
    dirty_rows,
    org_tables,
    replica_tables,
    without_computed_columns,
)


class Job(Protocol):
    """Job that updates a replica.

    :attr output: URL of the replica's folder.
    :attr deletes: whether deleted records remain in the replica (``soft``) or not (``hard``).
    """

    output: str
    deletes: Deletes

    def apply(self, manifests: Sequence[str]) -> dict[str, Any]:
        """Apply windows, and return the job's metrics."""

    def refresh(self, org: LocalOrg, **scope: Any) -> dict[str, Any]:
        """Run a refresh of a scope; return the task's results by table, empty if it was skipped."""

    def read(self, table: str) -> Any:
        """Return a table as a Spark DataFrame."""


class SessionJob:
    """Job in an existing Spark session."""

    def __init__(self, spark: Any, output: Path, *, deletes: Deletes = "soft") -> None:
        self._spark = spark
        self.output = output.as_uri()
        self.deletes = deletes

    def apply(self, manifests: Sequence[str]) -> dict[str, Any]:
        options = ReplicaConfig(output_url=self.output, manifests=tuple(manifests), deletes=self.deletes)
        return asdict(run(SparkEngine(self._spark), options))

    def refresh(self, org: LocalOrg, **scope: Any) -> dict[str, Any]:
        with connection_to(org) as connection_id, suppress(AirflowSkipException):  # nothing is dirty
            arguments = {"output_url": self.output, "salesforce_conn_id": connection_id, **scope}
            return dict(refresh(self._spark, **arguments)["tables"])
        return {}

    def read(self, table: str) -> Any:
        return read_replica(self._spark, self.output, table)


@contextmanager
def connection_to(org: LocalOrg) -> Iterator[str]:
    """Define an Airflow connection to an org in this process; yield its ID, which is unique for parallel seeds."""
    connection_id = f"org_{org.http_port}"
    variable = f"AIRFLOW_CONN_{connection_id.upper()}"
    os.environ[variable] = json.dumps(org.airflow_connection())
    try:
        yield connection_id
    finally:
        del os.environ[variable]


@dataclass(frozen=True)
class Outcome:
    """Result of a seed.

    :param gaps: number of GAP events.
    :param dirty: number of dirty rows before the last refresh.
    :param unexplained: differences from the org before the last refresh in rows that are not dirty.
    :param differences: differences from the org after the last refresh.
    :param dirty_after: number of dirty rows after the last refresh.
    :param flags_after: flagged tables after the last refresh.
    :param unverified: counts of compared records by table, for tables whose verification found differences.
    """

    seed: int
    events: int
    windows: int
    gaps: int
    dirty: int
    unexplained: list[Difference]
    differences: list[Difference]
    dirty_after: int
    flags_after: list[str]
    unverified: dict[str, dict[str, int]]

    @property
    def is_equal(self) -> bool:
        """Return whether the replica equals the org, has no dirty rows or flags, and passed the verification."""
        return not (self.unexplained or self.differences or self.dirty_after or self.flags_after or self.unverified)


def run_seed(
    seed: int,
    folder: Path,
    job: Job,
    *,
    side_job: Job | None = None,
    runs: int = 2,
    steps: int = 160,
    topic: Callable[[LocalOrg], str] = lambda _: TOPIC,
) -> Outcome:
    """Run a seed.

    :param folder: empty folder for the org and the landing.
    :param side_job: cheaper job on the same replica, for the first window and for repeated windows; default: ``job``.
    :param runs: approximate number of runs of ``job`` for the windows after the first refresh.
    :param steps: approximate number of requests that change records.
    :param topic: function that creates the topic of the change events in a new org, and returns its name.
    """
    rng, side_job = random.Random(f"runs of {seed}"), side_job or job
    with (
        LocalOrg.running(folder / "org") as org,
        OrgWorkload.on(org, seed, diffs=seed % 2 == 0) as workload,
        RandomWindows(org, folder / "lake", seed, topic(org)) as windows,
    ):
        add_computed_fields(org)
        workload.run(steps // 4)
        windows.drain(2, 40)  # the first window may end inside a transaction, so that no event of it is applied
        workload.run(steps // 8)
        side_job.apply(windows.manifests[:1])
        # The tables are new, so the refresh fetches all records, before later events are applied.
        side_job.refresh(org)

        workload.run(steps // 8)
        workload.add_fields()
        workload.run(steps // 4)
        flagged = {workload.overflow()}
        workload.run(steps // 4)
        if seed % 5 == 4:
            org.admin("POST", "/entities/Opportunity/all_records", {})
            flagged.add("Opportunity")
        windows.drain(rng.randint(2, 5), 60)
        windows.drain_rest(rng.choice((100, 1_000)))
        for manifests in random_groups(windows.manifests, runs, rng):
            metrics = job.apply(manifests)

        expected, model = org_tables(workload), EventReplica()
        if job.deletes == "hard":
            expected = {name: without_deleted(rows) for name, rows in expected.items()}
        for manifest in windows.manifests:
            model.apply(manifest)
        before = replica_tables(job.read)
        again = side_job.apply(rng.sample(windows.manifests, min(3, len(windows.manifests))))
        assert again["snapshot"] == metrics["snapshot"], "windows that were applied before changed the replica"
        job.refresh(org)
        computed = job.refresh(org, scope="computed")
        assert all(table["differed"] is not None for table in computed.values())
        verified = job.refresh(org, scope="all", verify=True)
    after = replica_tables(job.read)
    return Outcome(
        seed=seed,
        events=windows.events,
        windows=len(windows.manifests),
        gaps=model.gaps,
        dirty=dirty_rows(before),
        unexplained=[
            one
            for one in differences(without_computed_columns(expected), without_computed_columns(before))
            if one.table not in flagged and _trusted(one, before)
        ],
        differences=differences(expected, after),
        dirty_after=dirty_rows(after),
        flags_after=[name for name, table in read_snapshot(job.output, None).tables.items() if table.flag],
        unverified={
            name: table["records"]
            for name, table in verified.items()
            if table["differing_ranges"] or table["records"]["equal"] != len(after[name])
        },
    )


def random_groups(manifests: Sequence[str], runs: int, rng: random.Random) -> Iterator[list[str]]:
    """Yield the windows in about ``runs`` groups, with repetitions, omissions and random order inside a group.

    The job applies omitted windows automatically. They may follow in a later group, like a retry.
    """
    start = 0
    size = -(-len(manifests) // runs)
    while start < len(manifests):
        end = min(start + rng.randint(1, 2 * size - 1), len(manifests))
        group = list(manifests[start:end])
        if rng.random() < 0.5:
            group = group[-1:]
        if rng.random() < 0.5 and start:
            group.append(rng.choice(manifests[:start]))
        rng.shuffle(group)
        yield group
        start = end


def without_deleted(rows: Rows) -> Rows:
    """Return the rows whose records are not deleted."""
    return {record_id: row for record_id, row in rows.items() if not row["_deleted"]}


def _trusted(one: Difference, replica: dict[str, Any]) -> bool:
    row = replica[one.table].get(one.record_id)
    return row is None or not row["_dirty"]
