"""``/admin/managed_subscriptions``: managed subscriptions with what they have committed, and cutting their networks."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from sfstream_localorg.errors import ApiError
from sfstream_localorg.managed.settings import check_full_name
from sfstream_localorg.managed.stream import ManagedStream
from sfstream_localorg.managed.subscriptions import ManagedRecord
from sfstream_localorg.org import Org
from sfstream_localorg.rest.tooling_managed import settings_of

Body = dict[str, Any]
_VERSION = "66.0"


class ManagedControls:
    """The handlers; what cannot be done raises ``ValueError`` and changes nothing."""

    def __init__(self, org: Org) -> None:
        self._org = org

    async def show(self, request: web.Request, body: Body) -> Any:
        """Answer with every managed subscription, oldest first."""
        return {"managed_subscriptions": [self._shown(record) for record in self._org.managed]}

    async def put(self, request: web.Request, body: Body) -> Any:
        """Create a managed subscription, or change its settings: the body is its Metadata."""
        try:
            name = check_full_name(request.match_info["name"])
            settings = settings_of(self._org, {"Metadata": {"state": "RUN", **body}}, name, _VERSION)
            record = self._org.managed.named(name)
            if record is None:
                record = self._org.managed.create(name, settings)
            else:
                self._org.managed.update(record, settings)
        except ApiError as error:
            raise ValueError(str(error)) from None
        self._org.wake_streams()
        return self._shown(record)

    def fault_commits(self, fault: str, body: Body) -> None:
        """Cause a fault of commits.

        :raises ValueError: if there is no such subscription, or the body does not describe one.
        """
        name = body.get("developer_name")
        if name is not None and self._org.managed.named(str(name)) is None:
            raise ValueError(f"there is no managed subscription {name!r}")
        self._org.faults.managed.add(fault, body)

    def half_open(self, body: Body) -> None:
        """Cut the network to the client of an open managed stream, unnoticed by either side.

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

    def _shown(self, record: ManagedRecord) -> Body:
        committed = record.committed
        return {
            "id": record.id,
            "developer_name": record.developer_name,
            "metadata": record.settings.as_metadata(),
            "visible": self._org.managed.visible(record) is record.settings,
            "committed": None if committed is None else self._org.bus.replay_id(committed).hex(),
            "slot": self._org.managed.slots.state(record.id),
        }
