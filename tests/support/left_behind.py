"""Check that a closed client leaks no tasks, threads, connections or warnings."""

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
    """Return the number of TCP connections of this process to local ports."""
    established = [c for c in psutil.Process().net_connections("tcp") if c.status == psutil.CONN_ESTABLISHED]
    return sum(bool(c.raddr) and c.raddr.port in ports for c in established)


def client_connections(org: LocalOrg) -> int:
    """Return the number of TCP connections of the clients under test to the org."""
    return connections(org.http_port, org.https_port, org.grpc_port, org.grpc_tls_port)


class LeakCheck:
    """Snapshot of connections and threads; :meth:`assert_no_leaks` waits until the client has closed all later ones."""

    def __init__(self, org: LocalOrg, caplog: pytest.LogCaptureFixture) -> None:
        self._org, self._caplog = org, caplog
        self._connections = client_connections(org)
        self._threads = set(threading.enumerate())
        self.warned: list[warnings.WarningMessage] = []

    async def assert_no_leaks(self) -> None:
        """Wait until the client has released its tasks, threads and connections; assert that no warning was emitted."""
        deadline = time.monotonic() + SECONDS
        while leaks := self._open_resources():
            assert time.monotonic() < deadline, f"the client still holds: {leaks}"
            gc.collect()  # older gRPC (1.75.1) disconnects a closed channel when the last of its calls is collected
            await asyncio.sleep(0.01)
        gc.collect()
        await asyncio.sleep(0)
        messages = [str(warning.message) for warning in self.warned if "nclosed" in str(warning.message)]
        records = self._caplog.get_records("call") + self._caplog.get_records("teardown")
        messages += [record.getMessage() for record in records if record.levelno >= logging.WARNING]
        assert messages == [], f"warnings or log records were emitted: {messages}"

    def _open_resources(self) -> list[str]:
        mine = asyncio.current_task()
        leaks = [repr(task) for task in asyncio.all_tasks() if task is not mine]
        new_threads = set(threading.enumerate()) - self._threads
        leaks += [thread.name for thread in new_threads if thread.name.startswith("sfstream-")]
        if (number := client_connections(self._org)) > self._connections:
            leaks.append(f"{number} connections, {self._connections} before")
        return leaks


@contextmanager
def leak_check(org: LocalOrg, caplog: pytest.LogCaptureFixture) -> Iterator[LeakCheck]:
    """Collect the warnings of a ``with`` block for :meth:`LeakCheck.assert_no_leaks`."""
    gc.collect()  # garbage of earlier tests must not count in this test
    gc.freeze()  # the check collects the garbage of this test only: all objects of a worker take seconds
    left_behind = LeakCheck(org, caplog)
    with warnings.catch_warnings(record=True) as left_behind.warned:
        warnings.simplefilter("always")
        yield left_behind
