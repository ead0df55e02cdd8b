from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from airflow_provider_sfstream.tables.spark_apps.executor_package import write_executor_package

EXECUTED = (
    "rows.event_batches",
    "delta.table_files",
    "event_log.table_plans",
    "rows.change_batches",
    "spark_apps.event_log",
    "spark_apps.replica",
    "source.parts",
)
"""Modules that executors import, and drivers that have only the zip. The zip has their own imports too."""


def test_zip_has_all_modules_that_executors_import(tmp_path: Path) -> None:
    package = write_executor_package(tmp_path)
    imports = "\n".join(f"import airflow_provider_sfstream.tables.{name} as module" for name in EXECUTED)
    imports += "\nimport pyspark_sfstream.landed"
    begun = "import sys\nsys.path.insert(0, sys.argv[1])\nsys.modules['airflow'] = None"
    program = f"{begun}\n{imports}\nprint(module.__file__)"
    run = subprocess.run([sys.executable, "-I", "-c", program, package], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith(str(package))
