"""docs/reference/ is what the docstrings say, and the docstrings say what the signatures do."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from scripts.reference import EVIDENCE_PAGE, FOLDER, INTRODUCTION, evidence_page, listed, pages

TASKS = [*listed("operators"), *listed("sensors")]
AIRFLOWS_OWN = {"self", "kwargs", "name"}


def documented(item: Any) -> dict[str, str]:
    """Return the text of each argument by its name."""
    fields = re.split(r"^:(?=\w+ ?\w*:)", inspect.getdoc(item) or "", flags=re.MULTILINE)
    return dict(re.match(r"param (\w+): (.*)", field, re.DOTALL).groups() for field in fields if field[:6] == "param ")


def test_the_pages_are_those_of_the_docstrings() -> None:
    """To mend them: ``make reference``."""
    written = {path.name: path.read_text() for path in FOLDER.glob("*.md")}
    assert {name: text for name, text in written.items() if INTRODUCTION in text} == pages()


def test_the_table_of_evidence_is_that_of_the_code() -> None:
    page = (FOLDER / EVIDENCE_PAGE).read_text()
    assert page == evidence_page(page)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.__name__)
def test_every_argument_is_documented(task: Any) -> None:
    ours = [base for base in task.__mro__ if base.__module__.startswith("airflow_provider_sfstream")]
    taken = {name for base in ours for name in inspect.signature(base.__init__).parameters}
    own = set(inspect.signature(task.__init__).parameters) - AIRFLOWS_OWN
    assert own <= documented(task).keys() <= taken


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.__name__)
def test_what_is_templated_is_said(task: Any) -> None:
    said = {name for name, text in documented(task).items() if "(templated)" in " ".join(text.split())}
    assert said == documented(task).keys() & set(task.template_fields)
