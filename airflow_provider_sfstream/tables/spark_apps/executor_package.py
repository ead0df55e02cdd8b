"""Zip of the packages that executors need, which Spark ships to them; they may lack the package itself."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

FILE_NAME = "sfstream_spark.zip"
_ROOT = Path(__file__).parents[2]
_FOLDERS = ("landing", "privacy", "replay_stores", "replay_windows", "salesforce", "tables")
"""Packages that executors, and a driver without the package, import."""
_SOURCE = _ROOT.parent / "pyspark_sfstream"


def is_shipped(spark: Any) -> bool:
    """Return whether executors already receive the zip: it was passed to ``spark-submit --py-files``."""
    return FILE_NAME in spark.sparkContext.getConf().get("spark.submit.pyFiles", "") or not _ROOT.is_dir()


def write_executor_package(folder: str | Path) -> Path:
    """Write the zip into ``folder`` and return its path."""
    target = Path(folder) / FILE_NAME
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        modules = (module for name in _FOLDERS for module in (_ROOT / name).rglob("*.py"))
        for source in sorted([*_ROOT.glob("*.py"), *modules, *_SOURCE.glob("*.py")]):
            archive.write(source, source.relative_to(_ROOT.parent).as_posix())
    return target
