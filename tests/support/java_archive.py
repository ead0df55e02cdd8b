"""What Java has read and checked of Spark's classes, kept in a file: a Spark that is started with it is there sooner.

``python -m tests.support.java_archive`` writes it, once for a virtual environment. Without it everything runs as well.
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
"""What a test does is too short for Java's second compiler to pay."""

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
    """Return where the archive is, or would be: one for each Java and Spark."""
    java = Path(shutil.which("java") or "java").resolve()
    return Path(sys.prefix) / f"spark-{version('pyspark')}-{java.parent.parent.name}.jsa"


def submit_options(settings: Mapping[str, str]) -> str:
    """Return ``SPARK_SUBMIT_OPTS`` for a Spark that is started in a test, with these settings by default.

    Not ``JAVA_TOOL_OPTIONS``: the small Java that finds Spark's command line, and prints it, would have them too.
    """
    options = [SHORT, *(f"-D{name}={value}" for name, value in settings.items())]
    if archive().exists():
        # Of an archive that does not fit, Java says so on standard output, and goes on without it.
        options += [f"-XX:SharedArchiveFile={archive()}", "-Xlog:disable"]
    return " ".join(options)


def write_archive() -> None:
    """Write the archive, from the classes that a small job loads. A part of one is never seen."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "application.py").write_text(_APPLICATION)
        made = archive().with_suffix(f".{os.getpid()}")
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        environment = os.environ | {
            "PATH": path,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": f"{SHORT} -XX:ArchiveClassesAtExit={made} -Xlog:disable",
        }
        command = ["spark-submit", "--master", "local[1]", "--conf", "spark.ui.enabled=false", "application.py"]
        subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, timeout=600)
        made.replace(archive())


if __name__ == "__main__":
    write_archive()
