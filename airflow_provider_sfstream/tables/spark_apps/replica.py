"""Spark application: landed change events, or records fetched anew, in; replica tables of Salesforce objects out.

``spark-submit replica.py --manifest URL [--manifest URL ...] --output URL``, or ``--refresh URL`` in place of the
manifests.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]
if not __package__ and (_ROOT / "airflow_provider_sfstream").is_dir():
    sys.path.insert(0, str(_ROOT))  # started as a script from where the package lies

from airflow_provider_sfstream.tables.replica.job import run  # noqa: E402
from airflow_provider_sfstream.tables.replica.options import ReplicaOptions  # noqa: E402
from airflow_provider_sfstream.tables.replica.pieces import TARGET_BYTES  # noqa: E402
from airflow_provider_sfstream.tables.runner.on_spark import SparkEngine  # noqa: E402
from airflow_provider_sfstream.tables.spark_apps.application import run_application  # noqa: E402
from airflow_provider_sfstream.tables.spark_apps.rule_arguments import add_rules, rules_of  # noqa: E402


def parse_arguments(arguments: Sequence[str]) -> ReplicaOptions:
    """Return the options of a command line; exits with a message if they cannot be used."""
    parser = argparse.ArgumentParser(prog="replica.py", description=__doc__)
    parser.add_argument("--manifest", action="append", default=[], metavar="URL", help="manifest.json of a window")
    parser.add_argument("--refresh", metavar="URL", help="refresh.json of records that were fetched")
    parser.add_argument("--max-deleted-fraction", type=float, default=0.2, help="of a table, that a refresh may delete")
    parser.add_argument("--output", required=True, metavar="URL", help="folder of the tables")
    parser.add_argument("--deletes", choices=("soft", "hard"), default="soft")
    parser.add_argument("--history", action="store_true", help="keep every version of each record too")
    parser.add_argument("--target-file-bytes", type=int, default=TARGET_BYTES, help="of a table's file, about")
    parser.add_argument("--job", default="", metavar="NAME", help="of this run, in the history of the tables")
    parser.add_argument("--keep-snapshots", type=int, default=10)
    parser.add_argument("--metrics-file", metavar="URL", help="where to write the metrics, as JSON")
    parser.add_argument("--trust-files", action="store_true", help="do not compare landed files with their SHA-256")
    add_rules(parser)
    given = parser.parse_args(arguments)
    if bool(given.manifest) == bool(given.refresh):
        parser.error("give at least one --manifest, or --refresh")
    if min(given.keep_snapshots, given.target_file_bytes) < 1:
        parser.error("--keep-snapshots and --target-file-bytes must be above zero")
    if not 0 <= given.max_deleted_fraction <= 1:
        parser.error("--max-deleted-fraction must be from 0 to 1")
    return ReplicaOptions(
        output=given.output,
        manifests=tuple(given.manifest),
        refresh=given.refresh,
        max_deleted_fraction=given.max_deleted_fraction,
        deletes=given.deletes,
        history=given.history,
        target_file_bytes=given.target_file_bytes,
        keep_snapshots=given.keep_snapshots,
        metrics_file=given.metrics_file,
        verify_files=not given.trust_files,
        job=given.job,
        rules=rules_of(given),
    )


def main(arguments: Sequence[str]) -> None:
    """Run the job in a session of its own, and print its metrics as the last line."""
    options = parse_arguments(arguments)
    run_application("replica", lambda spark: run(SparkEngine(spark), options))


if __name__ == "__main__":
    main(sys.argv[1:])
