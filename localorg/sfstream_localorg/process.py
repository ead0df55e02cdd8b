"""Local org for tests and demos: a child process, started, stopped and controlled from Python.

In a test of your own DAG::

    from sfstream_localorg.process import LocalOrg

    @pytest.fixture
    def org(tmp_path):
        with LocalOrg.running(tmp_path / "org") as org:
            org.define("Order__e", Amount__c="double")
            yield org

    def test_my_dag(org):
        org.publish("/event/Order__e", [{"Amount__c": 1.5}])
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import grpc
import httpx

from sfstream_localorg.pubsub import pubsub_api_pb2_grpc as pb_grpc

START_SECONDS = 120.0


class LocalOrg:
    """A running org. ``info`` is its ready line; the keys are also attributes (``org.grpc_port``)."""

    def __init__(self, data_dir: Path, *, topics: Mapping[str, Any] | None = None) -> None:
        self.data_dir = data_dir
        self.info: dict[str, Any] = {}
        self._topics = topics
        self._process: subprocess.Popen[bytes] | None = None
        self._channels: list[grpc.Channel] = []
        self._rest_token: str | None = None
        # One client, because creating a client takes longer than most calls. It reuses no connections, because the org
        # may have been killed since the last call.
        self._client = httpx.Client(
            timeout=120,
            trust_env=False,
            verify=False,  # noqa: S501 (plain HTTP)
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    @classmethod
    @contextmanager
    def running(cls, data_dir: Path, **arguments: Any) -> Iterator[LocalOrg]:
        """Start an org, and stop it at the end of the context, also after an error."""
        local_org = cls(data_dir, **arguments)
        try:
            local_org.start()
            yield local_org
        finally:
            local_org.close()

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["info"][name]
        except KeyError:
            raise AttributeError(name) from None

    def start(self) -> None:
        """Start the process, on its previous ports if they are free, and wait until it is ready."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "sfstream_localorg", "--data-dir", str(self.data_dir)]
        for name in ("http_port", "https_port", "grpc_port", "grpc_tls_port"):
            if name in self.info:
                command += [f"--{name.replace('_', '-')}", str(self.info[name])]
        if self._topics is not None:
            path = self.data_dir / "topics.json"
            path.write_text(json.dumps(self._topics))
            command += ["--topics", str(path)]
        log = (self.data_dir / "localorg.log").open("ab")
        with log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        self.info = json.loads(self._ready_line(self._process))

    def kill(self) -> None:
        """End the process as ``kill -9`` does."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End the process cleanly; return its exit status."""
        return self._end(signal.SIGTERM)

    def restart(self) -> None:
        """Stop the process and start it again with the same ports and data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """End the process if it runs, and close all channels and the HTTP client."""
        for channel in self._channels:
            channel.close()
        self._channels.clear()
        self._client.close()
        if self._process is not None:
            self._end(signal.SIGTERM)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._running().pid

    def airflow_connection(self, **extra: Any) -> dict[str, Any]:
        """Return the fields of an Airflow connection to this org, over TLS, with client credentials.

        :param extra: fields to add to its Extra or to replace there.
        """
        return {
            "conn_type": "salesforce",
            "extra": {
                "consumer_key": self.client_id,
                "consumer_secret": self.client_secret,
                "login_url": self.https_instance_url,
                "pubsub_endpoint": f"localhost:{self.grpc_tls_port}",
                "tls_ca": self.ca_file,
                **extra,
            },
        }

    @property
    def grpc_target(self) -> str:
        return f"127.0.0.1:{self.grpc_port}"

    def stub(self) -> pb_grpc.PubSubStub:
        """Return a stub on a new plaintext channel."""
        channel = grpc.insecure_channel(self.grpc_target, [("grpc.use_local_subchannel_pool", 1)])
        self._channels.append(channel)
        return pb_grpc.PubSubStub(channel)  # type: ignore[no-untyped-call]

    def token(self) -> str:
        """Return a new access token, without logging in."""
        return str(self.admin("POST", "/sessions", {})["access_token"])

    def metadata(self, token: str | None = None) -> list[tuple[str, str]]:
        """Return the required metadata of gRPC calls."""
        return [
            ("accesstoken", token or self.token()),
            ("instanceurl", self.instance_url),
            ("tenantid", self.org_id),
        ]

    def define(self, name: str, /, *, volume: str | None = None, **fields: str) -> Any:
        """Create or change a platform event: ``define("Order__e", Amount__c="double")``. Return its topic.

        :param volume: ``high`` or ``standard``; ``None`` for the current volume, or ``high`` for a new event.
        """
        listed = [{"name": field, "type": kind} for field, kind in fields.items()]
        return self.admin("PUT", f"/topics/{name}", {"fields": listed, "volume": volume})

    def define_object(self, name: str, /, **fields: str | Mapping[str, Any]) -> Any:
        """Create a custom object with change events, or add fields: ``define_object("Invoice__c", Sum__c="Number")``.

        :param fields: the type of each field, or a mapping with ``type``, ``externalId``, ``referenceTo``, ``formula``.
        """
        listed = [{"name": one, **({"type": of} if isinstance(of, str) else of)} for one, of in fields.items()]
        return self.admin("PUT", f"/entities/{name}", {"fields": listed})

    def channel(self, name: str, members: Sequence[str]) -> Any:
        """Create or change a custom channel, and return its topic."""
        return self.admin("PUT", f"/channels/{name}", {"members": list(members)})

    def push_topic(self, name: str, query: str, /, **fields: Any) -> Any:
        """Create or change a PushTopic: ``push_topic("Invoices", "SELECT Id, Name FROM Account")``.

        :param fields: further fields of its record, for example ``NotifyForFields="All"``.
        :returns: ``name`` (``/topic/Invoices``) and ``id``.
        """
        return self.admin("PUT", f"/push_topics/{name}", {**fields, "Query": query})

    def generic_channel(self, name: str) -> Any:
        """Create a generic channel (``/u/notifications/Orders``) if it does not exist. Return ``name`` and ``id``."""
        return self.admin("PUT", "/generic_channels", {"Name": name})

    def managed_subscription(
        self,
        name: str,
        topic: str,
        /,
        *,
        default_replay: str = "EARLIEST",
        error_recovery_replay: str = "LATEST",
        state: str = "RUN",
        **metadata: str,
    ) -> Any:
        """Create or change a managed event subscription: ``managed_subscription("Orders", "/event/Order__e")``.

        :param default_replay: start before the first commit; Salesforce's default is ``LATEST``.
        :param metadata: further elements of its Metadata: ``label``, ``version``.
        :returns: its entry in :meth:`managed_subscriptions`.
        """
        given = {"topicName": topic, "defaultReplay": default_replay, "errorRecoveryReplay": error_recovery_replay}
        body = {**given, "state": state, **metadata}
        return self._decoded_subscription(self.admin("PUT", f"/managed_subscriptions/{name}", body))

    def managed_subscriptions(self) -> dict[str, dict[str, Any]]:
        """Return the managed event subscriptions by developer name.

        An entry has ``id``, ``metadata``, ``committed`` (the last committed replay ID, or ``None``), ``visible``
        (whether the Pub/Sub API sees the last change) and ``slot`` (``free``, ``active``, ``held`` or ``half_open``).
        """
        answered = self.admin("GET", "/managed_subscriptions")["managed_subscriptions"]
        return {one["developer_name"]: self._decoded_subscription(one) for one in answered}

    def change_managed_subscription(self, name: str, /, **metadata: str) -> Any:
        """Change elements of a managed subscription's Metadata; ``state="STOP"`` discards its position."""
        return self._decoded_subscription(self.admin("PATCH", f"/managed_subscriptions/{name}", metadata))

    def delete_managed_subscription(self, name: str) -> None:
        """Delete a managed subscription and its position."""
        self.admin("DELETE", f"/managed_subscriptions/{name}")

    def recreate_managed_subscription(self, name: str, /, **metadata: str) -> Any:
        """Delete a managed subscription and create one with the same name, another ID and no position.

        :param metadata: elements to change, for example ``topicName``.
        """
        return self._decoded_subscription(self.admin("POST", f"/managed_subscriptions/{name}/recreate", metadata))

    def commit_managed_subscription(self, name: str, replay_id: bytes | None = None) -> Any:
        """Commit a replay ID (``None`` for the end of the stream) as another client of a managed subscription does."""
        body = {} if replay_id is None else {"replay_id": replay_id.hex()}
        return self._decoded_subscription(self.admin("POST", f"/managed_subscriptions/{name}/commit", body))

    @staticmethod
    def _decoded_subscription(managed: dict[str, Any]) -> dict[str, Any]:
        committed = managed["committed"]
        return {**managed, "committed": None if committed is None else bytes.fromhex(committed)}

    def publish(self, topic: str, events: Sequence[Mapping[str, Any]], *, schema_id: str | None = None) -> list[bytes]:
        """Publish events; return their replay IDs, 8 bytes for ``/topic/...`` and ``/u/...``, else 10.

        :param events: field values for a platform event; ``{"payload": ...}`` for a generic channel; ``{"sobject":
            {...}, "type": "updated"}`` for a PushTopic, without a change of a record. Optional event time:
            ``CreatedDate`` for platform events, ``createdDate`` beside ``payload`` or ``sobject`` for the others.
        """
        body: dict[str, Any] = {"topic": topic, "events": list(events)}
        if schema_id is not None:
            body["schema_id"] = schema_id
        return [bytes.fromhex(replay_id) for replay_id in self.admin("POST", "/events", body)["replay_ids"]]

    def publish_many(self, topic: str, count: int, template: Mapping[str, Any]) -> tuple[bytes, bytes]:
        """Publish ``count`` events from a template (``"{n}"`` is the index); return the first and last replay ID."""
        body = {"topic": topic, "count": count, "template": dict(template)}
        first, last = self.admin("POST", "/events", body)["first_and_last_replay_id"]
        return bytes.fromhex(first), bytes.fromhex(last)

    def record(self, topic: str, *, api: str | None = None) -> list[dict[str, Any]]:
        """Return all events ever published to a topic, in order, for comparison with received events.

        :param api: ``"streaming"`` for the form of the Streaming API, which ``/topic/...`` and ``/u/...`` always have:
            ``replay_id`` has 8 bytes, ``payload`` is the JSON of the message's ``data``, byte for byte, and
            ``schema_id`` is the channel's name for events without a schema.
        """
        events: list[dict[str, Any]] = []
        after: str | None = ""
        parameters = {} if api is None else {"api": api}
        while after is not None:
            page = self.admin("GET", "/events?" + urlencode({"topic": topic, "after": after, **parameters}))
            events += page["events"]
            after = page["next"]
        for event in events:
            event["replay_id"] = bytes.fromhex(event["replay_id"])
            event["payload"] = bytes.fromhex(event["payload"])
        return events

    def knobs(self, **changes: Any) -> Any:
        """Change knobs, and return all knobs."""
        return self.admin("PATCH", "/knobs", changes)

    def reset_knobs(self) -> None:
        """Reset all knobs to their defaults."""
        self.admin("DELETE", "/knobs")

    def fault(self, fault: str, /, **arguments: Any) -> Any:
        """Cause a fault, for example ``fault("drop_every", every=300, how="reset")``."""
        return self.admin("POST", f"/faults/{fault}", arguments)

    def clear_faults(self) -> None:
        """End all lasting faults."""
        self.admin("DELETE", "/faults")

    def revoke(self, token: str | None = None) -> int:
        """Revoke one access token, or all; return the number of revoked tokens."""
        return int(self.admin("POST", "/sessions/revoke", {} if token is None else {"token": token})["revoked"])

    def rest(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Call the REST API as the org's user: ``rest("POST", "/sobjects/Account", {"Name": "Acme"})``.

        :param path: path below ``/services/data/v{version}``.
        :returns: the JSON of the response, ``None`` for an empty response.
        :raises AdminError: if the org refuses the call.
        :raises ConnectionError: if the org does not respond.
        """
        url = f"{self.instance_url}/services/data/v66.0{path}"
        if self._rest_token is not None:
            with contextlib.suppress(_SessionEndedError):
                return self._call(method, url, body, {"Authorization": f"Bearer {self._rest_token}"})
        self._rest_token = self.token()
        return self._call(method, url, body, {"Authorization": f"Bearer {self._rest_token}"})

    def requests(self, kind: str | None = None, method: str | None = None) -> list[dict[str, Any]]:
        """Return the request log, oldest first, filtered by kind (``grpc``, ``http``, ``cometd``) and method."""
        entries = self.admin("GET", "/requests")["requests"]
        return [e for e in entries if kind in (None, e["kind"]) and method in (None, e["method"])]

    def streams(self) -> list[dict[str, Any]]:
        """Return the open streams: ``topic``, and ``events``, the number of delivered events."""
        return list(self.admin("GET", "/org")["streams"])

    def admin(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Call the admin API.

        :raises AdminError: if the org refuses the call.
        :raises ConnectionError: if the org does not respond.
        """
        return self._call(method, self.admin_url + path, body, {})

    def _call(self, method: str, url: str, body: Mapping[str, Any] | None, headers: Mapping[str, str]) -> Any:
        json_body = None if body is None else dict(body)
        try:
            response = self._client.request(method, url, json=json_body, headers=dict(headers))
        except httpx.TransportError as error:
            raise ConnectionError(f"{method} {url}: {error}") from error
        if response.is_error:
            refused = _SessionEndedError if response.status_code == 401 else AdminError
            raise refused(f"{method} {url}: {response.status_code} {response.text}")
        return response.json() if response.content else None

    def _ready_line(self, process: subprocess.Popen[bytes]) -> Any:
        stdout: Any = process.stdout
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            ready, _, _ = select.select([stdout], [], [], 0.1)
            if ready and (line := stdout.readline()):
                return line
            if process.poll() is not None:
                break
        log = (self.data_dir / "localorg.log").read_text()
        raise RuntimeError(f"the local org did not start (exit status {process.poll()}):\n{log}")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the local org is not running")
        return self._process

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._running(), None
        if process.poll() is None:
            os.kill(process.pid, number)
        try:
            return process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()
        finally:
            if process.stdout is not None:
                process.stdout.close()


class AdminError(Exception):
    """The org refused a call."""


class _SessionEndedError(AdminError):
    """The token of a call has been revoked."""
