"""Each promise of the package is broken on purpose, and the test that is there for it has to notice.

Each ``.patch`` beside this module is one small, plausible mistake. Before the diff its file says in one sentence what
is broken, then which promise that breaks and which test notices::

    The position moves before the manifest of its window is written.

    Promise: 1
    Test: tests/unit/replay_windows/test_incremental.py::test_killed_at_any_change_and_tried_again[table-before]

A promise is the number that it has in the README; ``backfill``: a backfill never moves the live position; ``green``: a
run that succeeds claims no more than it has seen; or else the beginning of a row in the table of docs/guarantees.md.

To add one: make the mistake in a clean checkout, find out which test fails, and save ``git diff -U2`` with such a head
as ``<promise>_<what>.patch``. Name one test, with one of its parameters, that fails within seconds and needs neither a
database server nor Spark. Does none fail, then write it first. Where a patch no longer fits because the code has
changed, make the same mistake anew in the code as it is now.
"""

from __future__ import annotations

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
"""A test that takes so long hangs: it has not noticed anything."""
NO_BEHAVIOUR = ("ImportError", "ModuleNotFoundError", "SyntaxError", "NameError", "UnboundLocalError", "AttributeError")
NO_BEHAVIOUR += ("TypeError", "Failed: Timeout")
"""What a test fails with whose patch made no mistake, but code that cannot run."""


@dataclass(frozen=True)
class Mutant:
    """One patch: the promise that it breaks, and the test that has to fail."""

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
def test_it_is_noticed(mutant: Mutant, tmp_path: Path) -> None:
    copy = copy_of_project(tmp_path)
    # A repository around the copy would make git look for the files in that.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path)}
    subprocess.run(["git", "apply", "--verbose", str(mutant.path)], cwd=copy, env=environment, check=True)

    done, report = run_tests(copy, "-x", mutant.test)

    output = f"{mutant.path.read_text()}\n{done.stdout}\n{done.stderr}"
    assert done.returncode == 1, f"exit code {done.returncode}, where 1 says that the test failed:\n{output}"
    failures = [str(failure.get("message")) for failure in report.iter("failure")]
    assert (len(failures), list(report.iter("error"))) == (1, []), output
    assert not failures[0].startswith(NO_BEHAVIOUR), output


def test_without_a_mistake_nothing_is_noticed(tmp_path: Path) -> None:
    """And nothing is left out: a test that is skipped here would notice nothing."""
    named = sorted({mutant.test for mutant in MUTANTS})
    done, report = run_tests(copy_of_project(tmp_path), *named)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert len(list(report.iter("testcase"))) >= len(named), done.stdout
    assert list(report.iter("skipped")) == [], done.stdout


def test_each_promise_is_broken_often_enough() -> None:
    of_each = Counter(mutant.promise for mutant in MUTANTS)
    assert len(MUTANTS) >= FEWEST
    assert {promise: of_each[promise] for promise in PROMISES if of_each[promise] < FEWEST_OF_EACH} == {}


def copy_of_project(folder: Path) -> Path:
    """Return a copy of the project in which the package may be changed.

    The tests are copied too: some find the project by the place of their file, and start programs there.
    """
    copy = folder / "project"
    copy.mkdir()
    for entry in ROOT.iterdir():
        if entry.name in (PACKAGE, "tests"):
            shutil.copytree(entry, copy / entry.name, ignore=shutil.ignore_patterns("__pycache__"))
        elif not entry.name.startswith("."):
            (copy / entry.name).symlink_to(entry)
    return copy


def run_tests(copy: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], ElementTree.Element]:
    """Run tests of the copy, on the copy's package, in a process of their own; return it and their JUnit report."""
    # First of all paths in the tests' process and in each that they start, before the package that is installed.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTHONPATH"] = str(copy)
    report = copy.parent / "report.xml"
    plugins = ["-p", "no:cacheprovider", "-p", "no:randomly", "-n0"]  # tests/conftest.py needs xdist to be there
    options = ["-q", *plugins, "-o", f"timeout={TEST_SECONDS}", f"--junit-xml={report}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *arguments],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done, ElementTree.parse(report).getroot() if report.exists() else ElementTree.Element("nothing")
