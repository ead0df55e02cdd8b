"""Arguments of a drain, and the landing, replay store and hook that they name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_sfstream._airflow import conf, require_human_in_the_loop
from airflow_provider_sfstream.actions.arguments import (
    DEFAULT_SUBSCRIPTION,
    consumer_name,
    is_template,
    time_from_text,
    wake_up_conditions,
)
from airflow_provider_sfstream.actions.drain.outlets import DrainOutlets
from airflow_provider_sfstream.actions.drain.table_jobs import TableJobsOperator
from airflow_provider_sfstream.actions.landed_stream import LandedStreamOperator
from airflow_provider_sfstream.actions.storage import open_landing
from airflow_provider_sfstream.actions.task_runs import check_timetable
from airflow_provider_sfstream.arguments import check_choice
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.extras import require_extra
from airflow_provider_sfstream.hooks.event_topics import event_hook
from airflow_provider_sfstream.hooks.replay_store import open_replay_store
from airflow_provider_sfstream.hooks.salesforce_allocations import AllocationReserve
from airflow_provider_sfstream.replay_stores.kinds import REPLAY_STORES, ReplayStoreKind
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.salesforce.events import CONFIRM_TIMEOUT
from airflow_provider_sfstream.salesforce.identifiers import ManagedSubscription
from airflow_provider_sfstream.salesforce.replay_ids import start_from_text
from airflow_provider_sfstream.salesforce.streams import Stream
from airflow_provider_sfstream.salesforce.topics import Topic, is_on_pubsub
from airflow_provider_sfstream.streams.drain.limits import DrainLimits

if TYPE_CHECKING:
    from airflow_provider_sfstream.hooks.event_topics import EventHook
    from airflow_provider_sfstream.streams.recovery import OnInvalidReplay
    from airflow_provider_sfstream.streams.source import StartFrom
    from airflow_provider_sfstream.streams.watch.conditions import WakeUpConditions


class DrainArguments(TableJobsOperator):
    """Base of the drain operator: its arguments, which the operator documents, and the values that they determine."""

    template_fields: Sequence[str] = (
        *LandedStreamOperator.template_fields,
        "managed_subscription",
        "start_from",
        "until",
        "on_invalid_replay",
        "on_expired",
        "reuse",
        "event_log",
        "replica",
    )

    def __init__(
        self,
        *,
        topic: str,
        landing_url: str,
        salesforce_conn_id: str = "salesforce_default",
        api: Literal["pubsub", "streaming"] | None = None,
        subscription: str = DEFAULT_SUBSCRIPTION,
        managed_subscription: str | None = None,
        landing_conn_id: str | None = None,
        replay_store: ReplayStoreKind | None = None,
        replay_store_conn_id: str = "sfstream_replay_store",
        start_from: str = "earliest",
        max_events: int | None = None,
        max_bytes: int | None = None,
        max_seconds: float | None = None,
        idle_timeout: float | None = None,
        wait_for_confirmation: bool = False,
        until: str | datetime | None = None,
        grace: timedelta | None = None,
        on_invalid_replay: Literal["fail", "earliest", "latest", "ask"] | None = None,
        accept_quiet_aging: bool = False,
        fail_on: Sequence[Literal["gap", "schema_change"]] = (),
        mode: Literal["incremental", "interval"] = "incremental",
        on_expired: Literal["fail", "partial"] = "fail",
        reuse: bool | str = True,  # a template renders to text
        advance: Literal["automatic", "manual"] = "automatic",
        skip_if_empty: bool = False,
        allocation_reserve: float | Mapping[str, float] | None = None,
        min_events: int | None = None,
        max_wait: float | timedelta | None = None,
        deferrable: bool | None = None,
        event_log: Mapping[str, Any] | None = None,
        replica: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            topic=topic,
            landing_url=landing_url,
            salesforce_conn_id=salesforce_conn_id,
            api=api,
            subscription=consumer_name(subscription, managed_subscription),
            landing_conn_id=landing_conn_id,
            replay_store=replay_store or ("variable" if managed_subscription is None else "landing"),
            replay_store_conn_id=replay_store_conn_id,
            event_log=event_log,
            replica=replica,
            **kwargs,
        )
        self.managed_subscription = managed_subscription
        self.start_from = start_from
        self.max_events, self.max_bytes, self.max_seconds = max_events, max_bytes, max_seconds
        self.idle_timeout, self.wait_for_confirmation = idle_timeout, wait_for_confirmation
        self.until, self.grace = until, grace
        if on_invalid_replay is None and managed_subscription is None:
            on_invalid_replay = "fail"
        self.on_invalid_replay = on_invalid_replay
        self.accept_quiet_aging, self.fail_on, self.skip_if_empty = accept_quiet_aging, fail_on, skip_if_empty
        self.mode, self.on_expired, self.reuse, self.advance = mode, on_expired, reuse, advance
        self.allocation_reserve = allocation_reserve
        self.min_events = int(deferrable is True and mode == "incremental") if min_events is None else min_events
        self.max_wait = max_wait
        if deferrable is None:
            deferrable = conf.getboolean("operators", "default_deferrable", fallback=False)
        self.deferrable = deferrable
        self.check_arguments(rendered=False)
        if mode == "interval":
            check_timetable(getattr(self.get_dag(), "timetable", None))
        self._assets = DrainOutlets.from_operator(self)
        self.outlets = [*self.outlets, *(each for each in self._assets.declared() if each not in self.outlets)]

    def check_arguments(self, *, rendered: bool = True) -> None:
        """Check the arguments, and their combinations when the DAG is parsed.

        :param rendered: whether the templates are rendered. If not, arguments with a template are not checked.
        :raises ConfigurationError: naming the invalid argument. Nothing was read or moved.
        """
        _ = self.reserve
        choices: tuple[str, ...]
        for name, value, choices in (
            ("replay_store", self.replay_store, REPLAY_STORES),
            ("advance", self.advance, ("automatic", "manual")),
            ("mode", self.mode, ("incremental", "interval")),
            ("on_invalid_replay", self.on_invalid_replay, ("fail", "earliest", "latest", "ask")),
            ("on_expired", self.on_expired, ("fail", "partial")),
            ("accept_quiet_aging", self.accept_quiet_aging, ("True", "False")),
            ("reuse", self.reuse, ("True", "False")),
        ):
            if value is not None and (rendered or not is_template(value)):
                check_choice(name, str(value), choices)
        if self.on_invalid_replay == "ask":
            self._check_ask()
        if rendered or not is_template(self.topic):
            self._check_api()
        if not rendered:
            self._check_combinations()

    @property
    def reserve(self) -> AllocationReserve:
        """Events that must remain of the org's allocations."""
        return AllocationReserve(self.allocation_reserve)

    @property
    def policy(self) -> OnInvalidReplay | None:
        """``on_invalid_replay`` of the drain itself, which asks no question."""
        return "fail" if self.on_invalid_replay == "ask" else self.on_invalid_replay

    @property
    def conditions(self) -> WakeUpConditions | None:
        """Conditions for which the drain waits; ``None`` to drain at once."""
        if self.min_events == 0:
            if self.max_wait is None:
                return None
            raise ConfigurationError("max_wait applies to fewer events than min_events. Set min_events above 0.")
        return wake_up_conditions(self.min_events, self.max_wait)

    @property
    def longest_idle(self) -> float:
        """Seconds without an event after which any drain is idle."""
        return DrainLimits.idle_timeout if self.idle_timeout is None else self.idle_timeout

    @property
    def limits(self) -> DrainLimits:
        """Limits of an incremental drain."""
        return DrainLimits(
            max_events=self.max_events,
            max_bytes=self.max_bytes,
            max_seconds=self.max_seconds,
            idle_timeout=self.longest_idle,
            ends_sooner=self.idle_timeout is None and self.managed_subscription is None,
            confirm_timeout=CONFIRM_TIMEOUT if self.wait_for_confirmation else 0.0,
            wait_for_confirmation=self.wait_for_confirmation,
            until=time_from_text("until", self.until),
            grace=self.grace or timedelta(0),
        )

    @property
    def incremental_limits(self) -> list[str]:
        """Names of the limits that are set and have no meaning for an interval."""
        limits: dict[str, object] = {"until": self.until, "grace": self.grace, "max_events": self.max_events}
        limits |= {"max_bytes": self.max_bytes, "max_seconds": self.max_seconds}
        return [name for name, value in limits.items() if value not in (None, "")]

    @property
    def reuses(self) -> bool:
        """Flag to return recorded and landed windows for an interval."""
        return str(self.reuse) == "True"

    def _check_ask(self) -> None:
        """Refuse ``"ask"`` where a task cannot wait for an answer."""
        if self.managed_subscription is not None:
            raise ConfigurationError(
                'on_invalid_replay="ask" cannot be combined with managed_subscription: Salesforce stores its position. '
                'Set "fail", "earliest" or "latest". Nothing was read or moved.'
            )
        require_human_in_the_loop()

    def _check_api(self) -> None:
        is_streaming = Topic.parse(self.topic, self.api).api == "streaming"
        if is_streaming:
            require_extra("streaming")
        if self.wait_for_confirmation and is_streaming:
            remedy = "remove it, and drain often enough that no event expires"
            if is_on_pubsub(self.topic):
                remedy = "remove api='streaming' to drain over the Pub/Sub API, or remove wait_for_confirmation"
            raise ConfigurationError(
                f"wait_for_confirmation=True cannot be fulfilled for {self.topic} on the Streaming API, which never "
                f"confirms the end of a stream: {remedy}. Nothing was read or moved."
            )
        if self.accept_quiet_aging and not is_streaming:
            raise ConfigurationError(
                f"accept_quiet_aging=True applies to the Streaming API. Remove it for {self.topic} on the Pub/Sub API, "
                "where the position of a quiet stream does not expire. Nothing was read or moved."
            )

    def _check_combinations(self) -> None:
        """Refuse arguments that contradict each other, when the DAG is parsed."""
        if isinstance(self.fail_on, str):
            raise ConfigurationError(f"fail_on={self.fail_on!r} must be a list: fail_on=[{self.fail_on!r}].")
        for each in self.fail_on:
            check_choice("fail_on", each, ("gap", "schema_change"))
        if not is_template(self.until):
            _ = self.limits
        if self.managed_subscription is not None:
            self._check_managed(self.managed_subscription)
        _ = self.conditions
        if self.mode == "interval":
            self._check_interval()

    def _check_managed(self, managed_subscription: str) -> None:
        one_position = "Salesforce stores one position. Backfills of this DAG still drain intervals"
        for name, value, default, reason in (
            ("start_from", self.start_from, "earliest", "the subscription's defaultReplay determines its start"),
            ("accept_quiet_aging", self.accept_quiet_aging, False, "it is for the Streaming API"),
            ("mode", self.mode, "incremental", one_position),
            ("advance", self.advance, "automatic", "the task that drained a window commits it to Salesforce"),
        ):
            if value != default:
                raise ConfigurationError(f"{name}={value!r} cannot be combined with managed_subscription: {reason}.")
        if self.api == "streaming":
            raise ConfigurationError(
                "Managed event subscriptions exist only on the Pub/Sub API. Remove api='streaming'."
            )
        if not is_template(managed_subscription):
            ManagedSubscription(managed_subscription)

    def _check_interval(self) -> None:
        refused = self.incremental_limits
        if self.max_wait is not None:
            refused.append("max_wait")
        if self.min_events:
            refused.append("min_events")
        if self.advance == "manual":
            refused.append('advance="manual"')
        if refused:
            raise ConfigurationError(
                f'mode="interval" drains a whole interval after its end, and records it. Remove: {", ".join(refused)}.'
            )


