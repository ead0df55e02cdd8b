"""What lets Spark start and plan sooner, for jobs on few events: most of such a job is Java at its own affairs."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

_SETTINGS = {
    # Compiling code for a query, and planning it again at each stage, takes longer than a few rows do without.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.ui.enabled": "false",
}
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A job is over before Java's second compiler pays."""
_OPTIONS = "spark.driver.extraJavaOptions"


class JavaArchive:
    """Java's archive of the classes that Spark loads, kept between jobs of a worker: the first one writes it.

    A Java that it does not fit begins without it.

    :param folder: where it is kept; made if need be.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        home = os.environ.get("JAVA_HOME")
        java = Path(home, "bin", "java") if home else Path(shutil.which("java") or "java")
        name = hashlib.sha256(f"{version('pyspark')} {java.resolve()}".encode()).hexdigest()[:16]
        self._path = folder / f"spark-{name}.jsa"
        self._made = None if self._path.exists() else self._path.with_suffix(f".{os.getpid()}")

    @property
    def option(self) -> str:
        """Java's option: to begin with the archive, or to write it."""
        if self._made is None:
            return f"-XX:SharedArchiveFile={self._path}"
        return f"-XX:ArchiveClassesAtExit={self._made}"

    def end(self, *, succeeded: bool) -> None:
        """Let the next job begin with what this one has written; of one that failed, remove it."""
        if self._made is not None and self._made.exists():
            if succeeded:
                self._made.replace(self._path)
            else:
                self._made.unlink()


def java_archive() -> JavaArchive | None:
    """Return the archive of this worker, below ``AIRFLOW_HOME``; ``None`` where nothing can be kept there."""
    home = Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser()
    try:
        return JavaArchive(home / "sfstream")
    except OSError:
        return None


def small_window_settings(given: Mapping[str, str], archive: JavaArchive | None) -> dict[str, str]:
    """Return the settings of a Spark job on few events.

    :param given: the user's settings, which go before.
    """
    # What Java says of an archive that does not fit goes to standard output, where the job's own lines are looked for.
    archived = "" if archive is None else f"-Xlog:disable {archive.option}"
    options = " ".join(filter(None, (_JAVA, archived, given.get(_OPTIONS))))
    return {**_SETTINGS, **given, _OPTIONS: options}
