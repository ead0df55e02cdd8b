"""How a run of the suite is laid out on workers, and what it says at its end.

``make test`` and ``make test-all`` run on pytest-xdist. Most tests wait on sockets, so there are more workers than
cores. A file's tests stay together, since they share servers; some folders do too, see :data:`TOGETHER`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import defaultdict
from pathlib import Path, PurePosixPath
from typing import Any

import hypothesis
import psutil
import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.support import packages
from tests.support.slow import SLOW

hypothesis.settings.register_profile("sfstream", deadline=None)
hypothesis.settings.load_profile("sfstream")

WORKERS_PER_CORE = 2

MEMORY = Path("/dev/shm")
"""Where temporary folders are if there is room: nobody pulls the plug, and an fsync on a disk takes milliseconds."""
ROOM = 8 << 30
"""Bytes. A run of all tests leaves less than a fourth of it."""


def memory_has_room() -> bool:
    """Return whether temporary files may be kept in memory, and programs among them be run."""
    if not MEMORY.is_dir() or os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(MEMORY).free > ROOM and psutil.virtual_memory().available > 2 * ROOM


if "PYTEST_XDIST_WORKER" not in os.environ and memory_has_room():
    os.environ.setdefault("TMPDIR", str(MEMORY))  # also for the workers, and for what tests start
    tempfile.tempdir = None  # it is found anew

TOGETHER = {
    "tests/system/deployment/": "the services of the compose file, in the memory of several Airflows",
    "tests/system/": "one Airflow, one org",
    "tests/integration/tables/test_replica": "one Spark session",
    "tests/integration/tables/": "another one",
}
"""Beginnings of the paths of tests that run one after the other on one worker, and what they share. They take longest,
so they begin."""

LIMITS = {"unit": 0.5, "integration": 10.0}
"""Seconds that a test of a kind may take on an idle machine, but for those that ``tests/support/slow.py`` names.

Tests that share a core may take as many times as long as there are of them.
"""


ALONE = ("tests/mutants/", "tests/unit/replay_windows/test_claims.py", "tests/unit/replay_windows/test_zombies.py")
"""Beginnings of the paths of tests that share nothing, and take seconds each, some half a minute."""


def together(node_id: str) -> str:
    """Return what a test shares its worker with: a part of :data:`TOGETHER`, its file, or nothing (:data:`ALONE`)."""
    path = node_id.split("::", 1)[0]
    if path.startswith(ALONE):
        return node_id
    return next((beginning for beginning in TOGETHER if path.startswith(beginning)), path)


def kind(node_id: str) -> list[str]:
    """Return the folders of a test, without those that all tests have."""
    return [part for part in PurePosixPath(node_id.split("::", 1)[0]).parts[:-1] if part != "tests"]


class ByFolderOrFile(LoadScopeScheduling):
    """xdist's distribution by file, with whole folders that count as one."""

    def _split_scope(self, nodeid: str) -> str:
        return together(nodeid)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--up", action="store_true", help="system tests: use the Airflow of `make up`, and empty it first")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    return WORKERS_PER_CORE * (os.cpu_count() or 1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFolderOrFile:
    config.option.loadscopereorder = False
    return ByFolderOrFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest on one worker; end with the many short files, which fill the gaps."""
    folders = [*TOGETHER, *ALONE, "tests/integration/", "localorg/tests/integration/"]

    def place(item: pytest.Item) -> int:
        return next((n for n, folder in enumerate(folders) if item.nodeid.startswith(folder)), len(folders))

    items.sort(key=place)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how long each kind took, which tests take longer than they may, and what was left out and why."""
    tests: dict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if hasattr(report, "duration"):
                tests[report.nodeid] += report.duration
    kinds: dict[str, list[float]] = defaultdict(list)
    for node_id, seconds in tests.items():
        kinds["/".join(kind(node_id)[:2])].append(seconds)
    beside_each_other = max(1.0, (terminalreporter.config.getoption("numprocesses", None) or 1) / (os.cpu_count() or 1))
    terminalreporter.section("seconds of each kind, of all workers together")
    for name, durations in sorted(kinds.items()):
        terminalreporter.write_line(f"{sum(durations):7.0f} s {len(durations):5} tests  {name}")
    for node_id, seconds in sorted(tests.items(), key=lambda test: -test[1]):
        limit = (
            min((LIMITS[part] for part in kind(node_id) if part in LIMITS), default=float("inf")) * beside_each_other
        )
        if seconds > limit and node_id.split("[", 1)[0] not in SLOW:
            terminalreporter.write_line(f"{seconds:7.1f} s, and not in tests/support/slow.py: {node_id}")
    reasons = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", ()) if report.longrepr]
    for package in packages.ALL:
        count = sum(package.missing in reason for reason in reasons)
        if count:
            terminalreporter.write_line(f"left out: {count} tests, because {package.missing}")
