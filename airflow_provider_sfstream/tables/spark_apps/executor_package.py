"""Zip of the modules that executors need, which Spark ships to them; they may lack the package itself."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

PACKAGE = "airflow_provider_sfstream"
FILE_NAME = "sfstream_spark.zip"
_ROOT = Path(__file__).parents[2]
_TABLES = _ROOT / "tables"
_BESIDE = (
    "__init__.py",
    "arguments.py",
    "exceptions.py",
    "landing/__init__.py",
    "landing/backfill_index.py",
    "landing/catalog.py",
    "landing/documents.py",
    "landing/location.py",
    "landing/manifest.py",
    "landing/pruned.py",
    "landing/replaced_files.py",
    "landing/row_groups.py",
    "landing/storage.py",
    "landing/window_bounds.py",
    "privacy/__init__.py",
    "privacy/field_rules.py",
    "redaction.py",
    "replay_windows/__init__.py",
    "replay_windows/committed_order.py",
    "salesforce/__init__.py",
    "salesforce/bitmaps.py",
    "salesforce/events.py",
    "salesforce/replay_ids.py",
    "salesforce/schemas.py",
    "salesforce/streams.py",
    "salesforce/topics.py",
)
"""Modules outside ``tables`` that executors, and a driver without the package, import."""
_SOURCE = _ROOT.parent / "pyspark_sfstream"


def is_shipped(spark: Any) -> bool:
    """Return whether executors already receive the zip: it was passed to ``spark-submit --py-files``."""
    return FILE_NAME in spark.sparkContext.getConf().get("spark.submit.pyFiles", "") or not _TABLES.is_dir()


def write_executor_package(folder: str | Path) -> Path:
    """Write the zip into ``folder`` and return its path."""
    target = Path(folder) / FILE_NAME
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for source in (*(_ROOT / name for name in _BESIDE), *sorted(_TABLES.rglob("*.py"))):
            archive.write(source, f"{PACKAGE}/{source.relative_to(_ROOT).as_posix()}")
        for source in sorted(_SOURCE.glob("*.py")):
            archive.write(source, f"{_SOURCE.name}/{source.name}")
    return target
