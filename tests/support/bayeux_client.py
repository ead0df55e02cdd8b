"""Minimal Bayeux client. It sends messages unchanged and returns all replies, including advice and errors."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import httpx

from tests.support.localorg import LocalOrg

Message = dict[str, Any]


class BayeuxClient:
    """Bayeux client with its own token and cookie jar."""

    def __init__(self, org: LocalOrg, *, scheme: str = "Bearer", token: str | None = None, path: str = "62.0") -> None:
        self.token = token or org.token()
        self.client_id = ""
        self.path = f"/cometd/{path}"
        headers = {"Authorization": f"{scheme} {self.token}"}
        self.http = httpx.Client(base_url=org.instance_url, headers=headers, timeout=30, trust_env=False, verify=False)

    def __enter__(self) -> BayeuxClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.http.close()

    def send(self, *messages: Message, path: str = "") -> list[Message]:
        """Send messages of this session and return the replies."""
        own = [{"clientId": self.client_id, **message} for message in messages]
        response = self.http.post(self.path + path, json=own)
        assert response.status_code == 200, response.text
        return list(response.json())

    def handshake(self, **fields: Any) -> Message:
        message = {"channel": "/meta/handshake", "version": "1.0", "supportedConnectionTypes": ["long-polling"]}
        (reply,) = self.http.post(self.path, json=[message | fields]).json()
        self.client_id = reply.get("clientId", "")
        return dict(reply)

    def connect(self, **fields: Any) -> list[Message]:
        """Send ``/meta/connect`` and return the event messages, followed by the reply."""
        return self.send({"channel": "/meta/connect", "connectionType": "long-polling", **fields})

    def poll(self) -> list[Message]:
        """Return the event messages that are available without waiting."""
        return [message for message in self.connect(advice={"timeout": 0}) if message["channel"] != "/meta/connect"]

    def subscribe(self, name: str, replay: int | None = None, **fields: Any) -> Message:
        ext = {} if replay is None else {"ext": {"replay": {name.partition("?")[0]: replay}}}
        (reply,) = self.send({"channel": "/meta/subscribe", "subscription": name, **ext, **fields})
        return reply

    def opened(self, name: str, replay: int = -1) -> BayeuxClient:
        """Send a handshake and subscribe to a topic; return this client."""
        assert self.handshake()["successful"]
        reply = self.subscribe(name, replay)
        assert reply["successful"], reply
        return self


def replay_ids(messages: list[Message]) -> list[int]:
    """Return the replay IDs of event messages."""
    return [message["data"]["event"]["replayId"] for message in messages]
