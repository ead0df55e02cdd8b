"""Spark application: landed replay windows in, one append-only table of typed events for each event type out.

Each event is one row, regardless of the windows that contain it; processing a window again has no effect; undecodable
events are written to ``{output_url}/_quarantine``.

``spark-submit event_log.py CONFIG``. ``CONFIG`` is a JSON object with arguments of :class:`EventLogConfig`:
``{"manifests": ["URL"], "output_url": "URL"}``.
"""

from __future__ import annotations

import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]
if not __package__ and (_ROOT / "airflow_provider_sfstream").is_dir():
    sys.path.insert(0, str(_ROOT))  # run as a script from the package's folder

from airflow_provider_sfstream.tables.event_log.config import EventLogConfig  # noqa: E402
from airflow_provider_sfstream.tables.event_log.job import run  # noqa: E402
from airflow_provider_sfstream.tables.spark_apps.application import run_application  # noqa: E402

if __name__ == "__main__":
    run_application("event_log", EventLogConfig, run, sys.argv[1:])
