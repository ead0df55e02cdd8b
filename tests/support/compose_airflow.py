"""The Airflow of a deployment, over its public REST API, with the password that the deployment was given."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx

from scripts.airflow_stack import AirflowStack

_SECONDS = 240


class DeployedAirflow(AirflowStack):
    """Somebody else starts and restarts it; calls wait for an API that is away.

    :param port: of the API server on loopback.
    :param password: of ``admin``.
    """

    def __init__(self, port: int, password: str) -> None:
        super().__init__(Path(), Path())
        self.port, self.url = port, f"http://127.0.0.1:{port}"
        self._password = password

    def api(self, method: str, path: str, **kwargs: Any) -> Any:
        """Call the API and return the decoded answer; raise on an error of the caller's."""
        deadline = time.monotonic() + _SECONDS
        while True:
            try:
                response = self._logged_in().request(method, path, **kwargs)
                answered = not response.is_server_error
            except (httpx.TransportError, _NotLoggedInError):
                answered = False
            if answered or time.monotonic() > deadline:
                break
            time.sleep(0.5)
        if response.is_error:
            raise RuntimeError(f"{method} {path}: {response.status_code} {response.text}")
        return response.json() if response.content else None

    def _logged_in(self) -> httpx.Client:
        if self._client is None:
            credentials = {"username": "admin", "password": self._password}
            response = httpx.post(f"{self.url}/auth/token", json=credentials, timeout=30, trust_env=False)
            if response.is_server_error:
                raise _NotLoggedInError
            token = response.raise_for_status().json()["access_token"]
            self._client = httpx.Client(
                base_url=f"{self.url}/api/v2",
                headers={"Authorization": f"Bearer {token}"},
                timeout=60,
                trust_env=False,
            )
        return self._client


class _NotLoggedInError(Exception):
    """The API answers, but not to a login yet."""
