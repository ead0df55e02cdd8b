"""Standalone Spark cluster from the pyspark package: a master and workers on the loopback interface."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pyspark

from tests.support.spark import spark_environment

_SPARK_CLASS = Path(pyspark.__file__).parent / "bin/spark-class"
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_START_SECONDS = 240.0


@dataclass(frozen=True)
class Cluster:
    """A running cluster.

    :param master: URL of the master, ``spark://127.0.0.1:...``.
    :param web: URL of the master's web page.
    :param workers: process IDs of the workers; each runs one executor of an application.
    """

    master: str
    web: str
    workers: tuple[int, ...]

    def state(self) -> dict[str, Any]:
        """Return the state document of the master: ``workers``, ``activeapps``..."""
        return dict(httpx.get(f"{self.web}/json/", timeout=10, trust_env=False).json())

    def alive_workers(self) -> int:
        """Return the number of workers that the master considers alive."""
        return sum(worker["state"] == "ALIVE" for worker in self.state()["workers"])

    def executors(self) -> dict[str, int]:
        """Return the process ID of the worker of each running executor, by executor ID."""
        found = {}
        for worker in self.workers:
            for process in _descendants(worker):
                with contextlib.suppress(psutil.Error):
                    command = process.cmdline()
                    if "--executor-id" in command:
                        found[command[command.index("--executor-id") + 1]] = worker
        return found

    def kill_worker(self, worker: int) -> None:
        """Kill a worker and all of its processes, like a power failure."""
        _kill([psutil.Process(worker), *_descendants(worker)])


@contextmanager
def standalone_cluster(folder: Path, *, workers: int = 2) -> Iterator[Cluster]:
    """Run a cluster with workers of one core and one GiB each; kill all of its processes afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        log = folder / "master.log"
        processes.append(_start(log, _MASTER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"))
        master = _in_log(processes[0], log, r"Starting Spark master at (spark://\S+)")
        web_port = _in_log(processes[0], log, r"MasterWebUI.*http://[^\s:]+:(\d+)")
        for number in range(workers):
            arguments = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0", "--cores", "1", "--memory", "1g")
            work = ("--work-dir", str(folder / f"worker-{number}"))
            processes.append(_start(folder / f"worker-{number}.log", _WORKER, *arguments, *work, master))
        cluster = Cluster(master, f"http://127.0.0.1:{web_port}", tuple(one.pid for one in processes[1:]))
        _wait(lambda: cluster.alive_workers() == workers, "the workers", folder / "worker-0.log")
        yield cluster
    finally:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                _kill([psutil.Process(process.pid), *_descendants(process.pid)])
            process.wait(60)


class DriverPage:
    """Client of a driver's monitoring page.

    :attr settings: settings for ``spark-submit`` that start the page.
    """

    def __init__(self) -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        self.settings: Mapping[str, str] = {"spark.ui.enabled": "true", "spark.ui.port": str(port)}
        self._url = f"http://127.0.0.1:{port}/api/v1/applications"

    def executors(self) -> list[dict[str, Any]]:
        """Return the executors with their counts (``id``, ``activeTasks``, ``totalShuffleWrite``...).

        The list is empty before the application starts and after the driver ends.
        """
        with contextlib.suppress(httpx.TransportError, ValueError, LookupError):
            (application,) = httpx.get(self._url, timeout=10, trust_env=False).json()
            found = httpx.get(f"{self._url}/{application['id']}/executors", timeout=10, trust_env=False)
            return [dict(one) for one in found.json() if one["id"] != "driver"]
        return []


def _start(log: Path, main_class: str, *arguments: str) -> subprocess.Popen[bytes]:
    environment = spark_environment() | {
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_DIRS": str(log.with_suffix("")),
        "SPARK_WORKER_OPTS": "-Dspark.worker.cleanup.enabled=true",
    }
    with log.open("wb") as output:
        return subprocess.Popen(
            [str(_SPARK_CLASS), main_class, *arguments], stdout=output, stderr=subprocess.STDOUT, env=environment
        )


def _in_log(process: subprocess.Popen[bytes], log: Path, pattern: str) -> str:
    def found() -> str | None:
        assert process.poll() is None, log.read_text()[-2000:]
        match = re.search(pattern, log.read_text())
        return match[1] if match else None

    return str(_wait(found, pattern, log))


def _wait(condition: Callable[[], Any], what: str, log: Path) -> Any:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        with contextlib.suppress(httpx.TransportError):
            if value := condition():
                return value
        assert time.monotonic() < deadline, f"{what} did not appear:\n{log.read_text()[-2000:]}"
        time.sleep(0.05)


def _descendants(process_id: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return list(psutil.Process(process_id).children(recursive=True))
    return []


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            os.kill(process.pid, signal.SIGKILL)
    psutil.wait_procs(processes, timeout=60)
