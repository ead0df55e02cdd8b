"""Trigger that waits until enough of an allocation of the org remains."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from inspect import signature
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_sfstream.exceptions import SalesforceStreamError
from airflow_provider_sfstream.hooks.salesforce_allocations import Reserve, SalesforceAllocationHook, enough


class SalesforceAllocationTrigger(BaseTrigger):
    """Fire once, when at least ``reserve`` of an allocation of the org remains.

    The event is a dict: ``reason`` (``"enough"``), ``allocation``, ``max``, ``remaining`` and ``reserve``, the last
    three numbers of events or requests. A permanent error fires ``reason: error`` with the ``error`` (its class) and
    ``message``. The trigger continues after transient faults, and while the org has no API requests left.

    Arguments are checked when the trigger runs and when it is serialized. The constructor raises nothing, because
    Airflow's triggerer would end with it.

    :param allocation: its name in Salesforce's ``/limits``, such as ``DailyDeliveredPlatformEvents``.
    :param reserve: a whole number of events or requests, or a share (``float``) of the allocation from 0.0 to 1.0.
    :param salesforce_conn_id: Airflow connection of the org.
    :param poke_interval: seconds between two pokes, each of them one API request.
    """

    supports_triggerer_queue = True

    def __init__(
        self,
        *,
        allocation: str,
        reserve: float,
        salesforce_conn_id: str = "salesforce_default",
        poke_interval: float = 300.0,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.allocation = allocation
        self.reserve = reserve
        self.salesforce_conn_id = salesforce_conn_id
        self.poke_interval = poke_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments. None of them is a secret: the connection is named, not copied.

        :raises ConfigurationError: if an argument cannot be used.
        """
        Reserve.from_value(self.reserve, "reserve")
        arguments = {name: getattr(self, name) for name in signature(type(self)).parameters}
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Fire once: when enough remains, or with a permanent error."""
        from airflow_provider_sfstream.streams.watch.conditions import error_payload

        try:
            event = {"reason": "enough", **await self._wait()}
        except SalesforceStreamError as error:
            self.log.error("%s: waiting ended, nothing was read or moved: %s", self.allocation, error)  # noqa: TRY400
            event = error_payload(error)
        yield TriggerEvent(event)  # type: ignore[no-untyped-call]

    async def _wait(self) -> dict[str, Any]:
        reserve = Reserve.from_value(self.reserve, "reserve")
        hook = SalesforceAllocationHook(self.salesforce_conn_id)
        await hook.asettings()  # read here, because the threads below cannot read a connection in the triggerer
        while True:
            # One request every few minutes does not justify an asynchronous client.
            allocation = await asyncio.to_thread(enough, hook.get, self.allocation, reserve)
            if allocation is not None:
                return allocation
            await asyncio.sleep(self.poke_interval)
