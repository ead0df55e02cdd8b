"""What the local org's request log says of CometD sessions."""

from __future__ import annotations

from tests.support.localorg import LocalOrg


def sessions(org: LocalOrg, topic: str | None = None) -> list[str]:
    """Return the client ids of sessions that subscribed (to ``topic``) and have not said goodbye, oldest first."""
    log = [entry for entry in org.requests("cometd") if entry["outcome"] == "OK"]
    ended = {entry["detail"].get("client_id") for entry in log if entry["method"] == "/meta/disconnect"}
    subscribed = [
        entry["detail"]["client_id"]
        for entry in log
        if entry["method"] == "/meta/subscribe" and topic in (None, entry["detail"].get("subscription"))
    ]
    return [client_id for client_id in dict.fromkeys(subscribed) if client_id not in ended]


def count(org: LocalOrg, method: str) -> int:
    """Return how many messages of a meta channel the org has had."""
    return len(org.requests("cometd", method))
