"""The command ``sfstream``: its subcommands and their common options."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Annotated

import typer

from airflow_provider_sfstream import __version__
from airflow_provider_sfstream.cli import create, inspect, modify
from airflow_provider_sfstream.cli.output import in_airflow

app = typer.Typer(
    no_args_is_help=True, pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]}
)
for _command in (*create.COMMANDS, *inspect.COMMANDS, *modify.COMMANDS):
    app.command(_command.__name__)(in_airflow(_command))


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
    """Create, inspect and repair Salesforce event streams, with the connections and Variables of this Airflow."""
    logging.disable(logging.NOTSET if verbose else logging.CRITICAL)  # the command itself reports its error


def main(arguments: Sequence[str] | None = None, name: str = "sfstream") -> None:
    """Run a command and end the process with its exit status."""
    app(args=None if arguments is None else list(arguments), prog_name=name)
