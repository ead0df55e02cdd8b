"""Length of the guides, and validity of their Python snippets."""

from __future__ import annotations

import ast
import re

import pytest

from scripts.reference import listed
from tests.support.guides import DOCS, LIVE, SNIPPETS

LOADED = [*listed("operators"), *listed("sensors"), *listed("triggers")]  # once, before the first test


@pytest.mark.parametrize("name", SNIPPETS)
def test_snippet_imports_exist(name: str) -> None:
    tree = compile(SNIPPETS[name], name, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]  # type: ignore[attr-defined]
    ours = [node for node in imports if str(node.module).startswith("airflow")]
    exec(compile(ast.Module(ours, []), name, "exec"), {})


@pytest.mark.parametrize("name", [name for name in SNIPPETS if name not in LIVE])
def test_snippet_can_be_executed(name: str) -> None:
    """Snippets must create their DAGs and tasks. Other tests run the tasks."""
    exec(compile(SNIPPETS[name], name, "exec"), {})


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{path.relative_to(DOCS)}" for path in DOCS.rglob("*.md"))])
def test_data_frames_of_the_guides_keep_integers(page: str) -> None:
    """By default, pandas converts integers to floats in columns with nulls."""
    text = (DOCS.parent / page).read_text()
    assert re.findall(r".*to_pandas\((?!types_mapper=(?:pandas|pd)\.ArrowDtype\)).*", text) == []


def test_guides_have_at_most_20_000_words() -> None:
    """The count excludes the reference, code, link targets and table bars."""
    words = 0
    for page in DOCS.glob("*.md"):
        prose = re.sub(r"```.*?```", " ", page.read_text(), flags=re.DOTALL)
        words += len(re.findall(r"\S*\w\S*", re.sub(r"\]\([^)]*\)|\|", " ", prose)))
    assert words <= 20_000
