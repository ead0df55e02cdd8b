"""What a client must not leave behind: tasks, threads, connections, and complaints."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from tests.support.localorg import LocalOrg

SECONDS = 60.0


def connections(*ports: int) -> int:
    """Return how many TCP connections this process has to local ports."""
    established = [c for c in psutil.Process().net_connections("tcp") if c.status == psutil.CONN_ESTABLISHED]
    return sum(bool(c.raddr) and c.raddr.port in ports for c in established)


def client_connections(org: LocalOrg) -> int:
    """Return how many TCP connections the clients under test have to the org."""
    return connections(org.http_port, org.https_port, org.grpc_port, org.grpc_tls_port)


class LeftBehind:
    """What is there now; :meth:`nothing` waits until no more than that is."""

    def __init__(self, org: LocalOrg, caplog: pytest.LogCaptureFixture) -> None:
        self._org, self._caplog = org, caplog
        self._connections = client_connections(org)
        self._threads = set(threading.enumerate())
        self.warned: list[warnings.WarningMessage] = []

    async def nothing(self) -> None:
        """Wait for the end of everything that a client began, and look at what was said on the way."""
        deadline = time.monotonic() + SECONDS
        while left := self._left():
            assert time.monotonic() < deadline, f"left behind: {left}"
            gc.collect()  # older gRPC (1.75.1) disconnects a closed channel when the last of its calls is collected
            await asyncio.sleep(0.01)
        gc.collect()
        await asyncio.sleep(0)
        said = [str(warning.message) for warning in self.warned if "nclosed" in str(warning.message)]
        records = self._caplog.get_records("call") + self._caplog.get_records("teardown")
        said += [record.getMessage() for record in records if record.levelno >= logging.WARNING]
        assert said == [], f"said on the way: {said}"

    def _left(self) -> list[str]:
        mine = asyncio.current_task()
        left = [repr(task) for task in asyncio.all_tasks() if task is not mine]
        new_threads = set(threading.enumerate()) - self._threads
        left += [thread.name for thread in new_threads if thread.name.startswith("sfstream-")]
        if (number := client_connections(self._org)) > self._connections:
            left.append(f"{number} connections, {self._connections} before")
        return left


@contextmanager
def watched(org: LocalOrg, caplog: pytest.LogCaptureFixture) -> Iterator[LeftBehind]:
    """Collect warnings meanwhile, so that :meth:`LeftBehind.nothing` sees them."""
    gc.collect()  # what tests before left to be collected is none of this one's
    left_behind = LeftBehind(org, caplog)
    with warnings.catch_warnings(record=True) as left_behind.warned:
        warnings.simplefilter("always")
        yield left_behind
