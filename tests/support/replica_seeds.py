"""One seed: a random workload on an org of its own, made into a replica window after window, compared with the org.

How the job is started is the caller's business, so that the same seeds run in a session and on a cluster.
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
    carried,
    differences,
    dirty_rows,
    org_tables,
    replica_tables,
)


class Job(Protocol):
    """Brings a replica forward.

    :attr output: the replica's folder.
    :attr deletes: whether deleted records stay in it (``soft``) or not (``hard``).
    """

    output: str
    deletes: Deletes

    def apply(self, manifests: Sequence[str]) -> dict[str, Any]:
        """Apply windows; return the job's metrics."""

    def refresh(self, org: LocalOrg, **scope: Any) -> dict[str, Any]:
        """Run a refresh of a scope; return the task's results by table, none if it was skipped."""

    def read(self, table: str) -> Any:
        """Return a table as a Spark DataFrame."""


class SessionJob:
    """Runs the job in a Spark session that is there."""

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
    """Have an Airflow connection to an org in this process; yield its id. Seeds may run side by side."""
    connection_id = f"org_{org.http_port}"
    variable = f"AIRFLOW_CONN_{connection_id.upper()}"
    os.environ[variable] = json.dumps(org.airflow_connection())
    try:
        yield connection_id
    finally:
        del os.environ[variable]


@dataclass(frozen=True)
class Outcome:
    """What came of a seed.

    :param gaps: GAP events among the events.
    :param dirty: rows to fetch before the last refresh.
    :param unexplained: differences from the org before the last refresh in rows that the replica trusts.
    :param differences: differences after it.
    :param dirty_after: rows to fetch after it.
    :param flags_after: tables to fetch after it.
    :param not_proved: what a comparison with the org, after it, found not to be equal, by table.
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
    not_proved: dict[str, dict[str, int]]

    @property
    def is_equal(self) -> bool:
        """Whether replica and org are the same, and the replica knows it."""
        return not (self.unexplained or self.differences or self.dirty_after or self.flags_after or self.not_proved)


def run_seed(
    seed: int,
    folder: Path,
    job: Job,
    *,
    aside: Job | None = None,
    runs: int = 2,
    steps: int = 160,
    topic: Callable[[LocalOrg], str] = lambda _: TOPIC,
) -> Outcome:
    """Run a seed.

    :param folder: an empty one, for the org and the landing.
    :param aside: does what need not be done by ``job``, on the same replica: the beginning, and windows given again.
    :param runs: how often about the job is started for windows of the second part.
    :param steps: requests that change records, about.
    :param topic: returns the topic of the change events, made on a new org.
    """
    rng, aside = random.Random(f"runs of {seed}"), aside or job
    with (
        LocalOrg.running(folder / "org") as org,
        OrgWorkload.on(org, seed, diffs=seed % 2 == 0) as workload,
        RandomWindows(org, folder / "lake", seed, topic(org)) as windows,
    ):
        add_computed_fields(org)
        workload.run(steps // 4)
        windows.drain(2, 40)  # what the first has may be the beginning of a transaction, and nothing be applied
        workload.run(steps // 8)
        aside.apply(windows.manifests[:1])
        # The tables are new, so all records are fetched, while later events are on their way.
        aside.refresh(org)

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
        for manifests in in_some_order(windows.manifests, runs, rng):
            metrics = job.apply(manifests)

        expected, model = org_tables(workload), EventReplica()
        if job.deletes == "hard":
            expected = {name: without_deleted(rows) for name, rows in expected.items()}
        for manifest in windows.manifests:
            model.apply(manifest)
        before = replica_tables(job.read)
        again = aside.apply(rng.sample(windows.manifests, min(3, len(windows.manifests))))
        assert again["snapshot"] == metrics["snapshot"], "windows that were applied changed the replica"
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
            for one in differences(carried(expected), carried(before))
            if one.table not in flagged and _trusted(one, before)
        ],
        differences=differences(expected, after),
        dirty_after=dirty_rows(after),
        flags_after=[name for name, table in read_snapshot(job.output, None).tables.items() if table.flag],
        not_proved={
            name: table["records"]
            for name, table in verified.items()
            if table["differing_ranges"] or table["records"]["equal"] != len(after[name])
        },
    )


def in_some_order(manifests: Sequence[str], runs: int, rng: random.Random) -> Iterator[list[str]]:
    """Yield the windows in about so many groups, some twice, and some that come before those that they follow: the job
    catches up with those by itself, which come later like a retry."""
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
    """Return the rows of records that are not deleted."""
    return {record_id: row for record_id, row in rows.items() if not row["_deleted"]}


def _trusted(one: Difference, replica: dict[str, Any]) -> bool:
    row = replica[one.table].get(one.record_id)
    return row is None or not row["_dirty"]
