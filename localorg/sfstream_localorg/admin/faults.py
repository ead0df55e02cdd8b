"""Faults that ``/admin/faults`` can cause."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from aiohttp import web

from sfstream_localorg.admin.managed import ManagedControls
from sfstream_localorg.org import Org
from sfstream_localorg.streams.endings import CallEnded
from sfstream_localorg.streams.faults import CallFailure, StreamDrop
from sfstream_localorg.streams.schema_faults import SchemaFault

Body = dict[str, Any]
_ENDINGS = ("handshake", "no_advice", "disconnect")


class FaultControls:
    """Handlers of ``/admin/faults``, with one method for each fault."""

    def __init__(self, org: Org) -> None:
        self._org = org
        managed = ManagedControls(org)
        self._faults: dict[str, Callable[[Body], None]] = {
            "drop_every": self._drop_every,
            "drop_now": self._drop_now,
            "fail_calls": self._fail_calls,
            "answer_schema": self._answer_schema,
            "omit_schema_id": self._omit_schema_id,
            "silence": self._silence,
            "stall_delivery": self._stall_delivery,
            "seek": self._seek,
            "expire": self._expire,
            "expire_before": self._expire_before,
            "reset_stream": self._reset_stream,
            "cometd_kill_sessions": self._kill_cometd_sessions,
            "cometd_drop_held": self._drop_held_connects,
            **{name: partial(self._cometd, name) for name in org.faults.cometd.names()},
            "managed_half_open": managed.half_open,
            **{name: partial(managed.fault_commits, name) for name in org.faults.managed.names()},
        }

    async def show(self, request: web.Request, body: Body) -> Any:
        return self._org.faults.as_dict()

    async def clear(self, request: web.Request, body: Body) -> Any:
        """End all lasting faults; expired events stay expired."""
        self._org.faults.clear()
        self._org.wake_streams()
        return self._org.faults.as_dict()

    async def set(self, request: web.Request, body: Body) -> Any:
        """Cause one fault.

        :raises ValueError: if the fault is unknown or the body is invalid.
        """
        name = request.match_info["fault"]
        if name not in self._faults:
            raise ValueError(f"there is no fault {name!r}; there are {', '.join(sorted(self._faults))}")
        self._faults[name](body)
        self._org.wake_streams()
        return self._org.faults.as_dict()

    def _drop_every(self, body: Body) -> None:
        self._org.faults.add_drop(
            StreamDrop(int(body["every"]), _ending(body), self._checked_topic(body.get("topic")), body.get("times"))
        )

    def _drop_now(self, body: Body) -> None:
        topic = self._checked_topic(body.get("topic"))
        for subscription in list(self._org.subscriptions):
            if topic in (None, subscription.topic):
                subscription.end(_ending(body))

    def _fail_calls(self, body: Body) -> None:
        self._org.faults.add_failure(CallFailure(body["rpc"], int(body.get("times", 1)), _ending(body)))

    def _answer_schema(self, body: Body) -> None:
        """Return a text, valid schema or not, from ``GetSchema``, or end the call; without ``times`` until cleared."""
        given = body.get("schema_id"), body.get("times")
        self._org.faults.schemas.add(SchemaFault(*given, ending=_ending(body), text=body.get("text")))

    def _omit_schema_id(self, body: Body) -> None:
        self._org.faults.schemas.omit_id(self._required_topic(body), body.get("schema_id"))

    def _silence(self, body: Body) -> None:
        self._org.faults.silent.add(self._checked_topic(body.get("topic")) or "*")

    def _stall_delivery(self, body: Body) -> None:
        """Respond to subscribers of both APIs but deliver no events, stored or new; ``"on": false`` ends it."""
        on = body.get("on", True)
        if not isinstance(on, bool) or set(body) - {"topic", "on"}:
            raise ValueError("stall_delivery has topic and on, which is true or false")
        self._org.faults.delivery.stall(self._checked_topic(body.get("topic")), on=on)

    def _seek(self, body: Body) -> None:
        """Send empty responses before the first event of streams that start with a backlog; 0 responses end it."""
        if unknown := set(body) - {"topic", "responses", "seconds"}:
            raise ValueError(f"seek has no {', '.join(sorted(unknown))}; there are topic, responses, seconds")
        topic = self._checked_topic(body.get("topic"))
        self._org.faults.delivery.set_seek(topic, body["responses"], body.get("seconds", 0.05))

    def _expire(self, body: Body) -> None:
        self._org.bus.expire(self._required_topic(body), bytes.fromhex(body["replay_id"]))

    def _expire_before(self, body: Body) -> None:
        self._org.bus.expire_before(self._required_topic(body), bytes.fromhex(body["replay_id"]))

    def _reset_stream(self, body: Body) -> None:
        """Reset the stream of a topic and end its subscriptions, as the move of an org to another instance does."""
        self._org.bus.reset(self._required_topic(body))
        self._drop_now(body)
        self._kill_cometd_sessions({"topic": body["topic"]})

    def _cometd(self, name: str, body: Body) -> None:
        self._checked_topic(body.get("topic"))
        self._org.faults.cometd.add(name, body)

    def _kill_cometd_sessions(self, body: Body) -> None:
        """End CometD sessions; ``how`` selects the error that their clients receive."""
        topic, how = self._checked_topic(body.get("topic")), body.get("how", "handshake")
        if how not in _ENDINGS:
            raise ValueError(f"how={how!r} must be one of {', '.join(_ENDINGS)}")
        for session in self._org.cometd:
            if session.listens_to(topic):
                self._org.cometd.end(session, how)

    def _drop_held_connects(self, body: Body) -> None:
        self._org.cometd.drop_held(self._checked_topic(body.get("topic")))

    def _required_topic(self, body: Body) -> str:
        return self._checked_topic(body["topic"]) or ""

    def _checked_topic(self, topic: str | None) -> str | None:
        if topic is not None:
            self._org.check_topic(topic)
        return topic


def _ending(body: Body) -> CallEnded:
    given = {name: body[name] for name in ("how", "code", "status", "message") if name in body}
    return CallEnded(**given)
