"""Raw Bayeux messages of the Streaming API."""

from __future__ import annotations

from typing import Any

import httpx

from live_check.run import ProbeRun

Message = dict[str, Any]
HELD_SECONDS = 130.0


class BayeuxSession:
    """One session with its own cookies.

    :param token: access token. Default: the token of the login.
    :param version: API version in the path. Default: the version of the login.
    """

    def __init__(self, run: ProbeRun, *, token: str | None = None, version: str | None = None) -> None:
        login = run.org.login
        self._run = run
        self.http = run.org.http_client({"Authorization": f"Bearer {token or login.token.value}"})
        self.http.timeout = httpx.Timeout(HELD_SECONDS)
        self.path = f"/cometd/{login.api_version if version is None else version}"
        self.client_id = ""

    def __enter__(self) -> BayeuxSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def post(self, messages: Any) -> httpx.Response:
        """Send messages unchanged."""
        return self.http.post(self.path, json=messages)

    def send(self, channel: str, **fields: Any) -> list[Message]:
        """Send one message of this session and return the response messages. Delivered events count as spent."""
        answer = self.post([{"channel": channel, "clientId": self.client_id, **fields}])
        messages = answer.json()
        self._run.spend(sum("data" in each for each in messages))
        return list(messages)

    def handshake(self, **fields: Any) -> Message:
        """Send the handshake and return the reply."""
        message = {"channel": "/meta/handshake", "version": "1.0", "supportedConnectionTypes": ["long-polling"]}
        reply = dict(self.post([message | fields]).json()[0])
        self.client_id = str(reply.get("clientId", ""))
        return reply

    def connect(self, *, seconds: float | None = None) -> list[Message]:
        """Poll for at most ``seconds``; return the event messages, followed by the reply."""
        advice = {} if seconds is None else {"advice": {"timeout": int(seconds * 1000)}}
        return self.send("/meta/connect", connectionType="long-polling", **advice)

    def subscribe(self, name: str, replay: Any = None) -> Message:
        """Subscribe from a replay ID; return the reply."""
        ext = {} if replay is None else {"ext": {"replay": replay if isinstance(replay, dict) else {name: replay}}}
        return self.send("/meta/subscribe", subscription=name, **ext)[-1]


def refused(run: ProbeRun, reply: Message) -> Any:
    """Return the fields of a reply about success and errors, without the fields that differ between sessions."""
    kept = {key: reply[key] for key in ("successful", "error", "advice", "ext") if key in reply}
    return run.org.redact(kept)
