"""Spark application: Delta tables of event logs and replicas, with fewer files and the same rows.

``spark-submit maintain.py --output URL``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]
if not __package__ and (_ROOT / "airflow_provider_sfstream").is_dir():
    sys.path.insert(0, str(_ROOT))  # started as a script from where the package lies

from airflow_provider_sfstream.tables.maintenance.job import run  # noqa: E402
from airflow_provider_sfstream.tables.maintenance.options import (  # noqa: E402
    LEAST_RETENTION_HOURS,
    RETENTION_HOURS,
    TARGET_BYTES,
    MaintenanceOptions,
)
from airflow_provider_sfstream.tables.spark_apps.application import run_application  # noqa: E402


def parse_arguments(arguments: Sequence[str]) -> MaintenanceOptions:
    """Return the options of a command line; exits with a message if they cannot be used."""
    parser = argparse.ArgumentParser(prog="maintain.py", description=__doc__)
    parser.add_argument("--output", required=True, metavar="URL", help="folder of the tables")
    hours = "hours that files stay which no version has any longer"
    parser.add_argument("--retention-hours", type=int, default=RETENTION_HOURS, help=hours)
    parser.add_argument("--target-file-bytes", type=int, default=TARGET_BYTES, help="bytes of a merged file, about")
    parser.add_argument("--job", default="", metavar="NAME", help="of this run, in the history of the tables")
    parser.add_argument("--metrics-file", metavar="URL", help="where to write the metrics, as JSON")
    given = parser.parse_args(arguments)
    if given.retention_hours < LEAST_RETENTION_HOURS:
        parser.error(
            f"--retention-hours must be at least {LEAST_RETENTION_HOURS}: the files of a job that is still at work "
            "look like those that a killed one has left"
        )
    if given.target_file_bytes < 1:
        parser.error("--target-file-bytes must be above zero")
    return MaintenanceOptions(
        output=given.output,
        retention_hours=given.retention_hours,
        target_file_bytes=given.target_file_bytes,
        metrics_file=given.metrics_file,
        job=given.job,
    )


def main(arguments: Sequence[str]) -> None:
    """Run the job in a session of its own, and print its metrics as the last line."""
    options = parse_arguments(arguments)
    run_application("maintain", lambda spark: run(spark, options))


if __name__ == "__main__":
    main(sys.argv[1:])
