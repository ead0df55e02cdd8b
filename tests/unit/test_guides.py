"""The guides are short; their snippets are Python, import what there is, and their DAGs and tasks can be made."""

from __future__ import annotations

import ast
import re

import pytest

from scripts.reference import listed
from tests.support.guides import DOCS, LIVE, SNIPPETS

LOADED = [*listed("operators"), *listed("sensors"), *listed("triggers")]  # once, before the first test


@pytest.mark.parametrize("name", SNIPPETS)
def test_what_is_imported_of_this_package_is_there(name: str) -> None:
    tree = compile(SNIPPETS[name], name, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]  # type: ignore[attr-defined]
    ours = [node for node in imports if str(node.module).startswith("airflow")]
    exec(compile(ast.Module(ours, []), name, "exec"), {})


@pytest.mark.parametrize("name", [name for name in SNIPPETS if name not in LIVE])
def test_it_can_be_made(name: str) -> None:
    """What makes a DAG or tasks makes them; what those do is another test's."""
    exec(compile(SNIPPETS[name], name, "exec"), {})


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{path.relative_to(DOCS)}" for path in DOCS.rglob("*.md"))])
def test_data_frames_of_the_guides_keep_integers(page: str) -> None:
    """By default, pandas makes floats of integers beside a null."""
    text = (DOCS.parent / page).read_text()
    assert re.findall(r".*to_pandas\((?!types_mapper=(?:pandas|pd)\.ArrowDtype\)).*", text) == []


def test_the_guides_are_no_longer_than_somebody_reads() -> None:
    """Words outside the reference, without code, targets of links and bars of tables."""
    words = 0
    for page in DOCS.glob("*.md"):
        prose = re.sub(r"```.*?```", " ", page.read_text(), flags=re.DOTALL)
        words += len(re.findall(r"\S*\w\S*", re.sub(r"\]\([^)]*\)|\|", " ", prose)))
    assert words <= 22_000
