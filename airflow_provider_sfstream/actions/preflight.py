"""Checks of the requirements of drains and Spark jobs, one after another. They move and land nothing."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Protocol
from urllib.parse import urlsplit

from airflow.sdk import BaseHook

from airflow_provider_sfstream._airflow import AirflowNotFoundException
from airflow_provider_sfstream.actions.landed_stream import LandingNames
from airflow_provider_sfstream.actions.storage import open_landing
from airflow_provider_sfstream.exceptions import ConfigurationError, SalesforceStreamError
from airflow_provider_sfstream.hooks.event_topics import event_hook
from airflow_provider_sfstream.hooks.replay_store import open_replay_store
from airflow_provider_sfstream.hooks.salesforce import SalesforceLoginHook
from airflow_provider_sfstream.hooks.salesforce_allocations import (
    API_REQUESTS,
    Allocation,
    SalesforceAllocationHook,
    delivery_allocation,
)
from airflow_provider_sfstream.redaction import redacted
from airflow_provider_sfstream.salesforce.streams import Stream
from airflow_provider_sfstream.salesforce.topics import APIS, Topic, is_on_pubsub

LARGEST_CLOCK_DIFFERENCE = timedelta(seconds=60)
"""Beyond it, a JWT may be refused, which Salesforce accepts for at most five minutes, and intervals that end by this
machine's clock are asked for too early or too late."""

_MASTER_PORT, _SECONDS_TO_MASTER = 7077, 5.0


@dataclass(frozen=True)
class CheckResult:
    """Result of a check: its subject, and one line with the working part, or the failure and its remedy."""

    check: str
    works: bool
    result: str

    def __str__(self) -> str:
        return f"{'works' if self.works else 'FAILS'}  {self.check}: {self.result}"


Check = tuple[str, Callable[[], str]]
"""Subject of a check, and its function, which returns the result or raises."""


def run_checks(checks: Sequence[Check]) -> Iterator[CheckResult]:
    """Run all checks, also after a failed one."""
    for subject, check in checks:
        try:
            yield CheckResult(subject, True, check())
        except SalesforceStreamError as error:
            yield CheckResult(subject, False, " ".join(str(error).split()))
        except Exception as error:  # a missing connection or a driver's own error must not stop the other checks
            yield CheckResult(subject, False, redacted(" ".join(f"{type(error).__name__}: {error}".split())))


class PreflightNames(LandingNames, Protocol):
    """Arguments of later drains and Spark jobs."""

    spark_conn_id: str | None


def all_checks(names: PreflightNames, topics: Sequence[Topic]) -> list[Check]:
    """Return the checks of each topic with its schema, of clock, allocations, landing and replay store, and of Spark if
    there is a connection."""
    hooks = {api: event_hook(api, names.salesforce_conn_id) for api in APIS}
    allocations = SalesforceAllocationHook(names.salesforce_conn_id)

    def topic_of(topic: Topic) -> str:
        works, text = hooks[topic.api].test_connection(topic.name)
        if not works:
            raise ConfigurationError(text)
        return " ".join(filter(None, (text, api_advice(topic))))

    def clock() -> str:
        with allocations.get_conn() as client:
            asked = datetime.now(UTC)
            return clock_difference(client.server_time(), asked, datetime.now(UTC))

    def landing() -> str:
        catalog = open_landing(names.landing_url, names.landing_conn_id)
        catalog.landing.check_writable()
        return f"{catalog.landing.url} can be written"

    def positions() -> str:
        catalog = open_landing(names.landing_url, names.landing_conn_id)
        store = open_replay_store(names.replay_store, names.replay_store_conn_id, catalog)
        org_id = SalesforceLoginHook(names.salesforce_conn_id).known_org_id
        streams = [Stream(org_id, topic.api, topic.name, names.subscription) for topic in topics]
        found = sum(store.read(stream).replay_id is not None for stream in streams)
        return f"{names.replay_store!r} can be read; it has positions of {found} of {len(streams)} streams"

    checks: list[Check] = [(topic.name, partial(topic_of, topic)) for topic in topics]
    checks += [("clock", clock), ("allocations", lambda: remaining_allocations(allocations.all(), topics))]
    checks += [("landing", landing), ("replay store", positions)]
    if names.spark_conn_id:
        checks.append((f"Spark connection {names.spark_conn_id}", partial(_spark, names.spark_conn_id)))
    return checks


def api_advice(topic: Topic) -> str:
    """Return a sentence on the evidence that the Streaming API lacks; nothing for the Pub/Sub API."""
    if topic.api == "pubsub":
        return ""
    lacks = "The Streaming API confirms neither the end of a stream nor an interval (Salesforce Knowledge 005321562)"
    return f"{lacks}; the Pub/Sub API carries this topic too: prefer it." if is_on_pubsub(topic.name) else f"{lacks}."


def clock_difference(server_time: datetime, asked: datetime, answered: datetime) -> str:
    """Return how far this machine's clock is from Salesforce's at least, however slow the network is.

    :param server_time: from an answer's header, which has whole seconds.
    :param asked: time of the request, by this machine's clock; ``answered`` that of the answer.
    :raises ConfigurationError: if the difference is too large.
    """
    difference = max(asked - server_time - timedelta(seconds=1), min(answered - server_time, timedelta()))
    seconds = difference.total_seconds()
    measured = f"this machine's clock is {abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'} Salesforce's"
    if abs(difference) > LARGEST_CLOCK_DIFFERENCE:
        raise ConfigurationError(
            f"{measured}. Synchronise it with NTP: otherwise logins may be refused, and intervals end at a wrong time."
        )
    return measured


def remaining_allocations(allocations: dict[str, Allocation], topics: Sequence[Topic]) -> str:
    """Return the remaining allocations of drains of these topics and of refreshes; fail if one is used up or not
    reported."""
    names = dict.fromkeys([*(delivery_allocation(topic.name) for topic in topics), API_REQUESTS])
    used = [allocations[name] for name in names if name in allocations]
    unknown = names.keys() - allocations.keys()
    text = "; ".join(str(allocation) for allocation in used)
    if unknown or any(allocation.remaining <= 0 for allocation in used):
        missing = f"Salesforce does not report {' and '.join(sorted(unknown))}. " if unknown else ""
        raise ConfigurationError(f"{missing}{text}. Salesforce delivers no events while an allocation is used up.")
    return text


def _spark(conn_id: str) -> str:
    """Check ``spark-submit`` on this worker, and the connection to its master."""
    try:
        connection: Any = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        connection = None
    binary = (connection and connection.extra_dejson.get("spark-binary")) or "spark-submit"
    if shutil.which(binary) is None:
        raise ConfigurationError(f"{binary} is not on this worker's PATH. Install the extra 'spark', or Spark.")
    if connection is None:
        return f"the connection does not exist, so {binary} runs jobs on the worker, with master local[*]"
    master = urlsplit(connection.host or "")
    if master.scheme != "spark":
        return f"{binary} is installed; master {connection.host} was not checked"
    host, port = master.hostname or "", connection.port or master.port or _MASTER_PORT
    try:
        socket.create_connection((host, port), _SECONDS_TO_MASTER).close()
    except OSError as error:
        raise ConfigurationError(f"The master {host}:{port} could not be reached ({error}).") from None
    return f"{binary} is installed, and port {port} of the master {host} was reached"
