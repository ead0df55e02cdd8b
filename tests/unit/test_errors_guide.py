"""docs/reference/errors.md has every error class and every row of the error tables of the code."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from airflow_provider_sfstream import exceptions
from airflow_provider_sfstream.exceptions import SalesforceStreamError
from tests.support.error_tables import guide_tables

GUIDE = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"
ERRORS = {
    name: error
    for name, error in vars(exceptions).items()
    if inspect.isclass(error) and issubclass(error, SalesforceStreamError) and error is not SalesforceStreamError
}


def section(heading: str) -> list[str]:
    """Return the lines below a heading, up to the next one."""
    lines = GUIDE.read_text().splitlines()
    start = next(n for n, line in enumerate(lines) if re.fullmatch(rf"#+ {re.escape(heading)}", line))
    end = next((n for n in range(start + 1, len(lines)) if lines[n].startswith("#")), len(lines))
    return lines[start + 1 : end]


def rows(heading: str) -> list[str]:
    """Return the rows of the section's table, without its header."""
    return [line for line in section(heading) if line.startswith("|")][2:]


def test_every_error_class_has_a_row_with_its_retry_behavior() -> None:
    cells = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows("Every error")]
    documented = {name.strip("` "): retried for name, retried, *_ in cells}
    assert documented == {name: "yes" if error.retriable else "no" for name, error in ERRORS.items()}
    assert all(len(row) == 5 and all(row) for row in cells)


@pytest.mark.parametrize("heading", guide_tables())
def test_error_tables_equal_the_tables_of_the_code(heading: str) -> None:
    """To fix the guide, replace its rows with the rows of the code."""
    assert rows(heading) == guide_tables()[heading]
