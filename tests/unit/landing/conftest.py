from __future__ import annotations

import secrets

import pytest

from airflow_provider_sfstream.landing.location import Landing


@pytest.fixture(params=["local", "memory"])
def landing(request, tmp_path):
    """Provide a landing in local files, and one in a filesystem that is not local."""
    url = str(tmp_path / "lake") if request.param == "local" else f"memory://lake-{secrets.token_hex(4)}"
    landing = Landing.from_url(url)
    yield landing
    if request.param == "memory" and landing.filesystem.exists(landing.base):
        landing.filesystem.rm(landing.base, recursive=True)
