"""Spark application: landed change events, or newly fetched records, in; replica tables of Salesforce objects out.

``spark-submit replica.py CONFIG``. ``CONFIG`` is a JSON object with arguments of :class:`ReplicaConfig`:
``{"manifests": ["URL"], "output_url": "URL"}``.
"""

from __future__ import annotations

import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]
if not __package__ and (_ROOT / "airflow_provider_sfstream").is_dir():
    sys.path.insert(0, str(_ROOT))  # run as a script from the package's folder

from airflow_provider_sfstream.tables.replica.config import ReplicaConfig  # noqa: E402
from airflow_provider_sfstream.tables.replica.job import run  # noqa: E402
from airflow_provider_sfstream.tables.spark_apps.application import run_application  # noqa: E402

if __name__ == "__main__":
    run_application("replica", ReplicaConfig, run, sys.argv[1:])
