"""Files with old modification times."""

from __future__ import annotations

import os
import time
from pathlib import Path


def make_older(folder: Path, days: float, pattern: str = "*.parquet") -> None:
    """Set the modification times of files below a folder to ``days`` ago; Delta logs keep their times by default."""
    then = time.time() - days * 86_400
    for path in folder.rglob(pattern):
        if path.is_file() and (pattern != "*.parquet" or "_delta_log" not in path.parts):
            os.utime(path, (then, then))
