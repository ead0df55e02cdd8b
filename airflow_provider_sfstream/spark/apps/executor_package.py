"""What executors need of this package, as a zip that Spark ships to them; they may lack the package itself."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

PACKAGE = "airflow_provider_sfstream"
FILE_NAME = "sfstream_spark.zip"
_ROOT = Path(__file__).parents[2]
_SPARK = _ROOT / "spark"
_BESIDE = (
    "__init__.py",
    "exceptions.py",
    "landing/__init__.py",
    "landing/backfill_index.py",
    "landing/catalog.py",
    "landing/folder_owner.py",
    "landing/window_bounds.py",
    "landing/location.py",
    "landing/pruned.py",
    "landing/storage.py",
    "redaction.py",
    "runs/__init__.py",
    "runs/committed_order.py",
    "protocol/__init__.py",
    "protocol/avro.py",
    "protocol/bitmaps.py",
    "protocol/events.py",
    "protocol/field_rules.py",
    "protocol/manifest.py",
    "protocol/schemas.py",
    "protocol/streams.py",
    "protocol/topics.py",
)
"""What the modules of executors, and of a driver that has nothing else, import from the rest of the package."""
_SOURCE = _ROOT.parent / "pyspark_sfstream"


def is_shipped(spark: Any) -> bool:
    """Tell whether executors get the zip without further doing: it was given to ``spark-submit --py-files``."""
    return FILE_NAME in spark.sparkContext.getConf().get("spark.submit.pyFiles", "") or not _SPARK.is_dir()


def write_executor_package(folder: str | Path) -> Path:
    """Write the zip into ``folder`` and return its path."""
    target = Path(folder) / FILE_NAME
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for source in (*(_ROOT / name for name in _BESIDE), *sorted(_SPARK.rglob("*.py"))):
            archive.write(source, f"{PACKAGE}/{source.relative_to(_ROOT).as_posix()}")
        for source in sorted(_SOURCE.glob("*.py")):
            archive.write(source, f"{_SOURCE.name}/{source.name}")
    return target
