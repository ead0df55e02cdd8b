"""State of one probed org: its calls, the event budget, and the records to delete at the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import grpc
import httpx

from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as pb
from airflow_provider_sfstream.salesforce.pubsub.channel import channel_credentials, multi_callable
from live_check.login import Login
from live_check.redaction import Redactor

SAMPLE_EVENT = "/event/Airflow_Order__e"
CHANNEL = "/data/Airflow_Sales__chn"
CHANGE_EVENTS = "/data/ChangeEvents"
ACCOUNT_CHANGES = "/data/AccountChangeEvent"
MANAGED_SUBSCRIPTION = "Airflow_Orders"
"""Topics and the subscription that ``deploy/salesforce`` deploys and probes use."""

CALL_SECONDS = 60.0
_OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", 16 << 20))


class SkippedError(Exception):
    """An org lacks a requirement of a probe, or the user has no access to it."""


class BudgetSpentError(Exception):
    """A probe tried to use more events than it declared."""


class ProbedOrg:
    """An org, from the login to the deletion of the records created in it. Thread-safe."""

    def __init__(self, login: Login) -> None:
        self.login = login
        self._http_settings: dict[str, Any] = {
            "base_url": login.token.instance_url,
            "timeout": CALL_SECONDS,
            **login.network.httpx_options(login.token.instance_url),
        }
        self.rest_client = self.http_client({"Authorization": f"Bearer {login.token.value}"})
        self.redact = Redactor(
            {
                "token": login.token.value,
                "org": login.org_id,
                "org_15": login.org_id[:15],
                "user_id": login.token.user_id or "",
                "user_id_15": (login.token.user_id or "")[:15],
                "host": httpx.URL(login.token.instance_url).host,
            }
        )
        self.left_replay_id = b""
        self.backlog = 0
        self.closed = threading.Event()
        self._lock, self._making = threading.Lock(), threading.Lock()
        self._made: list[str] = []
        self._closers: list[Callable[[], None]] = [self.rest_client.close]

    def http_client(self, headers: Mapping[str, str] | None = None) -> httpx.Client:
        """Return a client of the org's host. The caller must close it."""
        return httpx.Client(headers=dict(headers or {}), **self._http_settings)

    def channel(self, *options: tuple[str, int]) -> grpc.Channel:
        """Return a new channel, which is closed together with the org."""
        given = [*_OPTIONS, *options]
        endpoint = self.login.endpoint
        if endpoint.plaintext:
            channel = grpc.insecure_channel(endpoint.target, options=given)
        else:
            channel = grpc.secure_channel(
                endpoint.target, channel_credentials(self.login.network.tls_ca), options=given
            )
        self.at_end(channel.close)
        return channel

    def at_end(self, close: Callable[[], None]) -> None:
        """Register a function to call when the org is closed."""
        with self._lock:
            self._closers.append(close)

    def create(self, path: str, body: Mapping[str, Any]) -> httpx.Response:
        """Request a new record; if it was created, delete it at the end.

        :raises SkippedError: if the cleanup has started already.
        """
        with self._making:
            if self.closed.is_set():
                raise SkippedError("the check was ended")
            answer = self.rest("POST", path, dict(body))
            if answer.is_success:
                self._made.append(f"{path}/{answer.json()['id']}")
        return answer

    def rest(self, method: str, path: str, body: Any = None, **how: Any) -> httpx.Response:
        """Call the REST API, relative to the path of the API version."""
        url = f"/services/data/v{self.login.api_version}{path}"
        return self.rest_client.request(method, url, json=body, **how)

    def organization(self) -> Mapping[str, Any] | None:
        """Return the org's ``Organization`` record, or ``None`` if the user may not read it."""
        answer = self.rest("GET", "/query", params={"q": "SELECT IsSandbox, OrganizationType FROM Organization"})
        records = answer.json().get("records") if answer.is_success else None
        return dict(records[0]) if records else None

    def clean_up(self) -> list[str]:
        """Delete all records that probes created, newest first; return the failed deletions with their reasons."""
        with self._making:
            self.closed.set()
            made, self._made = self._made, []
        left = []
        for path in reversed(made):
            try:
                answer = self.rest("DELETE", path)
                if not answer.is_success and answer.status_code != 404 and "DELETED" not in answer.text:
                    left.append(f"{path}: HTTP {answer.status_code} {answer.text[:200]}")
            except httpx.HTTPError as error:
                left.append(f"{path}: {type(error).__name__}")
        return left

    def close(self) -> None:
        """Close all calls and connections."""
        self.closed.set()
        with self._lock:
            closers, self._closers = self._closers, []
        for close in reversed(closers):
            close()


