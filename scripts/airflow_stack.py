"""A real Airflow on loopback for ``make demo``, ``make up`` and the system tests.

It starts the API server, scheduler, DAG processor and optionally the triggerer as separate processes, with SQLite and
the local executor, in its own home folder, and calls them only through the public REST API.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil

BIN = Path(sys.executable).parent
PATIENT = {
    "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300",
    "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "600",
    "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
}
"""Longer time limits than Airflow's defaults, which would end components that are only slow on a busy machine."""
T = TypeVar("T")


def free_port() -> int:
    """Return a free loopback TCP port below the range from which the system assigns ports.

    Airflow binds the port only after its database is migrated. Until then, the system could assign a port of its own
    range to another process.
    """
    for port in random.SystemRandom().sample(range(22_000, 32_000), 1_000):
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("No loopback port from 22000 to 31999 is free.")


def wait_for(condition: Callable[[], T | None], seconds: float, what: str) -> T:
    """Return the first truthy result of ``condition``; raise TimeoutError naming ``what`` after ``seconds``."""
    deadline = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise TimeoutError(f"gave up after {seconds:.0f} s waiting for {what}")
        time.sleep(1)


def end_process(process: subprocess.Popen[Any], seconds: float = 15) -> None:
    """End a process that leads its own session, and all processes of that session."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            break
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            continue
        # Kill children that outlive their leader (a JVM, a forked worker) without a grace period.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        break


class AirflowStack:
    """One Airflow in ``home``, with the DAGs of ``dags_folder``.

    :param environment: additional environment variables of every component, and so of the tasks.
    :param parallelism: maximum number of tasks that run at the same time.
    :param port: port of the API server. Default: a free port.
    """

    def __init__(
        self,
        home: Path,
        dags_folder: Path,
        environment: dict[str, str] | None = None,
        parallelism: int = 2,
        port: int | None = None,
    ) -> None:
        self.home = home
        self.dags_folder = dags_folder
        self.port = free_port() if port is None else port
        self.url = f"http://127.0.0.1:{self.port}"
        self.given_environment = environment or {}
        self.pids: dict[str, int] = {}
        self.processes: dict[str, subprocess.Popen[Any]] = {}
        self.environment = {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags_folder),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": str(parallelism),
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db?timeout=30",
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API__SECRET_KEY": "local-stack-only",
            "AIRFLOW__API_AUTH__JWT_SECRET": "local-stack-only-local-stack-only-local-stack-only-local-stack-only!",
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "10",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
            "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
            **PATIENT,
            **self.given_environment,
        }
        self._client: httpx.Client | None = None

    def start(self, *, triggerer: bool = False) -> None:
        """Migrate the database, start the components, and wait until the API and the scheduler are healthy."""
        self.home.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [BIN / "airflow", "db", "migrate"],
            env=self.environment,
            check=True,
            stdout=self._log("migrate"),
            stderr=subprocess.STDOUT,
            timeout=600,
        )
        for name in ("api-server", "scheduler", "dag-processor", *(["triggerer"] if triggerer else [])):
            self.start_component(name)
        wait_for(self._healthy, 600, f"Airflow to be healthy (logs in {self.home})")
        described = {
            "dags_folder": str(self.dags_folder),
            "environment": self.given_environment,
            "port": self.port,
            "pids": self.pids,
        }
        (self.home / "stack.json").write_text(json.dumps(described))

    @classmethod
    def running_in(cls, home: Path) -> AirflowStack:
        """Return the Airflow that another process runs in ``home``, to call it, not to start or end components."""
        described = json.loads((home / "stack.json").read_text())
        stack = cls(home, Path(described["dags_folder"]), described["environment"], port=described["port"])
        stack.pids = described["pids"]
        return stack

    def start_component(self, name: str) -> subprocess.Popen[Any]:
        """Start or restart one component, for example after a test killed it."""
        self.processes[name] = subprocess.Popen(
            [BIN / "airflow", name],
            env=self.environment,
            stdout=self._log(name),
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.pids[name] = self.processes[name].pid
        return self.processes[name]

    def kill_component(self, name: str) -> None:
        """Kill a component and all its processes with SIGKILL."""
        process = self.processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def task_processes(self) -> list[str]:
        """Return the command lines of the processes that run tasks now.

        These are the busy workers of the executor and their child processes. A worker reports the end or the deferral
        of a task up to five seconds after the task's own process. A task that resumes earlier is tried again (Airflow
        3.3.2).
        """
        tasks: list[str] = []
        for worker in psutil.Process(self.pids["scheduler"]).children():
            with suppress(psutil.NoSuchProcess):
                title = " ".join(worker.cmdline()).strip()
                if "LocalExecutor" in title:
                    busy = [] if title.endswith("<idle>") else [title]
                    tasks += busy + [" ".join(task.cmdline()).strip() for task in worker.children(recursive=True)]
        return tasks

    def stop(self) -> None:
        """End every component and its children."""
        for process in reversed(self.processes.values()):
            end_process(process)
        self.processes.clear()

    def _log(self, name: str) -> Any:
        return (self.home / f"{name}.log").open("ab")

    def _healthy(self) -> bool:
        for name, process in self.processes.items():
            if process.poll() is not None:
                log = self.home / f"{name}.log"
                end = log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"airflow {name} ended with {process.returncode}, {log}:\n{end}")
        try:
            health = httpx.get(f"{self.url}/api/v2/monitor/health", timeout=5).json()
        except (httpx.HTTPError, json.JSONDecodeError):
            return False
        return bool(health.get("scheduler", {}).get("status") == "healthy")

    def api(self, method: str, path: str, **kwargs: Any) -> Any:
        """Call the public REST API and return the decoded response; raise on an error status, with its text."""
        self._keep_scheduler_running()
        if self._client is None:
            token = httpx.get(f"{self.url}/auth/token", timeout=30).json()["access_token"]
            self._client = httpx.Client(
                base_url=f"{self.url}/api/v2", headers={"Authorization": f"Bearer {token}"}, timeout=60
            )
        deadline = time.monotonic() + 60
        while True:
            response = self._client.request(method, path, **kwargs)
            # SQLite has one writer: a request that collides with a write of another process is rolled back; retry it.
            locked = response.is_server_error and re.search("Database error|Database is locked", response.text)
            if not locked or time.monotonic() > deadline:
                break
            time.sleep(0.5)
        if response.is_error:
            raise RuntimeError(f"{method} {path}: {response.status_code} {response.text}")
        return response.json() if response.content else None

    def _keep_scheduler_running(self) -> None:
        """Restart the scheduler if it crashed, as a service manager does.

        On SQLite, the creation of a backfill that collides with another write is rolled back. The scheduler of Airflow
        3.3.2 then crashes (``ObjectDeletedError``) if it had already read the runs.
        """
        scheduler = self.processes.get("scheduler")
        if scheduler is not None and scheduler.poll() is not None:
            self.start_component("scheduler")

    def variables(self, prefix: str) -> list[dict[str, Any]]:
        """Return the Variables whose keys begin with ``prefix``."""
        found: list[dict[str, Any]] = []
        params = {"variable_key_pattern": f"{prefix}%", "order_by": "id"}
        while page := self.api("GET", "/variables", params={**params, "offset": len(found)})["variables"]:
            found += page
        return [variable for variable in found if variable["key"].startswith(prefix)]  # "_" is an SQL wildcard

    def add_connection(self, connection_id: str, **fields: Any) -> None:
        """Create a connection, or replace the one with this ID; ``extra`` may be a dict."""
        extra = fields.pop("extra", None)
        body = {"connection_id": connection_id, **fields}
        if extra is not None:
            body["extra"] = extra if isinstance(extra, str) else json.dumps(extra)
        with suppress(RuntimeError):  # no such connection
            self.api("DELETE", f"/connections/{connection_id}")
        self.api("POST", "/connections", json=body)

    def wait_for_dag(self, dag_id: str, seconds: float = 600) -> None:
        """Wait until the DAG processor has stored the DAG."""

        def known() -> bool:
            errors = self.api("GET", "/importErrors")["import_errors"]
            if errors:
                raise RuntimeError(errors[0]["stack_trace"])
            dags = self.api("GET", "/dags", params={"dag_id_pattern": dag_id})["dags"]  # as in SQL's LIKE
            return any(dag["dag_id"] == dag_id for dag in dags)

        wait_for(known, seconds, f"DAG {dag_id}")

    def unpause(self, dag_id: str) -> None:
        """Unpause the DAG, so that the scheduler starts its runs."""
        self._set_paused(dag_id, False)

    def pause(self, dag_id: str) -> None:
        """Pause the DAG, so that the scheduler starts no run of it."""
        self._set_paused(dag_id, True)

    def _set_paused(self, dag_id: str, paused: bool) -> None:
        """Pause or unpause a DAG and request a parse of its file, which starts or stops the watchers of its assets."""
        dag = self.api("PATCH", f"/dags/{dag_id}", json={"is_paused": paused})
        with suppress(RuntimeError):  # a parse was requested already
            self.api("PUT", f"/parseDagFile/{dag['file_token']}")

    def run_ids(self, dag_id: str) -> list[str]:
        """Return the run IDs of the DAG, oldest first."""
        return list(self.run_states(dag_id))

    def run_states(self, dag_id: str) -> dict[str, str]:
        """Return the states of the DAG's runs by run ID, oldest first."""
        runs = self.api("GET", f"/dags/{dag_id}/dagRuns", params={"order_by": "run_after", "limit": 1000})["dag_runs"]
        return {run["dag_run_id"]: run["state"] for run in runs}

    def trigger(self, dag_id: str, **body: Any) -> str:
        """Trigger a manual run and return its run ID."""
        return str(self.api("POST", f"/dags/{dag_id}/dagRuns", json={"logical_date": None, **body})["dag_run_id"])

    def wait_for_run(self, dag_id: str, run_id: str, seconds: float = 600) -> str:
        """Wait until a run has ended and return its state: ``success`` or ``failed``."""

        def ended() -> str | None:
            state = self.api("GET", f"/dags/{dag_id}/dagRuns/{run_id}")["state"]
            return state if state in ("success", "failed") else None

        return wait_for(ended, seconds, f"run {run_id} of {dag_id}")

    def backfill(self, dag_id: str, from_date: datetime, to_date: datetime, **body: Any) -> int:
        """Create a backfill as the UI's dialog does and return its ID; both logical dates are included.

        :param body: ``reprocess_behavior`` (``none``, ``failed`` or ``completed``), ``run_backwards``,
            ``max_active_runs``, ``dag_run_conf``.
        """
        dates = {"from_date": from_date.isoformat(), "to_date": to_date.isoformat()}
        return int(self.api("POST", "/backfills", json={"dag_id": dag_id, **dates, **body})["id"])

    def backfill_runs(self, dag_id: str, from_date: datetime, to_date: datetime) -> dict[datetime, dict[str, Any]]:
        """Return the backfill runs of a DAG between two logical dates (inclusive) by logical date, oldest first."""
        runs = self.api(
            "GET",
            f"/dags/{dag_id}/dagRuns",
            params={
                "run_type": "backfill",
                "logical_date_gte": from_date.isoformat(),
                "logical_date_lte": to_date.isoformat(),
                "order_by": "logical_date",
                "limit": 1000,
            },
        )["dag_runs"]
        return {datetime.fromisoformat(run["logical_date"]): run for run in runs}

    def wait_for_backfill(self, backfill_id: int, seconds: float = 600) -> dict[datetime, dict[str, Any]]:
        """Wait until all runs of a backfill have ended and return them as :meth:`backfill_runs` does.

        Afterwards a new backfill of the DAG is possible. The scheduler would allow that within 30 seconds; the cancel
        request, which the UI's stop button sends, allows it immediately.
        """
        backfill = self.api("GET", f"/backfills/{backfill_id}")
        dates = datetime.fromisoformat(backfill["from_date"]), datetime.fromisoformat(backfill["to_date"])

        def ended() -> dict[datetime, dict[str, Any]] | None:
            runs = self.backfill_runs(backfill["dag_id"], *dates)
            return runs if {run["state"] for run in runs.values()} <= {"success", "failed"} else None

        runs = wait_for(ended, seconds, f"the runs of backfill {backfill_id} of {backfill['dag_id']}")
        if self.api("GET", f"/backfills/{backfill_id}")["completed_at"] is None:
            with suppress(RuntimeError):  # the scheduler completed the backfill first
                self.api("PUT", f"/backfills/{backfill_id}/cancel")
        return runs

    def task_states(self, dag_id: str, run_id: str) -> dict[str, str]:
        """Return the state of each task instance of a run."""
        instances = self.api("GET", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances")["task_instances"]
        return {instance["task_id"]: instance["state"] for instance in instances}

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value") -> Any:
        """Return a task's XCom value, deserialized."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/{key}"
        return self.api("GET", path, params={"deserialize": True})["value"]

    def links(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> dict[str, str | None]:
        """Return the URLs of a task's links by the label of their buttons in the UI."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/links"
        return dict(self.api("GET", path, params={"map_index": map_index})["extra_links"])

    def task_log(self, dag_id: str, run_id: str, task_id: str, try_number: int = 1) -> str:
        """Return the text of a task's log, including the error that ended the task."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{try_number}"
        content = self.api("GET", path, params={"full_content": True})["content"]
        lines: list[str] = []
        for line in content:
            entry = line if isinstance(line, dict) else {"event": line}
            lines.append(str(entry.get("event", entry)))
            lines += [f"{error['exc_type']}: {error['exc_value']}" for error in entry.get("error_detail") or ()]
        return "\n".join(lines)


@contextmanager
def running_airflow(stack: AirflowStack, *, triggerer: bool = False) -> Iterator[AirflowStack]:
    """Start the stack for a ``with`` block and always end it afterwards."""
    try:
        stack.start(triggerer=triggerer)
        yield stack
    finally:
        stack.stop()
