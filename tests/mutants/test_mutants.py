"""Hand-written mutants: each patch breaks a guarantee of the package, and one named test must fail.

The named tests pass without the patch: they are tests of the same suite.

Each ``.patch`` beside this module is one small, plausible mistake. The lines before the diff describe the mistake in
one sentence, then name the guarantee that it breaks and the test that must fail::

    The position advances before the manifest of its window is written.

    Promise: 1
    Test: tests/unit/replay_windows/test_incremental.py::test_name[table-before]

``Promise:`` is the number of the guarantee in the README; ``backfill`` (a backfill never moves the live position);
``green`` (a successful run claims only what the server confirmed); or the beginning of a row in the table of
docs/guarantees.md.

To add a mutant: make the mistake in a clean checkout, find out which test fails, and save ``git diff -U2`` with these
lines on top as ``<promise>_<mistake>.patch``. Name one test, with one of its parameters, that fails within seconds and
needs neither a database server nor Spark. If no test fails, write one first. If a patch no longer applies because the
code changed, make the same mistake in the current code.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytestmark = pytest.mark.extended

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "airflow_provider_sfstream"
PROMISES = ("1", "2", "3", "4", "5", "6", "7", "backfill", "green")
FEWEST, FEWEST_OF_EACH = 25, 3

TEST_SECONDS = 180
"""A test that takes longer hangs, which does not count as a detected mistake."""
NO_BEHAVIOUR = ("ImportError", "ModuleNotFoundError", "SyntaxError", "NameError", "UnboundLocalError", "AttributeError")
NO_BEHAVIOUR += ("TypeError", "Failed: Timeout")
"""Errors of code that cannot run. A test that fails with one of these has not detected a mistake."""

FORKS = multiprocessing.get_context("forkserver")
"""Forks of a process that has imported Airflow and other slow modules: each mutant takes a fresh interpreter, and
imports take most of the time of its test."""
FORKS.set_forkserver_preload(
    [
        "airflow.sdk.execution_time.task_runner",
        "airflow.serialization.serialized_objects",
        "alembic.command",
        "cryptography.x509",
        "fastavro",
        "hypothesis",
        "pyarrow.parquet",
        "pytest_asyncio.plugin",
        "sqlalchemy.orm",
        "xdist.plugin",
    ]
)


@dataclass(frozen=True)
class Mutant:
    """A patch, the guarantee that it breaks, and the test that must fail."""

    path: Path
    promise: str
    test: str

    @classmethod
    def read(cls, path: Path) -> Mutant:
        head = path.read_text().partition("\ndiff --git ")[0].splitlines()
        named = dict(line.split(": ", 1) for line in head if line.startswith(("Promise: ", "Test: ")))
        return cls(path, named["Promise"], named["Test"])


MUTANTS = [Mutant.read(path) for path in sorted(Path(__file__).parent.glob("*.patch"))]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.path.stem)
def test_mutant_is_detected(mutant: Mutant, tmp_path: Path) -> None:
    copy = copy_of_project(tmp_path)
    # Without the ceiling, git would look for the files in a repository that contains the temporary folder.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path)}
    subprocess.run(["git", "apply", "--verbose", str(mutant.path)], cwd=copy, env=environment, check=True)

    outcome = run_tests(copy, "-x", mutant.test)

    output = f"{mutant.path.read_text()}\n{outcome.output}"
    assert outcome.exit_code == 1, f"exit code {outcome.exit_code}; expected 1, a failed test:\n{output}"
    failures = [str(failure.get("message")) for failure in outcome.all("failure")]
    assert (len(failures), outcome.all("error")) == (1, []), output
    assert not failures[0].startswith(NO_BEHAVIOUR), output


def test_each_promise_has_enough_mutants() -> None:
    of_each = Counter(mutant.promise for mutant in MUTANTS)
    assert len(MUTANTS) >= FEWEST
    assert {promise: of_each[promise] for promise in PROMISES if of_each[promise] < FEWEST_OF_EACH} == {}


def copy_of_project(folder: Path) -> Path:
    """Return a copy of the project in which the package may be changed.

    The tests are copied too, because some find the project by the path of their file and start programs there.
    """
    copy = folder / "project"
    copy.mkdir()
    for entry in ROOT.iterdir():
        if entry.name in (PACKAGE, "tests"):
            shutil.copytree(entry, copy / entry.name, ignore=shutil.ignore_patterns("__pycache__"))
        elif not entry.name.startswith("."):
            (copy / entry.name).symlink_to(entry)
    return copy


@dataclass(frozen=True)
class Outcome:
    """Exit code, output and JUnit report of a pytest process."""

    exit_code: int | None
    output: str
    report: ElementTree.Element

    def all(self, tag: str) -> list[ElementTree.Element]:
        return list(self.report.iter(tag))


def run_tests(copy: Path, *arguments: str) -> Outcome:
    """Run tests of the copy in a new process, on the copy's package."""
    report, output = copy.parent / "report.xml", copy.parent / "output.txt"
    plugins = ["-p", "no:cacheprovider", "-p", "no:randomly", "-n0"]  # conftest.py imports xdist
    options = ["-q", *plugins, "-o", f"timeout={TEST_SECONDS}", f"--junit-xml={report}"]
    process = FORKS.Process(target=pytest_in_copy, args=(copy, output, [*options, *arguments]))
    process.start()
    process.join()
    root = ElementTree.parse(report).getroot() if report.exists() else ElementTree.Element("nothing")
    return Outcome(process.exitcode, output.read_text(errors="replace"), root)


def pytest_in_copy(copy: Path, output: Path, arguments: list[str]) -> None:
    """Run pytest in this process, which is a fork, and exit with its exit code.

    The fork has third-party modules, but no module of the project: it imports those of the copy.
    """
    for stream in (sys.stdout, sys.stderr):
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream.fileno())
    for name in [name for name in sys.modules if name.partition(".")[0] in (PACKAGE, "tests")]:
        del sys.modules[name]
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:
        del os.environ[name]
    os.chdir(copy)
    sys.path.insert(0, str(copy))  # before the installed package
    os.environ["PYTHONPATH"] = str(copy)  # for the processes that tests start
    sys.exit(pytest.main(arguments))
