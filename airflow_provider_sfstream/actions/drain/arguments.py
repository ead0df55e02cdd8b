"""The arguments of a drain: frozen, typed, and checked in one place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Literal, Self

from airflow_provider_sfstream.actions.parts import is_template, time_from_text, wake_up_conditions
from airflow_provider_sfstream.arguments import check_choice
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.hooks.replay_store import REPLAY_STORES, ReplayStoreKind
from airflow_provider_sfstream.salesforce.events import CONFIRM_TIMEOUT
from airflow_provider_sfstream.salesforce.managed_subscription import ManagedSubscription
from airflow_provider_sfstream.salesforce.topics import Api, Topic, is_on_pubsub
from airflow_provider_sfstream.streams.drain.limits import DrainLimits
from airflow_provider_sfstream.streams.watch.conditions import WakeUpConditions

_CHOICES = {
    "replay_store": REPLAY_STORES,
    "advance": ("automatic", "manual"),
    "mode": ("incremental", "interval"),
    "on_invalid_replay": ("fail", "earliest", "latest"),
    "on_expired": ("fail", "partial"),
    "accept_quiet_aging": ("True", "False"),
    "reuse": ("True", "False"),  # a template renders to text
}
_FAILURES = ("gap", "schema_change")
_LIMITS = ("until", "grace", "max_events", "max_bytes", "max_seconds")
_NOT_WITH_MANAGED = {
    "start_from": ("earliest", "the subscription's defaultReplay says where it begins"),
    "accept_quiet_aging": (False, "it is for the Streaming API"),
    "mode": ("incremental", "Salesforce keeps one position. Backfills of this DAG are intervals all the same"),
    "advance": ("automatic", "Salesforce is told of a window by the task that drained it"),
}


@dataclass(frozen=True, kw_only=True)
class DrainArguments:
    """What :class:`~airflow_provider_sfstream.operators.drain_replay_window.DrainReplayWindowOperator` was given.

    Its docstring describes each. Made when the DAG is parsed, and again when the task's templates are rendered.
    """

    topic: str
    landing_url: str
    salesforce_conn_id: str
    api: Api | None
    subscription: str
    managed_subscription: str | None
    landing_conn_id: str | None
    replay_store: ReplayStoreKind
    replay_store_conn_id: str
    start_from: str
    max_events: int | None
    max_bytes: int | None
    max_seconds: float | None
    idle_timeout: float
    wait_for_confirmation: bool
    until: str | datetime | None
    grace: timedelta | None
    on_invalid_replay: Literal["fail", "earliest", "latest"] | None
    accept_quiet_aging: bool
    fail_on: Sequence[Literal["gap", "schema_change"]]
    mode: Literal["incremental", "interval"]
    on_expired: Literal["fail", "partial"]
    reuse: bool | str
    advance: Literal["automatic", "manual"]
    min_events: int
    max_wait: float | timedelta | None

    @classmethod
    def of(cls, operator: object, *, rendered: bool) -> Self:
        """Return the arguments of an operator that has each under its name, checked but for what is not known yet.

        :param rendered: whether the operator's templates are.
        :raises ConfigurationError: naming the argument that cannot be used. Nothing was read or moved.
        """
        arguments = cls(**{each.name: getattr(operator, each.name) for each in fields(cls)})
        for name, choices in _CHOICES.items():
            value = getattr(arguments, name)
            if value is not None and (rendered or not is_template(value)):
                check_choice(name, str(value), choices)
        if rendered or not is_template(arguments.topic):
            arguments._check_api()
        if not rendered:
            arguments._check_declared()
        return arguments

    @property
    def conditions(self) -> WakeUpConditions | None:
        """What to wait for; ``None`` to wait for nothing.

        :raises ConfigurationError: if they cannot be used.
        """
        if self.min_events == 0:
            if self.max_wait is None:
                return None
            raise ConfigurationError("max_wait says when to drain fewer than min_events; set min_events above 0 too.")
        return wake_up_conditions(self.min_events, self.max_wait)

    @property
    def limits(self) -> DrainLimits:
        """When an incremental drain ends.

        :raises ConfigurationError: if they cannot be used.
        """
        return DrainLimits(
            max_events=self.max_events,
            max_bytes=self.max_bytes,
            max_seconds=self.max_seconds,
            idle_timeout=self.idle_timeout,
            confirm_timeout=CONFIRM_TIMEOUT if self.wait_for_confirmation else 0.0,
            wait_for_confirmation=self.wait_for_confirmation,
            until=time_from_text("until", self.until),
            grace=self.grace or timedelta(0),
        )

    @property
    def given_limits(self) -> list[str]:
        """The names of the limits that an interval does not have, as far as they were given."""
        return [name for name in _LIMITS if getattr(self, name) not in (None, "")]

    @property
    def reuses(self) -> bool:
        """Whether what was recorded or landed before answers for an interval."""
        return str(self.reuse) == "True"

    def _check_declared(self) -> None:
        """Refuse what goes together with nothing, when the DAG is parsed."""
        self._check_fail_on()
        if not is_template(self.until):
            _ = self.limits
        if self.managed_subscription is not None:
            self._check_managed(self.managed_subscription)
        _ = self.conditions
        if self.mode == "interval":
            self._check_interval()

    def _check_fail_on(self) -> None:
        if isinstance(self.fail_on, str):
            raise ConfigurationError(f"fail_on={self.fail_on!r} must be a list: fail_on=[{self.fail_on!r}].")
        for each in self.fail_on:
            check_choice("fail_on", each, _FAILURES)

    def _check_api(self) -> None:
        """Refuse arguments that the API of the topic does not have."""
        is_streaming = Topic.parse(self.topic, self.api).api == "streaming"
        if self.wait_for_confirmation and is_streaming:
            remedy = "leave it out, and drain often enough that nothing ages out"
            if is_on_pubsub(self.topic):
                remedy = "leave out api='streaming' to drain over the Pub/Sub API, or leave out wait_for_confirmation"
            raise ConfigurationError(
                f"wait_for_confirmation=True cannot be fulfilled for {self.topic} on the Streaming API, which never "
                f"confirms the end of a stream: {remedy}. Nothing was read or moved."
            )
        if self.accept_quiet_aging and not is_streaming:
            raise ConfigurationError(
                f"accept_quiet_aging=True is for the Streaming API. Leave it out for {self.topic} on the Pub/Sub API, "
                "where the position of a quiet stream does not age out. Nothing was read or moved."
            )

    def _check_managed(self, managed_subscription: str) -> None:
        for name, (default, why) in _NOT_WITH_MANAGED.items():
            if getattr(self, name) != default:
                raise ConfigurationError(f"{name}={getattr(self, name)!r} goes with no managed_subscription: {why}.")
        if self.api == "streaming":
            raise ConfigurationError(
                "Managed event subscriptions are on the Pub/Sub API only: leave out api='streaming'."
            )
        if not is_template(managed_subscription):
            ManagedSubscription.parse(managed_subscription)

    def _check_interval(self) -> None:
        given = self.given_limits
        if self.max_wait is not None:
            given.append("max_wait")
        if self.min_events:
            given.append("min_events")
        if self.advance == "manual":
            given.append('advance="manual"')
        if given:
            raise ConfigurationError(
                f'mode="interval" drains all of an interval when it has ended, and records it. Leave out: '
                f"{', '.join(given)}."
            )