class ProbeRun:
    """One run of a probe on one org. ``measured`` has seconds by name, beside the answer.

    :param most_events: maximum number of events that it may publish and receive, added up.
    """

    def __init__(self, org: ProbedOrg, most_events: int) -> None:
        self.org = org
        self.measured: dict[str, float] = {}
        self.events = 0
        self._most_events = most_events
        self._channel: grpc.Channel | None = None

    @property
    def channel(self) -> grpc.Channel:
        """The channel of this probe's calls."""
        if self._channel is None:
            self._channel = self.org.channel()
        return self._channel

    def rpc(self, name: str, channel: grpc.Channel | None = None) -> Any:
        """Return an RPC of the Pub/Sub API on a channel."""
        return multi_callable(channel or self.channel, name)

    def metadata(self, **changes: str | None) -> list[tuple[str, str]]:
        """Return the metadata of a call with these changes; ``None`` removes an entry."""
        token = self.org.login.token
        usual = {"accesstoken": token.value, "instanceurl": token.instance_url, "tenantid": token.org_id}
        return [(name, value) for name, value in (usual | changes).items() if value is not None]

    def spend(self, events: int) -> None:
        """Count events that are published or were delivered.

        :raises BudgetSpentError: if this exceeds the number that the probe declared.
        """
        self.events += events
        if self.events > self._most_events:
            raise BudgetSpentError(f"the probe declared {self._most_events} events and would use {self.events}")

    def pause(self, seconds: float) -> None:
        """Wait for some seconds.

        :raises SkippedError: if the check is ended during the wait.
        """
        if self.org.closed.wait(seconds):
            raise SkippedError("the check was ended")

    def seconds(self, name: str, seconds: float | None, *bounds: float) -> str:
        """Return the class of a time (``"1 to 10 s"``) and store the time as a measure.

        :param bounds: bounds between the classes, in ascending order.
        """
        if seconds is None:
            return "never seen"
        self.measured[name] = round(seconds, 3)
        limits = [0.0, *bounds]
        below = next((n for n, bound in enumerate(limits) if seconds < bound), None)
        if below is None:
            return f"above {limits[-1]:g} s"
        return f"below {limits[1]:g} s" if below == 1 else f"{limits[below - 1]:g} to {limits[below]:g} s"

    def topic(self, name: str) -> pb.TopicInfo:
        """Return the org's description of a topic.

        :raises SkippedError: if the topic does not exist or is not visible to the user.
        """
        request = pb.TopicRequest(topic_name=name)
        try:
            info: pb.TopicInfo = self.rpc("GetTopic")(request, metadata=self.metadata(), timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            raise SkippedError(f"{name}: {error.code().name}; deploy it with deploy/salesforce") from None
        return info

    def managed_id(self) -> str:
        """Return the ID of the sample's managed event subscription.

        :raises SkippedError: if it does not exist or is not visible to the user.
        """
        query = f"SELECT Id FROM ManagedEventSubscription WHERE DeveloperName = '{MANAGED_SUBSCRIPTION}'"  # noqa: S608
        answer = self.org.rest("GET", "/tooling/query", params={"q": query})
        records = answer.json().get("records") if answer.is_success else None
        if not records:
            raise SkippedError(
                f"managed event subscription {MANAGED_SUBSCRIPTION} is not visible (HTTP {answer.status_code}); "
                "deploy it with deploy/salesforce, and grant View Setup and Configuration"
            )
        return str(records[0]["Id"])

    def make(self, path: str, body: Mapping[str, Any]) -> str:
        """Create a record that is deleted at the end, and return its ID.

        :raises SkippedError: if the org refuses it to this user.
        """
        answer = self.org.create(path, body)
        if not answer.is_success:
            raise SkippedError(f"POST {path}: HTTP {answer.status_code} {answer.text[:200]}")
        return str(answer.json()["id"])


def now() -> float:
    """Return the seconds of a monotonic clock."""
    return time.monotonic()
