"""Emulators of Azure Blob Storage (Azurite) and Google Cloud Storage (fake-gcs-server), as Airflow's storage."""

from __future__ import annotations

import base64
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
from airflow.sdk.io import attach

from scripts.airflow_stack import free_port
from tests.support.object_storage import BUCKET, kill_with_parent
from tests.support.packages import AZURITE, FAKE_GCS_SERVER, need
from tests.support.tasks import set_connection

ACCOUNT = "sfstreamtests"
_DEADLINE = 120


@dataclass
class CloudStorage:
    """Running emulator with the empty container or bucket :data:`BUCKET`.

    :param scheme: ``abfs`` or ``gs``.
    :param filesystem: the filesystem that Airflow's provider of the scheme creates.
    :param connection: fields of the Airflow connection.
    :param environment: variables of a worker that uses the emulator.
    """

    scheme: str
    filesystem: Any
    connection: dict[str, Any]
    environment: dict[str, str]

    def url(self) -> str:
        """Return a URL below which one test may write."""
        return f"{self.scheme}://{BUCKET}/{secrets.token_hex(8)}"

    def connect(self, monkeypatch: pytest.MonkeyPatch) -> str:
        """Define an Airflow connection with a new ID and return the ID.

        Airflow's provider of the scheme, which would create the filesystem of the connection, is not installed.
        """
        conn_id = f"storage_{secrets.token_hex(4)}"
        set_connection(monkeypatch, conn_id, **self.connection)
        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)
        attach(self.scheme, conn_id, fs=self.filesystem)
        return conn_id


@pytest.fixture(scope="session")
def azure() -> Iterator[CloudStorage]:
    """Run Azurite for all tests, which write below their own prefixes."""
    from adlfs import AzureBlobFileSystem

    program, port = need(AZURITE), free_port()
    key = base64.b64encode(secrets.token_bytes(32)).decode()
    endpoint = f"http://127.0.0.1:{port}"
    # Its versions of the API are older than those of the clients; delta-rs and adlfs use no newer function of it.
    options = ("--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck", "--silent")
    with _running([str(program), *options, "--blobPort", str(port)], endpoint, AZURITE_ACCOUNTS=f"{ACCOUNT}:{key}"):
        settings = {
            "DefaultEndpointsProtocol": "http",
            "AccountName": ACCOUNT,
            "AccountKey": key,
            "BlobEndpoint": f"{endpoint}/{ACCOUNT}",
        }
        connection_string = ";".join(f"{name}={value}" for name, value in settings.items())
        filesystem = AzureBlobFileSystem(connection_string=connection_string)
        filesystem.mkdir(BUCKET)
        connection = {"conn_type": "wasb", "extra": {"connection_string": connection_string}}
        environment = {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": endpoint}
        yield CloudStorage("abfs", filesystem, connection, environment)


@pytest.fixture(scope="session")
def google() -> Iterator[CloudStorage]:
    """Run fake-gcs-server for all tests, which write below their own prefixes."""
    from gcsfs.core import GCSFileSystem  # that of the package also calls an API over gRPC, for zonal buckets

    program, port = need(FAKE_GCS_SERVER), free_port()
    endpoint = f"http://127.0.0.1:{port}"
    options = {
        "scheme": "http", "backend": "memory", "host": "127.0.0.1", "port": port, "external-url": endpoint,
        "public-host": f"127.0.0.1:{port}", "log-level": "error",
    }  # fmt: skip
    with _running([str(program), *(f"-{name}={value}" for name, value in options.items())], f"{endpoint}/storage/v1/b"):
        filesystem = GCSFileSystem(project="tests", token="anon", endpoint_url=endpoint)
        filesystem.mkdir(BUCKET)
        xml_port = free_port()
        xml = f"http://127.0.0.1:{xml_port}"
        command = [sys.executable, "-m", "tests.support.google_xml", str(xml_port), str(port)]
        with _running(command, f"{xml}/storage/v1/b"):
            key = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
            no_login = {"gcs_base_url": xml, "disable_oauth": True}
            connection = {"conn_type": "google_cloud_platform", "extra": {"keyfile_dict": json.dumps(key | no_login)}}
            yield CloudStorage("gs", filesystem, connection, {})


@contextmanager
def _running(command: list[str], ready: str, **environment: str) -> Iterator[None]:
    """Run a server for a ``with`` block, which begins when it answers at the URL ``ready``."""
    process = subprocess.Popen(
        [*kill_with_parent(), *command],
        env=os.environ | environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + _DEADLINE
        while not _answers(ready):
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                raise RuntimeError(f"{Path(command[0]).name} did not start: {process.communicate()[1]}")
            time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.communicate()


def _answers(url: str) -> bool:
    try:
        urlopen(url, timeout=5).close()
    except HTTPError:
        return True
    except (URLError, OSError):
        return False
    return True
