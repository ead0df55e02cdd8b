"""Fixtures of the system tests: one real Airflow and one local org for each session."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import pytest

from scripts.airflow_stack import AirflowStack, running_airflow, wait_for
from tests.support.airflow_names import PARTITION_MAPPERS, SHARED_STREAMS
from tests.support.java_archive import submit_options
from tests.support.localorg import LocalOrg
from tests.support.packages import POSTGRES
from tests.support.postgres import running_postgres
from tests.support.secret_sweep import SecretSweep, secrets_of
from tests.support.spark import INTERPRETED

ROOT = Path(__file__).resolve().parents[2]
UP = ROOT / ".up"
DATABASE = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
OWN_DAGS = sorted((ROOT / "tests" / "system" / "dags").glob("*.*"))


@pytest.fixture(scope="session")
def system_org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    """Start the local org that the session's Airflow is connected to."""
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as org:
        yield org


@pytest.fixture(scope="session")
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder below which DAGs write."""
    if request.config.getoption("--up"):
        (UP / "lake").mkdir(exist_ok=True)
        return UP / "lake"
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="session")
def metadata_database(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Start a PostgreSQL server for Airflow's database, if PostgreSQL is installed.

    On SQLite, creating a backfill fails while another process writes.
    """
    binaries = POSTGRES.find()
    if binaries is None or request.config.getoption("--up"):
        yield {}
        return
    with running_postgres(binaries) as server:
        yield {DATABASE: server.new_database().render_as_string(hide_password=False)}