@dataclass(frozen=True)
class Drain:
    """A drain whose landing and replay store are open."""

    arguments: DrainArguments
    landed: LandedStream
    hook: EventHook

    @property
    def start_from(self) -> StartFrom | bytes:
        """Start of a stream without a recorded position."""
        return start_from_text(self.arguments.start_from)


def open_drain(arguments: DrainArguments, *, may_be_landed: bool = False, writes: bool = True) -> Drain:
    """Check the arguments, open the landing and the replay store of a drain, and find out its org.

    :param arguments: with their templates rendered.
    :param may_be_landed: whether the landing may have the requested windows already. If so, the limits are not
        checked, and there is no login if the connection names the org.
    :param writes: whether the drain may land events. If so, the landing is checked to be writable.
    :raises SalesforceStreamError: naming the unusable argument or storage. Nothing was read or moved.
    """
    arguments.check_arguments()
    if not may_be_landed:
        _ = arguments.limits
    topic = Topic.parse(arguments.topic, arguments.api)
    _ = start_from_text(arguments.start_from)
    catalog = open_landing(arguments.landing_url, arguments.landing_conn_id)
    if writes:
        catalog.landing.check_writable()
    store = open_replay_store(arguments.replay_store, arguments.replay_store_conn_id, catalog)
    hook = event_hook(topic.api, arguments.salesforce_conn_id)
    org_id = hook.known_org_id if may_be_landed else hook.org_id
    stream = Stream(org_id, topic.api, topic.name, arguments.subscription)
    landed = LandedStream(stream, catalog, store, partial(hook.event_retention, topic.name))
    return Drain(arguments, landed, hook)
