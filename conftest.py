"""Distribution of the tests to xdist workers, and the summary at the end of a run.

``make test`` and ``make test-all`` run on pytest-xdist. Most tests wait on sockets, so there are more workers than
cores. All tests of a file run on one worker, because they share servers. The same applies to the folders in
:data:`SHARED_WORKER`.
"""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Generator
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
"""Parent of temporary folders if it has room. Tests need no durability, and an fsync on a disk takes milliseconds."""
ROOM = 8 << 30
"""Bytes. A run of all tests writes less than a fourth of it."""


def memory_has_room() -> bool:
    """Return whether temporary files may be stored in memory and executed from there."""
    if not MEMORY.is_dir() or os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(MEMORY).free > ROOM and psutil.virtual_memory().available > 2 * ROOM


if "PYTEST_XDIST_WORKER" not in os.environ and memory_has_room():
    os.environ.setdefault("TMPDIR", str(MEMORY))  # inherited by the workers and by processes that tests start
    tempfile.tempdir = None  # tempfile caches the folder: make it read TMPDIR again

BEFORE_THE_NEXT_HOUR = ("tests/system/test_backfill", "tests/system/test_hourly.py", "tests/system/test_push_topic.py")
"""Path prefixes of tests of hourly DAGs. The hour of these DAGs ends 45 minutes after their Airflow has started.
The tests must end before it, so they run first of those that share this Airflow."""

SHARED_WORKER = {
    "tests/system/deployment/": "the services of the compose file, which need the memory of several Airflows",
    "tests/system/test_lineage.py": "an Airflow of its own",
    "tests/system/test_streams_page.py": "an API server of its own",
    "tests/system/": "one Airflow, one org",
    "tests/integration/tables/test_replica": "one Spark session",
    "tests/integration/tables/": "another Spark session",
}
"""Path prefixes of tests that run one after the other on one worker, and the resource that they share. These tests take
longest, so they start first. The first prefix of a path counts."""

LIMITS = {"unit": 0.5, "integration": 10.0}
"""Seconds that a test of each kind may take on an idle machine. ``tests/support/slow.py`` lists the exceptions.

With N workers on each core, a test may take N times as long.
"""


ALONE = ("tests/mutants/", "tests/unit/replay_windows/test_claims.py", "tests/unit/replay_windows/test_zombies.py")
"""Path prefixes of tests that share nothing and take from seconds to half a minute each."""


def worker_scope(node_id: str) -> str:
    """Return the scope of a test; tests of one scope run on one worker.

    The scope is a prefix of :data:`SHARED_WORKER`, the file of the test, or the test itself (:data:`ALONE`).
    """
    path = node_id.split("::", 1)[0]
    if path.startswith(ALONE):
        return node_id
    return next((beginning for beginning in SHARED_WORKER if path.startswith(beginning)), path)


def kind(node_id: str) -> list[str]:
    """Return the folders of a test without the folder ``tests``."""
    return [part for part in PurePosixPath(node_id.split("::", 1)[0]).parts[:-1] if part != "tests"]


class ByFolderOrFile(LoadScopeScheduling):
    """xdist's distribution by file, except that some folders count as one file."""

    def _split_scope(self, nodeid: str) -> str:
        return worker_scope(nodeid)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--up", action="store_true", help="system tests: empty and use the Airflow of `make up`")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from the half million objects of the collected tests, which exist until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    return WORKERS_PER_CORE * (os.cpu_count() or 1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFolderOrFile:
    config.option.loadscopereorder = False
    return ByFolderOrFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest scopes first and the many short files last, so that all workers stay busy until the end."""
    folders = [*BEFORE_THE_NEXT_HOUR, *SHARED_WORKER, *ALONE, "tests/integration/", "localorg/tests/integration/"]

    def place(item: pytest.Item) -> int:
        return next((n for n, folder in enumerate(folders) if item.nodeid.startswith(folder)), len(folders))

    items.sort(key=place)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the seconds of each kind of test, the tests over their limit, and the skipped tests with their reason."""
    tests: dict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if hasattr(report, "duration"):
                tests[report.nodeid] += report.duration
    kinds: dict[str, list[float]] = defaultdict(list)
    for node_id, seconds in tests.items():
        kinds["/".join(kind(node_id)[:2])].append(seconds)
    workers_per_core = max(1.0, (terminalreporter.config.getoption("numprocesses", None) or 1) / (os.cpu_count() or 1))
    terminalreporter.section("seconds of each kind of test, all workers added up")
    for name, durations in sorted(kinds.items()):
        terminalreporter.write_line(f"{sum(durations):7.0f} s {len(durations):5} tests  {name}")
    for node_id, seconds in sorted(tests.items(), key=lambda test: -test[1]):
        limit = min((LIMITS[part] for part in kind(node_id) if part in LIMITS), default=float("inf")) * workers_per_core
        if seconds > limit and node_id.split("[", 1)[0] not in SLOW:
            terminalreporter.write_line(f"{seconds:7.1f} s, over its limit and not in tests/support/slow.py: {node_id}")
    reasons = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", ()) if report.longrepr]
    for package in packages.ALL:
        count = sum(package.missing in reason for reason in reasons)
        if count:
            terminalreporter.write_line(f"skipped: {count} tests, because {package.missing}")
