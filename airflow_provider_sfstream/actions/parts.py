"""What the operators share: from arguments to landing and replay store, and from our errors to Airflow's."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.redaction import has_credentials
from airflow_provider_sfstream.salesforce.stream_uris import StreamUri
from airflow_provider_sfstream.salesforce.streams import RunIdentity
from airflow_provider_sfstream.streams.watch.conditions import WakeUpConditions

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

    from airflow_provider_sfstream.landing.catalog import LandingCatalog
    from airflow_provider_sfstream.landing.location import Landing
    from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
    from airflow_provider_sfstream.salesforce.events import StartFrom

log = logging.getLogger(__name__)

DEFAULT_SUBSCRIPTION = "airflow"
_WRITTEN = {"landing": "windows", "results": "results"}


def run_identity(context: Context) -> RunIdentity:
    """Return who this task run is. ``run_after`` is the one date that every kind of run has."""
    task_instance: Any = context["ti"]
    return RunIdentity(
        dag_id=task_instance.dag_id,
        task_id=task_instance.task_id,
        run_id=task_instance.run_id,
        run_after=context["dag_run"].run_after,
        map_index=-1 if task_instance.map_index is None else task_instance.map_index,
        try_number=task_instance.try_number,
    )


def open_landing(landing_url: str, landing_conn_id: str | None) -> LandingCatalog:
    """Return the catalog of the landing at ``landing_url``, a URL or path that :class:`ObjectStoragePath` takes.

    :raises ConfigurationError: if the URL is empty, carries a credential, or no filesystem serves it.
    """
    from airflow_provider_sfstream.landing.catalog import LandingCatalog

    return LandingCatalog(open_folder("landing", landing_url, landing_conn_id))


def open_folder(name: str, url: str, conn_id: str | None) -> Landing:
    """Return the folder that two arguments say, ``{name}_url`` and ``{name}_conn_id``.

    :raises ConfigurationError: if the URL is empty, carries a credential, or no filesystem serves it.
    """
    from airflow_provider_sfstream.actions.storage import path_of_this_process
    from airflow_provider_sfstream.landing.location import Landing
    from airflow_provider_sfstream.landing.storage import is_local

    if not isinstance(url, str) or not url.strip():
        raise ConfigurationError(
            f"{name}_url is empty. Give the URL that {_WRITTEN[name]} are written to, e.g. s3://lake/{name}."
        )
    if has_credentials(url):
        raise ConfigurationError(
            f"{name}_url carries a password or a signature. Put credentials into an Airflow connection and name it "
            f"with {name}_conn_id; nothing was written."
        )
    try:
        path = path_of_this_process(url, conn_id)
        filesystem = path.fs
    except (ValueError, ImportError, KeyError) as error:
        raise ConfigurationError(
            f"{name}_url {url!r} cannot be used: {error}. Install the provider that serves such URLs, or "
            "correct the URL; nothing was written."
        ) from error
    # Absolute, where a local path is relative or begins with ~, which Airflow leaves as it is.
    base = filesystem._strip_protocol(path.path) if is_local(filesystem) else path.path
    # Without the connection id, which only Airflow's own notation has (s3://conn@bucket).
    return Landing(filesystem, base, filesystem.unstrip_protocol(path.path))


def start_from_text(text: str) -> StartFrom | bytes:
    """Return what a ``start_from`` argument says: a preset, or a replay ID given as hex.

    :raises InvalidReplayIdError: if it is neither.
    """
    from airflow_provider_sfstream.salesforce.events import StartFrom
    from airflow_provider_sfstream.salesforce.replay_ids import replay_id_from_text

    return StartFrom(text) if text in ("earliest", "latest") else replay_id_from_text(text)


def time_from_text(argument: str, value: str | datetime | None) -> datetime | None:
    """Return the time that an argument says, as text or not; ``None`` if it is empty.

    :raises ConfigurationError: naming the argument, if its text is no ISO 8601 time.
    """
    if not isinstance(value, str) or not value:
        return None if isinstance(value, str) else value
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        raise ConfigurationError(f"{argument}={value!r} is not an ISO 8601 time; nothing was read.") from None


def wake_up_conditions(
    min_events: int, max_wait: float | timedelta | None, *, name: str = "max_wait"
) -> WakeUpConditions:
    """Return the conditions that two arguments say, the second of them called ``name`` by its operator.

    :raises ConfigurationError: naming the argument that cannot be used.
    """
    seconds = max_wait.total_seconds() if isinstance(max_wait, timedelta) else max_wait
    try:
        return WakeUpConditions(min_events=min_events, max_wait=seconds)
    except ConfigurationError as error:
        raise ConfigurationError(str(error).replace("max_wait", name)) from None


def landed_stream_uri(names: Any) -> str:
    """Return the URI of the asset that an operator's stream is when it is landed.

    :param names: has ``salesforce_conn_id``, ``topic``, ``subscription`` and ``api``.
    :raises ConfigurationError: naming the one that cannot be used.
    """
    return str(StreamUri(names.salesforce_conn_id, names.topic, names.subscription, names.api))


def warn_of_other_writers(landed: LandedStream, operator: BaseOperator, run: RunIdentity) -> None:
    """Warn where two runs may move one position at a time, if the store cannot see to it that they do not."""
    if landed.store.compares_and_sets:
        return
    dag, position = operator.get_dag(), landed.position()
    own, writer = str(run).partition(" run ")[0], (position.updated_by or "").partition(" run ")[0]
    if dag is not None and dag.max_active_runs != 1 and operator.max_active_tis_per_dag != 1:
        risk = f"{dag.max_active_runs} runs of {dag.dag_id} may be active at a time"
    elif position.window_id is not None and writer != own:
        risk = f"{writer} moved this one too, at {position.updated_at}"
    else:
        return
    log.warning(
        "%s: this replay store cannot tell two writers of a position apart, and %s. Let one run at a time drain the "
        "stream (max_active_runs=1), or use replay_store='table'.",
        landed.stream,
        risk,
    )


def is_template(value: object) -> bool:
    """Return whether what an argument says is known only once the task runs."""
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    return hasattr(value, "iter_references")  # another task's output, or an argument of a mapped task group


def consumer_name(subscription: str, managed_subscription: str | None) -> str:
    """Return under which name a consumer keeps its place on a topic.

    :raises ConfigurationError: if both arguments name one.
    """
    if managed_subscription is None:
        return subscription
    if subscription != DEFAULT_SUBSCRIPTION:
        raise ConfigurationError("Give subscription or managed_subscription, not both: either names the consumer.")
    return managed_subscription


def urls_of(argument: str, urls: Any, done: str) -> tuple[str, ...]:
    """Return the URLs of an argument, which may be one text.

    :param done: what was not, as the error says.
    :raises ConfigurationError: if something else is among them, for a folder that is not known is passed over; or if
        one carries a credential.
    """
    given = (urls,) if isinstance(urls, str) else tuple(urls or ())
    if any(isinstance(url, str) and has_credentials(url) for url in given):
        raise ConfigurationError(
            f"{argument} carries a password or a signature. Leave it out and give the credentials to the connection of "
            f"the storage. Nothing was {done}."
        )
    if not all(isinstance(url, str) and url.strip() for url in given):
        raise ConfigurationError(f"{argument}={urls!r} is not a list of URLs. Nothing was {done}.")
    return given
