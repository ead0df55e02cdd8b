"""The services of docker-compose.yaml, started with their own commands without containers, and a fault in each."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from scripts.airflow_stack import PATIENT, wait_for
from tests.support.browser import artifact_folder, browser_page
from tests.support.compose import generated_variables
from tests.support.compose_airflow import DeployedAirflow
from tests.support.compose_deployment import NativeDeployment
from tests.support.deployed_lake import SPARK_ON_A_MOUNT, DeployedLake
from tests.support.localorg import LocalOrg
from tests.support.object_storage import mounted
from tests.support.packages import BROWSER, FUSE, POSTGRES, WEB_CLIENTS, need
from tests.support.secret_sweep import SecretSweep
from tests.support.spark import INTERPRETED

pytestmark = pytest.mark.extended
ROOT = Path(__file__).resolve().parents[3]
TOPIC = "/event/Order__e"
DAGS = "sfstream_micro_batch", "sfstream_account_replica"
WORKERS = ("spark-worker-1", "spark-worker-2")
FIELDS = ("Name", "Phone", "BillingCity", "AnnualRevenue")
ENVIRONMENT = {
    "SPARK_LOCAL_IP": "127.0.0.1",
    # Spark jobs take seconds here, so Java's second compiler costs more than it saves.
    "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # The DAG files do not change, and parsing them every 30 seconds takes CPU time from the test.
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
    "AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY": "20",
    **PATIENT,
}
NOT_BEGUN = (None, "scheduled", "queued")
RUN_SECONDS, UNHEALTHY_SECONDS = 900, 180
SCHEDULER = "airflow-scheduler"
KEEPERS = {"salesforce-org-data", "postgres-data"}


class Deployment:
    """The running services, and the actions of their user."""

    def __init__(self, services: NativeDeployment, began: float) -> None:
        self.services = services
        self.began = began
        secrets = services.variables
        self.airflow = DeployedAirflow(services.port("airflow-api-server", 8080), secrets["AIRFLOW_ADMIN_PASSWORD"])
        self.lake = DeployedLake(services.port("object-storage", 8333), secrets["LAKE_SPARK_SECRET_KEY"])
        self.org = LocalOrg(services.root)
        url = f"http://127.0.0.1:{services.port('salesforce-org', 8080)}"
        self.org.info = {"instance_url": url, "admin_url": f"{url}/admin"}

    def order(self, first: int, count: int) -> None:
        """Publish ``count`` orders, numbered from ``first``."""
        numbers = range(first, first + count)
        self.org.publish(TOPIC, [{"Order_Number__c": f"O-{n:05d}", "Amount__c": n / 4} for n in numbers])

    def account(self, name: str, **values: Any) -> str:
        """Create an account."""
        return str(self.org.rest("POST", "/sobjects/Account", {"Name": name, **values})["id"])

    def trigger(self) -> dict[str, str]:
        """Trigger a run of each DAG; return the run IDs by DAG."""
        return {dag_id: self.airflow.trigger(dag_id) for dag_id in DAGS}

    def wait_for_start(self, runs: Mapping[str, str], task_id: str) -> None:
        """Wait until a task of one of the runs has started."""

        def has_begun() -> bool:
            return any(self.airflow.task_states(*run)[task_id] not in NOT_BEGUN for run in runs.items())

        wait_for(has_begun, RUN_SECONDS, f"{task_id} to begin")

    def wait_for_executor(self) -> str:
        """Wait until an executor runs on a Spark worker, and return that worker.

        Sometimes a scheduler that lost its database hangs. Its health check then fails, and this method restarts it.
        """

        def busy() -> str | None:
            return next((name for name in WORKERS if self.services.services[name].runs("--executor-id")), None)

        for _ in range(RUN_SECONDS // UNHEALTHY_SECONDS):
            with suppress(TimeoutError):
                return wait_for(busy, UNHEALTHY_SECONDS, "an executor")
            if not self.services.services[SCHEDULER].is_healthy():
                self.services.restart(SCHEDULER)
                self.say("restarted the unhealthy scheduler")
        raise TimeoutError(f"no executor in {RUN_SECONDS} s")

    def finish(self, runs: Mapping[str, str]) -> None:
        """Wait until the runs have succeeded."""
        for dag_id, run_id in runs.items():
            state = self.airflow.wait_for_run(dag_id, run_id, RUN_SECONDS)
            assert state == "success", f"{dag_id} {run_id}: {self.airflow.task_states(dag_id, run_id)}"

    def compare(self) -> None:
        """Compare both tables with the org."""
        record = [(each["replay_id"], each["fields"]) for each in self.org.record(TOPIC)]
        published = [(replay_id, one["Order_Number__c"], one["Amount__c"]) for replay_id, one in record]
        assert self.lake.orders() == published
        answer = self.org.rest("GET", f"/queryAll?q=SELECT+Id,IsDeleted,{','.join(FIELDS)}+FROM+Account")
        assert answer["done"]
        records = {
            each["Id"]: (*(each[field] for field in FIELDS), each["IsDeleted"], False) for each in answer["records"]
        }
        assert self.lake.accounts(FIELDS) == records

    def say(self, what: str) -> None:
        """Print a step with the seconds since the start."""
        print(f"[{time.monotonic() - self.began:6.1f} s] {what}", flush=True)


def secrets_of(deployment: Deployment) -> dict[str, str]:
    """Return the texts that must not appear in files, by name: the secrets of ``.env`` and the token prefix."""
    named = deployment.services.variables.items()
    kept = {name: value for name, value in named if name.endswith(("_PASSWORD", "_SECRET", "_KEY"))}
    return {**kept, "access token": f"{deployment.org.admin('GET', '/org')['org_id'][:15]}!"}


def sweep_volumes(sweep: SecretSweep, services: NativeDeployment) -> None:
    """Search the volumes (except those of the org and PostgreSQL), the logs and Airflow's database for secrets."""
    sweep.files(*(path for path in (services.root / "volumes").iterdir() if path.name not in KEEPERS))
    for name, native in services.services.items():
        sweep.search(f"the log of {name}", native.log.read_bytes())
    password = services.variables["AIRFLOW_DATABASE_PASSWORD"]
    sweep.database(f"postgresql+psycopg2://airflow:{password}@127.0.0.1:{services.port('postgres', 5432)}/airflow")


