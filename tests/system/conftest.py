"""A real Airflow and a local org for the system tests: one of each for the session."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from scripts.airflow_stack import AirflowStack, running_airflow
from tests.support.localorg import LocalOrg
from tests.support.packages import POSTGRES
from tests.support.postgres import running_postgres

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def system_org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    """A local org that the Airflow of the session is connected to."""
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as org:
        yield org


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder below which DAGs write."""
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="session")
def metadata_database() -> Iterator[dict[str, str]]:
    """Airflow's database where PostgreSQL is installed: on SQLite it takes backfills only while nothing else writes."""
    binaries = POSTGRES.find()
    if binaries is None:
        yield {}
        return
    with running_postgres(binaries) as server:
        yield {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": server.new_database().render_as_string(hide_password=False)}


@pytest.fixture(scope="session")
def airflow(
    system_org: LocalOrg, lake: Path, metadata_database: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AirflowStack]:
    """Airflow with the example DAGs, the tests' own, and connections to the org, to Spark and to a replay table."""
    dags = tmp_path_factory.mktemp("dags")
    # A DAG that a test left unpaused ticks when the tests are over: its run would take what others wait for.
    late = (datetime.now(UTC) - timedelta(minutes=5)).minute
    for source in (*(ROOT / "dags").glob("*.py"), *(ROOT / "tests" / "system" / "dags").glob("*.py")):
        (dags / source.name).write_text(source.read_text().replace("*/15 * * * *", f"{late} * * * *"))
    markers = tmp_path_factory.mktemp("markers")
    stack = AirflowStack(
        tmp_path_factory.mktemp("airflow"),
        dags,
        {
            **metadata_database,
            "SFSTREAM_LAKE": str(lake),
            "SFSTREAM_TEST_MARKERS": str(markers),
            # Spark jobs of seconds: Java's second compiler would cost more than it saves.
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            # Hourly DAGs tick half an hour from now, so that none does while tests run.
            "SFSTREAM_TEST_MINUTE": str((datetime.now(UTC).minute + 30) % 60),
            # Each test lets its own DAGs run: those that a topic starts would follow the events of every test.
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
        },
    )
    with running_airflow(stack, triggerer=True):
        stack.add_connection("salesforce_default", **system_org.airflow_connection())
        stack.add_connection("spark_default", conn_type="spark", host="local[2]")
        stack.add_connection(
            "sfstream_replay_store", conn_type="sqlite", host=str(tmp_path_factory.mktemp("store") / "replay.db")
        )
        yield stack


@pytest.fixture(scope="session")
def past_org(airflow: AirflowStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    """An org that only backfills call; its connection names it, so that no login is needed to know it."""
    with LocalOrg.running(tmp_path_factory.mktemp("past_org")) as org:
        org.knobs(keepalive_seconds=2)  # a drain that begins at "latest" waits for the first
        airflow.add_connection("salesforce_backfill", **org.airflow_connection(organization_id=org.org_id))
        yield org
