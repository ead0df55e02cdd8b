"""Spark application: landed replay windows in, one append-only table of typed events for each event type out.

``spark-submit event_log.py --manifest URL [--manifest URL ...] --output URL``. Each event is one row, whatever windows
it came in; running a window again changes nothing; what cannot be decoded goes to ``{output}/_quarantine``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]
if not __package__ and (_ROOT / "airflow_provider_sfstream").is_dir():
    sys.path.insert(0, str(_ROOT))  # started as a script from where the package lies

from airflow_provider_sfstream.tables.event_log.job import EventLogOptions, run  # noqa: E402
from airflow_provider_sfstream.tables.runner.on_spark import SparkEngine  # noqa: E402
from airflow_provider_sfstream.tables.spark_apps.application import run_application  # noqa: E402
from airflow_provider_sfstream.tables.spark_apps.rule_arguments import add_rules, rules_of  # noqa: E402


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text} has no time zone; write it as 2026-01-31T00:00:00Z")
    return moment.astimezone(UTC)


def parse_arguments(arguments: Sequence[str]) -> EventLogOptions:
    """Return the options of a command line; exits with a message if they cannot be used."""
    parser = argparse.ArgumentParser(prog="event_log.py", description=__doc__)
    parser.add_argument("--manifest", action="append", default=[], metavar="URL", help="manifest.json of a window")
    parser.add_argument("--output", required=True, metavar="URL", help="folder of the tables")
    parser.add_argument("--event-time-from", type=_moment, metavar="ISO", help="leave out earlier events")
    parser.add_argument("--event-time-to", type=_moment, metavar="ISO", help="leave out events at or after this")
    own = "a window that the run of the interval landed itself: its late events are written too"
    parser.add_argument("--own-window", action="append", default=[], metavar="ID", help=own)
    parser.add_argument("--metrics-file", metavar="URL", help="where to write the metrics, as JSON")
    parser.add_argument("--job", default="", metavar="NAME", help="of this run, in the history of the tables")
    parser.add_argument("--trust-files", action="store_true", help="do not compare landed files with their SHA-256")
    add_rules(parser)
    given = parser.parse_args(arguments)
    if not given.manifest:
        parser.error("give at least one --manifest")
    first, end = given.event_time_from, given.event_time_to
    if (first is None) != (end is None) or (first is not None and first >= end):
        parser.error("give --event-time-from and a later --event-time-to, or neither")
    return EventLogOptions(
        manifests=tuple(given.manifest),
        output=given.output,
        event_time_from=first,
        event_time_to=end,
        own_windows=tuple(given.own_window),
        metrics_file=given.metrics_file,
        verify_files=not given.trust_files,
        job=given.job,
        rules=rules_of(given),
    )


def main(arguments: Sequence[str]) -> None:
    """Run the job in a session of its own, and print its metrics as the last line."""
    options = parse_arguments(arguments)
    run_application("event_log", lambda spark: run(SparkEngine(spark), options))


if __name__ == "__main__":
    main(sys.argv[1:])
