"""Output of commands: tables for people, JSON for programs, progress, and errors with the remedy.

Results go to the standard output, all other text to the standard error.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from functools import partial, wraps
from typing import Any

import typer

from airflow_provider_sfstream.exceptions import SalesforceStreamError
from airflow_provider_sfstream.redaction import redacted

FAILED, WRONG_USE, TRY_AGAIN, INTERRUPTED = 1, 2, 75, 130
"""Exit statuses: a permanent error, invalid use (as in typer), an error that a retry may correct (``EX_TEMPFAIL`` of
``sysexits.h``), and Ctrl-C."""

Row = Mapping[str, Any]


class InvalidUseError(Exception):
    """Invalid combination of options, or a question without a terminal. Nothing was changed."""


LEVEL_STYLES = {"bad": "red", "warning": "yellow", "good": "green"}


def show_rows(rows: Sequence[Row], columns: Mapping[str, str], *, as_json: bool, none: str) -> None:
    """Show rows as a table, or completely as JSON.

    :param columns: title of each shown column, by the key in the rows; the column ``level`` is in colour.
    :param none: text instead of an empty table.
    """
    if as_json:
        show_json(rows)
        return
    if not rows:
        typer.echo(none, err=True)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in columns.values():
        table.add_column(title, overflow="fold")
    for row in rows:
        style = LEVEL_STYLES.get(row.get("level", ""), "")
        table.add_row(*(Text(_cell(row.get(key)), style if key == "level" else "") for key in columns))
    console = Console()
    if not console.is_terminal:  # a pipe or a file has no width at which lines should be folded
        console = Console(width=10_000)
    console.print(table)


def show_json(document: Any) -> None:
    """Print a document as JSON."""
    typer.echo(json.dumps(document, indent=2, default=json_value))


def show_line(document: Any) -> None:
    """Print a document as one line of JSON."""
    typer.echo(json.dumps(document, separators=(",", ":"), default=json_value))


def json_value(value: Any) -> Any:
    """Return the JSON form of a value of a table: hex text of bytes, ISO 8601 text of times."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value)


def _cell(value: Any) -> str:
    if isinstance(value, bytes | datetime | date):
        value = json_value(value)
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "; ".join(map(_cell, value)) or "-"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, str) and len(value) > _LENGTH_OF_A_TIME and value[_LENGTH_OF_A_DATE] == "T":
        return _short_time(value)
    return str(value)


_LENGTH_OF_A_DATE, _LENGTH_OF_A_TIME = 10, 18


def _short_time(text: str) -> str:
    """Return ISO 8601 text to the second; another text unchanged."""
    try:
        return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M:%S}"
    except ValueError:
        return text


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[[], None]]:
    """Show a progress bar on a terminal. Yield a function that the block calls after each step."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    steps = [] if total is None else [MofNCompleteColumn()]
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), *steps, TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield partial(bar.advance, bar.add_task(what, total=total))


def ask(question: str, *, yes: bool) -> None:
    """Continue only after a confirmation, here or by ``--yes``."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidUseError(f"{question} A confirmation requires a terminal, or --yes. Nothing was changed.")
    typer.confirm(question, abort=True, err=True)


def in_airflow(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that reads connections and Variables from Airflow's database, and reports its errors in the form
    of a task's log. With ``--verbose`` it logs to the standard error, and shows tracebacks."""

    @wraps(command)
    def command_in_airflow(*arguments: Any, **options: Any) -> None:
        from airflow_provider_sfstream._airflow import use_database

        logs_are_shown = logging.root.manager.disable < logging.CRITICAL
        try:
            use_database()
            if logs_are_shown:  # in place of Airflow's own logging configuration
                form = "%(levelname)s %(name)s: %(message)s"
                logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=form, force=True)
            command(*arguments, **options)
        except (typer.Exit, typer.Abort):
            raise
        except InvalidUseError as error:
            typer.echo(str(error), err=True)
            raise typer.Exit(WRONG_USE) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            if logs_are_shown:
                for line in "".join(traceback.format_exception(error)).splitlines():
                    typer.echo(redacted(line), err=True)
            for line in _report(error):
                typer.echo(line, err=True)
            raise typer.Exit(TRY_AGAIN if getattr(error, "retriable", False) else FAILED) from None

    return command_in_airflow


def _report(error: Exception) -> list[str]:
    from airflow_provider_sfstream._airflow import AirflowNotFoundException
    from airflow_provider_sfstream.actions.failures import FailureReport, guide

    text, action, data_loss, page = f"{type(error).__name__}: {redacted(str(error))}", "", "", ""
    if isinstance(error, SalesforceStreamError):
        text, data_loss, page = f"{type(error).__name__}: {error.happened}", error.lost, error.guide
        action = error.advice.replace("clear the task", "run the command again")
        if error.retriable:
            action = f"{action} A retry may succeed."
    elif isinstance(error, AirflowNotFoundException):
        action, page = (
            "Add the connection, or name another one. `airflow connections list` lists the existing connections.",
            "connection.md",
        )
    elif type(error).__module__.startswith("sqlalchemy."):
        text = f"{type(error).__name__}: Airflow's database cannot be used: {redacted(str(error).splitlines()[0])}"
        action = (
            "Run `airflow db check`, and `airflow db migrate` for a new database. AIRFLOW_HOME must be the folder of "
            "that Airflow."
        )
    else:
        action = "Run the command with `sfstream --verbose` to see the traceback."
    docs = guide(page) if page else ""
    return FailureReport(" ".join(text.split()), "", data_loss, None, action, docs).lines()
