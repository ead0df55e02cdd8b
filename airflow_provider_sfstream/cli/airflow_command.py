"""``airflow sfstream``: the same commands, for an Airflow that takes commands of providers (3.2 and later).

Airflow loads this for each of its commands, so that it imports nothing that Airflow has not loaded by then.
"""

from __future__ import annotations

import argparse

from airflow.cli.cli_config import ActionCommand, Arg


def get_cli_commands() -> list[ActionCommand]:
    """Return the one command that Airflow adds to its own."""
    arguments = Arg(  # type: ignore[no-untyped-call]
        ("arguments",), nargs=argparse.REMAINDER, help="A command of sfstream and its options."
    )
    return [
        ActionCommand(
            name="sfstream",
            help="Look at Salesforce event streams, and mend them by hand",
            description="The same as the command sfstream, whose commands are shown without any.",
            func=_run,
            args=(arguments,),
        )
    ]


def _run(given: argparse.Namespace) -> None:
    from airflow_provider_sfstream.cli.main import main

    main(given.arguments, "airflow sfstream")
