"""What executors need of this package, as a zip that Spark ships to them; they may lack the package itself."""

from __future__ import annotations

import zipfile
from pathlib import Path

PACKAGE = "airflow_provider_sfstream"
_SPARK = Path(__file__).parent


def is_installed() -> bool:
    """Tell whether the package lies in files. If not, it came in a zip, which executors have too."""
    return _SPARK.is_dir()


def write_executor_package(folder: str | Path) -> Path:
    """Write the zip into ``folder`` and return its path."""
    target = Path(folder) / "sfstream_spark.zip"
    root = _SPARK.parent
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for source in (root / "__init__.py", root / "exceptions.py", *sorted(_SPARK.glob("*.py"))):
            archive.write(source, f"{PACKAGE}/{source.relative_to(root).as_posix()}")
    return target
