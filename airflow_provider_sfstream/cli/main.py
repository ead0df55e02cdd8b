"""The command ``sfstream``: its subcommands and their common options."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated, Any

import typer

from airflow_provider_sfstream import __version__
from airflow_provider_sfstream.cli import inspect, modify
from airflow_provider_sfstream.cli.output import logs_are_shown, reporting_errors


def _with_airflow(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that reads connections and Variables from Airflow's database, and logs to standard error if logs
    are shown."""

    @wraps(command)
    def command_with_airflow(*arguments: Any, **options: Any) -> None:
        from airflow_provider_sfstream._airflow import use_database

        use_database()
        if logs_are_shown():
            _log_to_stderr()
        command(*arguments, **options)

    return command_with_airflow


def _log_to_stderr() -> None:
    """Send logs to standard error, apart from the output. Replaces Airflow's own logging configuration."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", force=True)


app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in (*inspect.COMMANDS, *modify.COMMANDS):
    app.command(_command.__name__)(reporting_errors(_with_airflow(_command)))


def _print_version(is_set: bool) -> None:
    if is_set:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _common(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show logs and tracebacks of errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Inspect and repair Salesforce event streams, with the connections and Variables of this Airflow."""
    logging.disable(logging.NOTSET if verbose else logging.CRITICAL)  # the command itself reports its error


def main(arguments: Sequence[str] | None = None, name: str = "sfstream") -> None:
    """Run a command and end the process with its exit status."""
    app(args=None if arguments is None else list(arguments), prog_name=name)
