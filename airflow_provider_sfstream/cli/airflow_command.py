"""``airflow sfstream``: the same commands in an Airflow that supports commands of providers (3.2 and later).

Airflow loads this module for each of its commands, so it imports only what Airflow has loaded already.
"""

from __future__ import annotations

import argparse

from airflow.cli.cli_config import ActionCommand, Arg


def get_cli_commands() -> list[ActionCommand]:
    """Return the command of this package."""
    arguments = Arg(  # type: ignore[no-untyped-call]
        ("arguments",), nargs=argparse.REMAINDER, help="A command of sfstream and its options."
    )
    return [
        ActionCommand(
            name="sfstream",
            help="Inspect and repair Salesforce event streams",
            description="Same as the command sfstream. Without arguments, it lists its commands.",
            func=_run,
            args=(arguments,),
        )
    ]


def _run(namespace: argparse.Namespace) -> None:
    from airflow_provider_sfstream.cli.main import main

    main(namespace.arguments, "airflow sfstream")
