"""Spark application: rewrites Delta tables of event logs and replicas into fewer files with the same rows.

``spark-submit maintain.py CONFIG``. ``CONFIG`` is a JSON object with arguments of :class:`MaintenanceConfig`:
``{"output_url": "URL"}``.
"""

from __future__ import annotations

import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]
if not __package__ and (_ROOT / "airflow_provider_sfstream").is_dir():
    sys.path.insert(0, str(_ROOT))  # run as a script from the package's folder

from airflow_provider_sfstream.tables.maintenance.config import MaintenanceConfig  # noqa: E402
from airflow_provider_sfstream.tables.maintenance.job import run  # noqa: E402
from airflow_provider_sfstream.tables.spark_apps.application import run_application  # noqa: E402

if __name__ == "__main__":
    run_application("maintain", MaintenanceConfig, run, sys.argv[1:])
