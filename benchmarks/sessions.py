"""Spark sessions for benchmarks: two threads of this process, or a real standalone cluster with two workers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.support.object_storage import BUCKET, ObjectStorage
from tests.support.spark import start_session
from tests.support.standalone_cluster import standalone_cluster


@contextmanager
def session(folder: Path, *, cluster: bool) -> Iterator[Any]:
    """Yield a session on ``local[2]``, or on a cluster of two workers with one core and one GiB each."""
    with ExitStack() as stack:
        settings = {}
        if cluster:
            settings["spark.master"] = stack.enter_context(standalone_cluster(folder / "cluster")).master
        spark = start_session(folder, settings)
        stack.callback(spark.stop)
        yield spark


@contextmanager
def object_storage(spark: Any, folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the URL of a bucket on a real S3 server, and the same bucket as a folder for code without an S3 client.

    The tasks of ``spark`` access the server over S3. Spark contains no S3 client of Hadoop, so Spark itself stores its
    files in ``folder``.
    """
    with ObjectStorage.running(folder / "object_storage") as storage, storage.mounted(folder / "mount") as mount:
        settings = {
            "fs.s3a.access.key": storage.user[0],
            "fs.s3a.secret.key": storage.user[1],
            "fs.s3a.endpoint": storage.endpoint,
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.path.style.access": "true",
            "fs.s3a.impl": "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme",
            f"fs.viewfs.mounttable.{BUCKET}.linkFallback": (folder / "bucket").as_uri(),
        }
        for name, value in settings.items():
            spark._jsc.hadoopConfiguration().set(name, value)
        (folder / "bucket").mkdir()
        yield f"s3a://{BUCKET}", mount / BUCKET


@contextmanager
def largest_worker(found: list[float]) -> Iterator[None]:
    """Append the highest resident size of a Python worker of Spark in MiB to ``found``.

    Linux records this value, so that no peak is missed and no polling disturbs the measurement.
    """
    for process in _workers():
        (process / "clear_refs").write_text("5")  # resets the recorded peak
    yield
    sizes = [re.search(r"VmHWM:\s+(\d+) kB", (process / "status").read_text()) for process in _workers()]
    found.append(round(max(int(size[1]) for size in sizes if size) / 1024, 1))


def _workers() -> list[Path]:
    """Return the ``/proc`` folders of Spark's Python processes."""
    processes = psutil.process_iter(["cmdline"])
    return [Path(f"/proc/{each.pid}") for each in processes if "pyspark.daemon" in (each.info["cmdline"] or ())]
