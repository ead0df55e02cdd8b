"""docs/reference/ agrees with the docstrings, and the docstrings agree with the signatures."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from scripts.reference import EVIDENCE_PAGE, FOLDER, INTRODUCTION, docstring, evidence_page, listed, pages

TASKS = [*listed("operators"), *listed("sensors")]
AIRFLOWS_OWN = {"self", "kwargs", "name"}


def documented(item: Any) -> dict[str, str]:
    """Return the text of each argument by its name."""
    fields = re.split(r"^:(?=\w+ ?\w*:)", docstring(item), flags=re.MULTILINE)
    return dict(re.match(r"param (\w+): (.*)", field, re.DOTALL).groups() for field in fields if field[:6] == "param ")


def test_reference_pages_equal_the_docstrings() -> None:
    """To update the pages, run ``make reference``."""
    written = {path.name: path.read_text() for path in FOLDER.glob("*.md")}
    assert {name: text for name, text in written.items() if INTRODUCTION in text} == pages()


def test_evidence_page_equals_the_table_of_the_code() -> None:
    page = (FOLDER / EVIDENCE_PAGE).read_text()
    assert page == evidence_page(page)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.__name__)
def test_every_argument_is_documented(task: Any) -> None:
    ours = [base for base in task.__mro__ if base.__module__.startswith("airflow_provider_sfstream")]
    taken = {name for base in ours for name in inspect.signature(base.__init__).parameters}
    own = set(inspect.signature(task.__init__).parameters) - AIRFLOWS_OWN
    assert own <= documented(task).keys() <= taken


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.__name__)
def test_templated_arguments_are_documented_as_templated(task: Any) -> None:
    marked = {name for name, text in documented(task).items() if "(templated)" in " ".join(text.split())}
    assert marked == documented(task).keys() & set(task.template_fields)
