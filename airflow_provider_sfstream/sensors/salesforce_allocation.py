"""Wait until enough of an allocation of a Salesforce org remains."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue

from airflow_provider_sfstream._airflow import conf
from airflow_provider_sfstream.actions.failures import airflow_errors, soft_failing
from airflow_provider_sfstream.actions.retries import RetriedOperator
from airflow_provider_sfstream.actions.status import report_allocation
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.hooks.salesforce_allocations import (
    DELIVERED_EVENTS,
    Allocation,
    Reserve,
    SalesforceAllocationHook,
    enough,
    log_delivered,
)
from airflow_provider_sfstream.streams.watch.conditions import error_from_payload


class SalesforceAllocationSensor(RetriedOperator, BaseSensorOperator):
    """Wait until at least ``reserve`` of an allocation of the org remains.

    Use it before a backfill or a large refresh. Each poke logs the remaining amount. The first poke with too little
    also logs the number of events delivered in the last 24 hours, if the org has it (``PlatformEventUsageMetric``). A
    poke is one API request, needs the permission "View Setup and Configuration", and reads Salesforce's count, which
    is a little late.

    The sensor continues after transient faults, and while the org has no API requests left. If Salesforce does not
    report the allocation, the task fails (``AllocationUnknownError``), because the remaining amount is unknown.
    ``soft_fail`` turns that and the ``timeout`` into a skipped task, as with any sensor.

    The XCom result is a small dict: ``allocation``, ``max``, ``remaining`` and ``reserve``, the last three numbers of
    events or requests.

    :param reserve: required remaining amount: a whole number of events or requests (``int``), or a share of the
        allocation (``float`` from 0.0 to 1.0): ``1`` is one event, ``1.0`` all of them.
    :param allocation: its name in Salesforce's ``/limits``: ``DailyDeliveredPlatformEvents`` for drains, or, if the
        org has the add-on, ``MonthlyPlatformEventsUsageEntitlement``; ``DailyApiRequests`` for refreshes. (templated)
    :param salesforce_conn_id: Airflow connection of the org. (templated)
    :param poke_interval: seconds (or a timedelta) between two pokes.
    :param deferrable: wait on the triggerer. Default: the setting ``[operators] default_deferrable``.
    :raises ConfigurationError: at construction, if an argument cannot be used.
    """

    template_fields: Sequence[str] = ("allocation", "salesforce_conn_id")
    ui_color = "#d8ecf8"

    def __init__(
        self,
        *,
        reserve: float,
        allocation: str = DELIVERED_EVENTS,
        salesforce_conn_id: str = "salesforce_default",
        poke_interval: float | timedelta = 300.0,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        if not isinstance(allocation, str) or not allocation.strip():
            raise ConfigurationError(f"allocation={allocation!r} must be a name such as {DELIVERED_EVENTS!r}.")
        self.reserve = reserve
        self.allocation = allocation
        self.salesforce_conn_id = salesforce_conn_id
        self.deferrable = deferrable
        self._least = Reserve.from_value(reserve, "reserve")
        self._hook: SalesforceAllocationHook | None = None
        self._has_logged_delivered = False

    def execute(self, context: Context) -> Any:
        """Wait until enough remains, with pokes or on the triggerer. Return the remaining amount."""
        if not self.deferrable:
            return super().execute(context)
        from airflow_provider_sfstream.triggers.salesforce_allocation import SalesforceAllocationTrigger

        with soft_failing(self):
            first = self.poke(context)
        if first.is_done:
            return first.xcom_value
        self.log.info("%s: waiting on the triggerer, with a poke every %g s.", self.allocation, self.poke_interval)
        return self.defer(
            trigger=SalesforceAllocationTrigger(
                allocation=self.allocation,
                reserve=self.reserve,
                salesforce_conn_id=self.salesforce_conn_id,
                poke_interval=self.poke_interval,
            ),
            method_name="execute_complete",
            timeout=timedelta(seconds=self.timeout),
        )

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Return the remaining amount, or raise the error that ended the wait."""
        with airflow_errors(self):
            error = error_from_payload(event)
            if error is not None:
                raise error
        return {name: value for name, value in event.items() if name != "reason"}

    def poke(self, context: Context) -> PokeReturnValue:
        """Read the remaining amount once. After a transient fault the next poke reads it again."""
        if self._hook is None:  # one hook for all pokes of this process, so that they log in once
            self._hook = SalesforceAllocationHook(self.salesforce_conn_id)
        with airflow_errors(self):
            state = enough(partial(self._read_and_report, self._hook, context), self.allocation, self._least)
            if state is None and not self._has_logged_delivered:
                self._has_logged_delivered = True
                log_delivered(self.allocation, self._hook.delivered)
        return PokeReturnValue(state is not None, state)

    def _read_and_report(self, hook: SalesforceAllocationHook, context: Context, name: str) -> Allocation:
        allocation = hook.get(name)
        report_allocation(self.salesforce_conn_id, context, allocation)
        return allocation
