"""CometD sessions and messages in the local org's request log."""

from __future__ import annotations

from tests.support.localorg import LocalOrg


def sessions(org: LocalOrg, topic: str | None = None) -> list[str]:
    """Return the client IDs of subscribed sessions that have not sent ``/meta/disconnect``, oldest first.

    :param topic: return only sessions with a subscription to it.
    """
    log = [entry for entry in org.requests("cometd") if entry["outcome"] == "OK"]
    ended = {entry["detail"].get("client_id") for entry in log if entry["method"] == "/meta/disconnect"}
    subscribed = [
        entry["detail"]["client_id"]
        for entry in log
        if entry["method"] == "/meta/subscribe" and topic in (None, entry["detail"].get("subscription"))
    ]
    return [client_id for client_id in dict.fromkeys(subscribed) if client_id not in ended]


def count(org: LocalOrg, method: str) -> int:
    """Return the number of messages that the org has received on a meta channel."""
    return len(org.requests("cometd", method))
