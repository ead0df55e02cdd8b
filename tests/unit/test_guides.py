"""The guides are short; their snippets are Python, import what there is, and their DAGs can be made."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.reference import listed

DOCS = Path(__file__).parents[2] / "docs"


def snippets() -> Iterator[tuple[str, str]]:
    """Yield each Python block of the guides with the name of its page and its number there."""
    for page in sorted(DOCS.rglob("*.md")):
        for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL), start=1):
            yield f"{page.relative_to(DOCS).with_suffix('')}-{number}", code


SNIPPETS = dict(snippets())
LOADED = [*listed("operators"), *listed("sensors"), *listed("triggers")]  # once, before the first test


@pytest.mark.parametrize("name", SNIPPETS)
def test_what_is_imported_of_this_package_is_there(name: str) -> None:
    tree = compile(SNIPPETS[name], name, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]  # type: ignore[attr-defined]
    ours = [node for node in imports if str(node.module).startswith("airflow")]
    exec(compile(ast.Module(ours, []), name, "exec"), {})


@pytest.mark.parametrize("name", [name for name, code in SNIPPETS.items() if "with DAG(" in code])
def test_a_dag_is_whole(name: str) -> None:
    exec(compile(SNIPPETS[name], name, "exec"), {})


def test_the_guides_are_no_longer_than_somebody_reads() -> None:
    """Words outside the reference, without code, targets of links and bars of tables."""
    words = 0
    for page in DOCS.glob("*.md"):
        prose = re.sub(r"```.*?```", " ", page.read_text(), flags=re.DOTALL)
        words += len(re.findall(r"\S*\w\S*", re.sub(r"\]\([^)]*\)|\|", " ", prose)))
    assert words <= 20_000
