"""Upgrade the tables of a replay store, or show their revision, where tasks have no right to change a schema."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from airflow_provider_sfstream.exceptions import SalesforceStreamError
from airflow_provider_sfstream.replay_stores.table import schema
from airflow_provider_sfstream.replay_stores.table.engine import describe, engine_for


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 on success, 1 on failure, 2 for invalid arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m airflow_provider_sfstream.replay_stores.table", description=__doc__
    )
    parser.add_argument("command", choices=("upgrade", "current"))
    parser.add_argument(
        "--url-env",
        metavar="NAME",
        required=True,
        help="environment variable that holds the SQLAlchemy URL (a URL on the command line would show its password)",
    )
    options = parser.parse_args(arguments)
    url = os.environ.get(options.url_env)
    if not url:
        parser.error(f"the environment variable {options.url_env} is not set")
    try:
        engine = engine_for(url)
        try:
            revision = schema.upgrade(engine) if options.command == "upgrade" else schema.current(engine)
        finally:
            engine.dispose()
    except SalesforceStreamError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{describe(engine.url)}: {revision or 'no tables yet'} (this version needs {schema.REVISION})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
