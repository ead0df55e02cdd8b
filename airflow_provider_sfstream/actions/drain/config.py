"""Configuration of a drain, and the landing, replay store and hook that it names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, fields
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_sfstream._airflow import require_human_in_the_loop
from airflow_provider_sfstream.actions.arguments import is_template, start_from_text, time_from_text, wake_up_conditions
from airflow_provider_sfstream.actions.storage import open_landing
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
from airflow_provider_sfstream.salesforce.streams import Stream
from airflow_provider_sfstream.salesforce.topics import Api, Topic, is_on_pubsub
from airflow_provider_sfstream.streams.drain.limits import DrainLimits

if TYPE_CHECKING:
    from airflow_provider_sfstream.hooks.event_topics import EventHook
    from airflow_provider_sfstream.streams.recovery import OnInvalidReplay
    from airflow_provider_sfstream.streams.source import StartFrom
    from airflow_provider_sfstream.streams.watch.conditions import WakeUpConditions

_CHOICES: dict[str, tuple[str, ...]] = {
    "replay_store": REPLAY_STORES,
    "advance": ("automatic", "manual"),
    "mode": ("incremental", "interval"),
    "on_invalid_replay": ("fail", "earliest", "latest", "ask"),
    "on_expired": ("fail", "partial"),
    "accept_quiet_aging": ("True", "False"),
    "reuse": ("True", "False"),
}
"""Values of the arguments that have few, as text."""


@dataclass(frozen=True, kw_only=True)
class DrainConfig:
    """Arguments of :class:`~airflow_provider_sfstream.operators.drain_replay_window.DrainReplayWindowOperator`.

    They are the operator's attributes of the same names, and it documents them.

    :param rendered: whether the templates are rendered. If not, arguments with a template are not checked, and the
        combinations of arguments are.
    :raises ConfigurationError: naming the invalid argument. Nothing was read or moved.
    """

    topic: str
    api: Api | None
    salesforce_conn_id: str
    subscription: str  # the managed subscription, if there is one
    managed_subscription: str | None
    landing_url: str
    landing_conn_id: str | None
    replay_store: ReplayStoreKind
    replay_store_conn_id: str
    start_from: str
    max_events: int | None
    max_bytes: int | None
    max_seconds: float | None
    idle_timeout: float | None
    wait_for_confirmation: bool
    until: str | datetime | None
    grace: timedelta | None
    on_invalid_replay: Literal["fail", "earliest", "latest", "ask"] | None
    accept_quiet_aging: bool
    fail_on: Sequence[Literal["gap", "schema_change"]]
    mode: Literal["incremental", "interval"]
    on_expired: Literal["fail", "partial"]
    reuse: bool | str  # a template renders to text
    advance: Literal["automatic", "manual"]
    skip_if_empty: bool
    allocation_reserve: float | Mapping[str, float] | None
    min_events: int
    max_wait: float | timedelta | None
    deferrable: bool
    execution_timeout: timedelta | None  # of the task
    rendered: InitVar[bool]

    @classmethod
    def from_operator(cls, operator: Any, *, rendered: bool = True) -> DrainConfig:
        """Return the checked arguments of an operator."""
        return cls(**{each.name: getattr(operator, each.name) for each in fields(cls)}, rendered=rendered)

    def __post_init__(self, rendered: bool) -> None:
        _ = self.reserve
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
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
        limits = ("until", "grace", "max_events", "max_bytes", "max_seconds")
        return [name for name in limits if getattr(self, name) not in (None, "")]

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
        """Refuse arguments that the API of the topic does not support."""
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
        """Refuse arguments that contradict a managed subscription."""
        for name, default, reason in (
            ("start_from", "earliest", "the subscription's defaultReplay determines its start"),
            ("accept_quiet_aging", False, "it is for the Streaming API"),
            ("mode", "incremental", "Salesforce stores one position. Backfills of this DAG still drain intervals"),
            ("advance", "automatic", "the task that drained a window commits it to Salesforce"),
        ):
            value = getattr(self, name)
            if value != default:
                raise ConfigurationError(f"{name}={value!r} cannot be combined with managed_subscription: {reason}.")
        if self.api == "streaming":
            raise ConfigurationError(
                "Managed event subscriptions exist only on the Pub/Sub API. Remove api='streaming'."
            )
        if not is_template(managed_subscription):
            ManagedSubscription(managed_subscription)

    def _check_interval(self) -> None:
        """Refuse arguments that do not go with ``mode="interval"``."""
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

    config: DrainConfig
    landed: LandedStream
    start_from: StartFrom | bytes
    hook: EventHook


def open_drain(config: DrainConfig, *, may_be_landed: bool = False, writes: bool = True) -> Drain:
    """Open the landing and the replay store of a drain, and find out its org.

    :param config: with its templates rendered.
    :param may_be_landed: whether the landing may have the requested windows already. If so, the limits are not
        checked, and there is no login if the connection names the org.
    :param writes: whether the drain may land events. If so, the landing is checked to be writable.
    :raises SalesforceStreamError: naming the unusable argument or storage. Nothing was read or moved.
    """
    if not may_be_landed:
        _ = config.limits
    topic = Topic.parse(config.topic, config.api)
    start_from = start_from_text(config.start_from)
    catalog = open_landing(config.landing_url, config.landing_conn_id)
    if writes:
        catalog.landing.check_writable()
    store = open_replay_store(config.replay_store, config.replay_store_conn_id, catalog)
    hook = event_hook(topic.api, config.salesforce_conn_id)
    org_id = hook.known_org_id if may_be_landed else hook.org_id
    stream = Stream(org_id, topic.api, topic.name, config.subscription)
    landed = LandedStream(stream, catalog, store, partial(hook.event_retention, topic.name))
    return Drain(config, landed, start_from, hook)
