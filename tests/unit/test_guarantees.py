"""docs/guarantees.md names a test that ``make test`` runs for every promise."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROMISED = (ROOT / "docs" / "guarantees.md").read_text().partition("\n## Evidence\n")[0]
TABLE = re.findall(r"^\| (.+?) \|.*\| (.+?) \|$", PROMISED, re.MULTILINE)
PROMISES = dict(TABLE[1:])


def modules(cell: str) -> Iterator[Path]:
    """Yield the test modules that a cell names, directly or by their folder."""
    folder = ROOT
    for name in re.findall(r"`([\w/]+(?:\.py)?)`", cell):
        path = (ROOT if name.startswith("tests/") else folder) / name
        assert path.exists(), f"{name} does not exist"
        folder = path if path.is_dir() else path.parent
        yield from sorted(path.glob("test_*.py")) if path.is_dir() else [path]


def regular_tests(module: Path) -> set[str]:
    """Return the tests of a module that ``make test`` runs."""
    body = ast.parse(module.read_text()).body
    if any(re.match("pytestmark = .*extended", ast.unparse(one)) for one in body):
        return set()
    functions = [one for each in body for one in (each.body if isinstance(each, ast.ClassDef) else [each])]
    return {
        one.name
        for one in functions
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
        and one.name.startswith("test_")
        and "pytest.mark.extended" not in map(ast.unparse, one.decorator_list)
    }


def test_every_promise_was_read() -> None:
    assert len(PROMISES) >= 20


@pytest.mark.parametrize("promise", PROMISES)
def test_every_promise_has_a_regular_test(promise: str) -> None:
    assert any(map(regular_tests, modules(PROMISES[promise])))
