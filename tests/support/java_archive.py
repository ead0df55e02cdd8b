"""Java class data archive of Spark's classes, which shortens the start of Spark in tests.

``python -m tests.support.java_archive`` writes the archive, once for each virtual environment. The tests also run
without it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

SHORT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java options of tests: a test is too short to benefit from Java's second compiler."""

_APPLICATION = """
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

spark = SparkSession.builder.getOrCreate()
rows = spark.range(100).withColumn("part", f.col("id") % 3)
rows.groupBy("part").count().write.parquet("rows")
assert spark.read.parquet("rows").count() == 3
spark.stop()
"""


def archive() -> Path:
    """Return the path of the archive for the installed Java and Spark, even if the file does not exist yet."""
    java = Path(shutil.which("java") or "java").resolve()
    return Path(sys.prefix) / f"spark-{version('pyspark')}-{java.parent.parent.name}.jsa"


def submit_options(settings: Mapping[str, str]) -> str:
    """Return the value of ``SPARK_SUBMIT_OPTS`` for a test that starts Spark, with these default settings.

    ``JAVA_TOOL_OPTIONS`` would also apply to the launcher, a short Java program that prints Spark's command line.
    """
    options = [SHORT, *(f"-D{name}={value}" for name, value in settings.items())]
    if archive().exists():
        # Without -Xlog:disable, Java reports an unsuitable archive on standard output before it ignores the archive.
        options += [f"-XX:SharedArchiveFile={archive()}", "-Xlog:disable"]
    return " ".join(options)


def write_archive() -> None:
    """Write the archive of the classes that a small job loads; the complete file replaces the old one atomically."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "application.py").write_text(_APPLICATION)
        temporary = archive().with_suffix(f".{os.getpid()}")
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        environment = os.environ | {
            "PATH": path,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": f"{SHORT} -XX:ArchiveClassesAtExit={temporary} -Xlog:disable",
        }
        command = ["spark-submit", "--master", "local[1]", "--conf", "spark.ui.enabled=false", "application.py"]
        subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, timeout=600)
        temporary.replace(archive())


if __name__ == "__main__":
    write_archive()