@pytest.fixture(scope="session")
def session_airflow(
    request: pytest.FixtureRequest,
    system_org: LocalOrg,
    lake: Path,
    metadata_database: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[AirflowStack]:
    """Start Airflow with the example DAGs, the test DAGs, and connections to the org, Spark and a replay table."""
    with ExitStack() as ends:
        if request.config.getoption("--up"):
            stack = AirflowStack.running_in(UP / "airflow")
            ends.enter_context(emptied(stack, lake))
        else:
            stack = own_airflow(lake, metadata_database, tmp_path_factory)
            ends.enter_context(running_airflow(stack, triggerer=True))
        replays = tmp_path_factory.mktemp("store") / "replay.db"
        stack.add_connection("salesforce_default", **system_org.airflow_connection())
        history = {"history_server": "http://history.example.com:18080"}  # only a target of links; no such server runs
        stack.add_connection("spark_default", conn_type="spark", host="local[2]", extra=history)
        stack.add_connection("sfstream_replay_store", conn_type="sqlite", host=str(replays))
        if request.config.getoption("--up"):
            yield stack
            return
        sweep = SecretSweep(secrets_of(system_org))
        with sweep.command_lines():
            yield stack
        sweep.files(stack.home, lake, replays.parent, Path(stack.environment["SFSTREAM_TEST_MARKERS"]))
        sweep.database(metadata_database.get(DATABASE) or f"sqlite:///{stack.home}/airflow.db")
        assert sweep.found == [], "a file, the database or a command line contains a secret"
        assert sweep.text_count > 1_000


@pytest.fixture(scope="module")
def airflow(session_airflow: AirflowStack) -> Iterator[AirflowStack]:
    """Return the session's Airflow. After the module, pause its DAGs so that they do not disturb other tests."""
    yield session_airflow
    for dag in session_airflow.api("GET", "/dags", params={"limit": 1000})["dags"]:
        if not dag["is_paused"]:
            session_airflow.pause(dag["dag_id"])
        if dag["timetable_summary"] == "Asset":  # each loop of the scheduler reads the queued events of paused DAGs
            with suppress(RuntimeError):  # no queued events
                session_airflow.api("DELETE", f"/dags/{dag['dag_id']}/assets/queuedEvents")


def own_airflow(
    lake: Path, metadata_database: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> AirflowStack:
    """Return an Airflow that is not yet started."""
    dags = tmp_path_factory.mktemp("dags")
    home = tmp_path_factory.mktemp("airflow")
    (home / "spark-events").mkdir()
    # Spark's event log contains all its settings, so it is searched for secrets too.
    event_log = {"enabled": "true", "compress": "false", "dir": (home / "spark-events").as_uri()}
    spark_settings = INTERPRETED | {f"spark.eventLog.{name}": value for name, value in event_log.items()}
    # A DAG that a test does not pause again must not start a scheduled run while other tests wait for its events.
    late = f"{datetime.now(UTC) - timedelta(minutes=5):%M %H} * * *"
    for source in (*(ROOT / "dags").glob("*.*"), *OWN_DAGS):
        text = source.read_text()
        if all(name not in text for name in OF_LATER_AIRFLOWS):
            (dags / source.name).write_text(text.replace("*/15 * * * *", late))
    return AirflowStack(
        home,
        dags,
        {
            **metadata_database,
            "SFSTREAM_LAKE": str(lake),
            "SFSTREAM_TEST_MARKERS": str(tmp_path_factory.mktemp("markers")),
            "SPARK_SUBMIT_OPTS": submit_options(spark_settings),
            # The files do not change, and parsing them again and again takes most of a core.
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
            "AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY": "1",
            # The last hour of the hourly DAGs ended 15 minutes ago, longer than their grace period. The next one ends
            # in 45 minutes, after their tests, which run first (conftest.py).
            "SFSTREAM_TEST_MINUTE": str((datetime.now(UTC).minute - 15) % 60),
            # Each test unpauses its own DAGs. DAGs that a topic starts would otherwise run on the events of every test.
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
        },
    )


OF_LATER_AIRFLOWS = [
    *([] if SHARED_STREAMS else ["salesforce_topic_asset", "MessageQueueTrigger"]),
    *([] if PARTITION_MAPPERS else ["StartOfHourMapper"]),
]
"""Names that DAG files import and that this Airflow version lacks, or for which the package rejects this version."""


@contextmanager
def emptied(stack: AirflowStack, lake: Path) -> Iterator[None]:
    """Empty the Airflow of ``make up`` and add the test DAGs for a ``with`` block.

    This deletes its runs, its recorded positions and its lake, and pauses its DAGs.
    """
    stack.kill_component = lambda name: pytest.skip(f"the test kills the {name}, which belongs to `make up`")  # type: ignore[method-assign]
    forget_runs(stack)
    for variable in stack.variables("sfstream"):
        stack.api("DELETE", f"/variables/{quote(variable['key'], safe='')}")
    for folder in (lake, Path(stack.environment["SFSTREAM_TEST_MARKERS"])):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    ours = [stack.dags_folder / source.name for source in OWN_DAGS]
    for path, source in zip(ours, OWN_DAGS, strict=True):
        path.unlink(missing_ok=True)
        path.symlink_to(source)
    try:
        yield
    finally:
        for path in ours:
            path.unlink()


def forget_runs(stack: AirflowStack) -> None:
    """Pause every DAG, end its runs and delete them."""
    dag_ids = [dag["dag_id"] for dag in stack.api("GET", "/dags", params={"limit": 1000})["dags"]]
    for dag_id in dag_ids:
        stack.pause(dag_id)
        for run_id, state in stack.run_states(dag_id).items():
            if state not in ("success", "failed"):
                stack.api("PATCH", f"/dags/{dag_id}/dagRuns/{quote(run_id)}", json={"state": "failed"})
    # The scheduler crashes if a run is deleted while it processes that run.
    wait_for(lambda: stack.task_processes() == [], 120, "the tasks of `make up` to end")
    for dag_id in dag_ids:
        stack.api("DELETE", f"/dags/{dag_id}")


@pytest.fixture(scope="session")
def past_org(session_airflow: AirflowStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    """Start an org for backfills only. Its connection has the org ID, so that backfills need no login to learn it."""
    with LocalOrg.running(tmp_path_factory.mktemp("past_org")) as org:
        # The org soon sends empty responses: a drain that starts from "latest" waits for one.
        org.knobs(keepalive_seconds=0.5, cometd_connect_seconds=0.5)
        session_airflow.add_connection("salesforce_backfill", **org.airflow_connection(organization_id=org.org_id))
        yield org
