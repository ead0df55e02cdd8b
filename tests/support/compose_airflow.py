"""Client for the public REST API of a deployed Airflow."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx

from scripts.airflow_stack import AirflowStack

_SECONDS = 240


class DeployedAirflow(AirflowStack):
    """An Airflow that the deployment starts and restarts. Calls wait while its API is unavailable.

    :param port: port of the API server on loopback.
    :param password: password of the user ``admin``.
    """

    def __init__(self, port: int, password: str) -> None:
        super().__init__(Path(), Path())
        self.port, self.url = port, f"http://127.0.0.1:{port}"
        self._password = password

    def api(self, method: str, path: str, **kwargs: Any) -> Any:
        """Call the API and return the decoded response. Retry while the API is unavailable.

        :raises RuntimeError: for a response with an error status.
        """
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
    """The API responds, but rejects logins with a server error."""
