"""``/admin/managed_subscriptions``: managed subscriptions, their committed positions, and actions of other clients."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from sfstream_localorg.bus.event_bus import ReplayIdCorruptedError
from sfstream_localorg.errors import ApiError
from sfstream_localorg.managed.settings import check_full_name
from sfstream_localorg.managed.stream import ManagedStream
from sfstream_localorg.managed.subscriptions import ManagedRecord
from sfstream_localorg.org import Org
from sfstream_localorg.rest.tooling_managed import settings_of

Body = dict[str, Any]
_VERSION = "66.0"


class ManagedControls:
    """Handlers of managed subscriptions; an invalid request raises ``ValueError`` and changes nothing."""

    def __init__(self, org: Org) -> None:
        self._org = org

    async def show(self, request: web.Request, body: Body) -> Any:
        """Return all managed subscriptions, oldest first."""
        return {"managed_subscriptions": [self._as_dict(record) for record in self._org.managed]}

    async def put(self, request: web.Request, body: Body) -> Any:
        """Create a managed subscription, or change its settings: the body is its Metadata."""
        try:
            name = check_full_name(request.match_info["name"])
            return self._put(name, self._org.managed.named(name), body)
        except ApiError as error:
            raise ValueError(str(error)) from None

    async def change(self, request: web.Request, body: Body) -> Any:
        """Change some elements of the Metadata, for example the state. STOP discards the position."""
        record = self._record(request)
        try:
            return self._put(record.developer_name, record, {**record.settings.as_metadata(), **body})
        except ApiError as error:
            raise ValueError(str(error)) from None

    async def delete(self, request: web.Request, body: Body) -> Any:
        """Delete a managed subscription and its position, as an administrator does."""
        self._org.managed.delete(self._record(request))
        self._org.wake_streams()
        return {}

    async def recreate(self, request: web.Request, body: Body) -> Any:
        """Delete a managed subscription and create one with the same name, another ID and no position.

        The body has the elements of the Metadata to change; ``topicName`` is allowed.
        """
        record = self._record(request)
        name, metadata = record.developer_name, {**record.settings.as_metadata(), **body}
        try:
            settings_of(self._org, {"Metadata": metadata}, name, _VERSION)
            self._org.managed.delete(record)
            return self._put(name, None, metadata)
        except ApiError as error:
            raise ValueError(str(error)) from None

    async def commit(self, request: web.Request, body: Body) -> Any:
        """Commit ``replay_id``, or the end of the stream without one, as another client of the subscription does.

        :raises ValueError: if the replay ID is before the last committed one, or cannot be resumed from.
        """
        if unknown := set(body) - {"replay_id"}:
            raise ValueError(f"a commit has no {', '.join(sorted(unknown))}; there is replay_id")
        record, bus = self._record(request), self._org.bus
        try:
            given = bytes.fromhex(body["replay_id"]) if "replay_id" in body else bus.replay_id(bus.tip())
            position = bus.position_of(record.settings.topic_name, given)
        except ReplayIdCorruptedError:
            raise ValueError("the replay ID is not one that can be resumed from") from None
        if record.committed is not None and position < record.committed:
            raise ValueError("the replay ID is before the last committed one")
        self._org.managed.commit(record, position)
        return self._as_dict(record)

    def _put(self, name: str, record: ManagedRecord | None, metadata: Body) -> Body:
        settings = settings_of(self._org, {"Metadata": {"state": "RUN", **metadata}}, name, _VERSION)
        if record is None:
            record = self._org.managed.create(name, settings)
        else:
            self._org.managed.update(record, settings)
        self._org.wake_streams()
        return self._as_dict(record)

    def _record(self, request: web.Request) -> ManagedRecord:
        name = request.match_info["name"]
        record = self._org.managed.named(name)
        if record is None:
            raise ValueError(f"there is no managed subscription {name!r}")
        return record

    def fault_commits(self, fault: str, body: Body) -> None:
        """Cause a commit fault.

        :raises ValueError: if the subscription is unknown or the body is invalid.
        """
        name = body.get("developer_name")
        if name is not None and self._org.managed.named(str(name)) is None:
            raise ValueError(f"there is no managed subscription {name!r}")
        self._org.faults.managed.add(fault, body)

    def half_open(self, body: Body) -> None:
        """Simulate a lost network connection to the client of an open managed stream, unnoticed by both sides.

        :raises ValueError: if no stream of this subscription is open.
        """
        if unknown := set(body) - {"developer_name"}:
            raise ValueError(f"managed_half_open has no {', '.join(sorted(unknown))}; there is developer_name")
        name = str(body["developer_name"])
        streams = [one for one in self._org.subscriptions if isinstance(one, ManagedStream) and one.serves(name)]
        if not streams:
            raise ValueError(f"there is no open stream of the managed subscription {name!r}")
        for stream in streams:
            stream.vanish()

    def _as_dict(self, record: ManagedRecord) -> Body:
        committed = record.committed
        return {
            "id": record.id,
            "developer_name": record.developer_name,
            "metadata": record.settings.as_metadata(),
            "visible": self._org.managed.visible(record) is record.settings,
            "committed": None if committed is None else self._org.bus.replay_id(committed).hex(),
            "slot": self._org.managed.slots.state(record.id),
        }