def edited(mount: Path, path: Path, text: str) -> str:
    """Return the content of a mounted file, changed for this test."""
    if path.name == "spark-defaults.conf":
        settings = "\n".join(f"{name} {value}" for name, value in INTERPRETED.items())
        return f"{text}{SPARK_ON_A_MOUNT.format(mount=mount)}{settings}\n"
    # No DAG may start a scheduled run during the test: only the triggered runs are expected.
    return text.replace("*/15 * * * *", f"{datetime.now(UTC) - timedelta(minutes=5):%M %H} * * *")


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Start every service of the profile ``local`` and wait until all are healthy."""
    for package in (POSTGRES, FUSE, WEB_CLIENTS):  # Spark reads and writes the storage through a FUSE mount
        need(package)
    variables = generated_variables(ROOT / ".env.example", SPARK_WORKER_MEMORY="1g", AIRFLOW_PARALLELISM="4")
    began, mount = time.monotonic(), tmp_path_factory.mktemp("mount")
    services = NativeDeployment(
        ROOT / "docker-compose.yaml", variables, "local", environment=ENVIRONMENT, edited=partial(edited, mount)
    )
    with services.watched():
        for name in services:
            services.start(name)
        running = Deployment(services, began)
        services.wait_until_healthy("object-storage")
        with mounted(f"127.0.0.1:{services.port('object-storage', 8888)}", mount, services.root / "mount"):
            services.wait_until_healthy()
            running.say("every service is healthy")
            sweep = SecretSweep(secrets_of(running))
            try:
                with sweep.command_lines():
                    yield running
            finally:
                print(services.logs())
            sweep_volumes(sweep, services)
            assert sweep.found == [], "a volume, a log or the database contains a secret"
            assert sweep.text_count > 1_000


@pytest.mark.timeout(3600)
def test_tables_equal_the_org_after_each_fault(deployment: Deployment) -> None:
    airflow, org, services = deployment.airflow, deployment.org, deployment.services
    org.knobs(keepalive_seconds=2)
    deployment.order(0, 400)
    known = [deployment.account(f"account {n}", AnnualRevenue=n * 1.5) for n in range(40)]
    for dag_id in DAGS:
        airflow.wait_for_dag(dag_id)
        airflow.unpause(dag_id)
    scheduled = {dag_id: wait_for(partial(airflow.run_ids, dag_id), 180, "a run")[0] for dag_id in DAGS}
    deployment.wait_for_start(scheduled, "drain")
    services.kill_leader("postgres")
    deployment.say("killed: PostgreSQL's postmaster")
    worker = deployment.wait_for_executor()
    services.kill(worker)
    deployment.say(f"killed {worker} and its executor")
    deployment.finish(scheduled)
    deployment.compare()
    deployment.say("both tables equal the org")

    deployment.order(400, 300)
    org.rest("PATCH", f"/sobjects/Account/{known[0]}", {"Phone": "040", "AnnualRevenue": None})
    org.rest("DELETE", f"/sobjects/Account/{known[1]}")
    deployment.account("new", BillingCity="Hamburg")
    runs = deployment.trigger()
    deployment.wait_for_start(runs, "drain")
    services.hold("object-storage")
    deployment.say("stopped the object storage")
    services.restart("postgres")
    deployment.say("restarted: PostgreSQL")
    time.sleep(30)  # duration of the outage
    services.release("object-storage")
    deployment.say("started the object storage again")
    deployment.wait_for_executor()
    services.kill(SCHEDULER)
    deployment.say("killed the scheduler and its tasks")
    deployment.finish(runs)
    deployment.compare()
    deployment.say("both tables equal the org")
    services.wait_until_healthy()
    deployment.say("every service is healthy")
    assert services.files_outside_of_volumes() <= {"airflow.cfg"}, "only the image's airflow.cfg is expected"


def test_streams_page_shows_both_streams(deployment: Deployment, tmp_path: Path) -> None:
    """Run after the faults of the previous test, as a logged-in user."""
    need(BROWSER)
    with browser_page() as page:
        page.goto(f"{deployment.airflow.url}/")
        page.get_by_label("Username").fill("admin")
        page.get_by_label("Password").fill(deployment.services.variables["AIRFLOW_ADMIN_PASSWORD"])
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("button", name="Browse").click()
        page.get_by_role("menuitem", name="Salesforce streams").click()
        rows = page.frame_locator("iframe").get_by_role("rowheader")
        for name in (TOPIC, "/data/AccountChangeEvent"):
            expect(rows.filter(has_text=name)).to_have_count(1)
        page.screenshot(path=artifact_folder(tmp_path) / "streams_page_deployment.png")
