"""Notifier for tasks on Salesforce streams, with the failure report of their logs."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook, BaseNotifier, Connection, Context
from asgiref.sync import sync_to_async

from airflow_provider_sfstream.exceptions import ConfigurationError, NotificationError
from airflow_provider_sfstream.redaction import quoted, remember_secrets

if TYPE_CHECKING:
    from airflow_provider_sfstream.notifications.message import StreamMessage

TIMEOUT = 10.0
"""Seconds for each of connecting, writing and reading. The task occupies its slot meanwhile."""
_TRIES = 3
_SECRET = 24
"""Minimum number of characters of a path or a header that may be a secret."""
_NO_HEADERS = {
    *("stream", "cert", "proxies", "proxy", "timeout", "verify", "verify_ssl", "allow_redirects", "max_redirects"),
    *("trust_env", "check_response", "srv_lookup"),
}
"""Keys of the Extra of an ``http`` connection other than headers, as in Airflow's own hook."""
_REMEDY = "Check host, login and headers of the connection, and the network."


class SalesforceStreamNotifier(BaseNotifier):
    """Send the failure report of a task: error, context, data loss, remaining time and action.

    Use it as ``on_failure_callback``, ``on_retry_callback`` or ``on_success_callback`` of a task, or of all tasks in
    ``default_args``; as ``on_failure_callback`` of a DAG it reports that a run failed. It determines the outcome from
    the context. For an error of another package it sends the text; for a task whose process ended, that fact.

    As the ``AsyncCallback`` of a deadline alert (Airflow 3.2 and later, with ``http_conn_id``) it reports that a run is
    late, unless Salesforce has answered a drain of each of ``streams`` since the run was queued.

    After a success it reports the losses in the result: a gap, ``missing`` spans, quarantined rows. A cleared task with
    the same result is reported again.

    Either another notifier of Airflow sends the message, which its templates contain:
    ``{{ sfstream.text }}`` is the whole message, ``{{ sfstream.title }}`` the first line, ``{{ sfstream.html }}`` the
    message for an e-mail, ``{{ sfstream.parts["Action"] }}`` one part, which may be empty. Or it is posted as JSON,
    with an Airflow connection of type ``http``: ``text`` (the key of webhooks of Slack and Mattermost), ``title``,
    ``error``, ``context``, ``data_loss``, ``time_left``, ``action``, ``docs``, ``dag_id``, ``task_id``, ``run_id``,
    ``map_index``, ``try_number``, ``state`` and ``log_url``.

    A message contains no secret and no event. If it cannot be sent, the task's log has the error, and the state of the
    task does not change.

    :param through: the notifier that sends the message.
    :param http_conn_id: instead of ``through``, the Airflow connection for the HTTP request: its host with scheme and
        path, or a part of them; login and password; headers in its Extra, as for Airflow's ``HttpHook``. (templated)
    :param endpoint: path after the connection's host. (templated)
    :param only_on_loss: after a success, report only losses and quarantined rows. ``False``: each success.
    :param streams: of a deadline alert, the URIs of the DAG's streams
        (``sfstream://salesforce_default/event/Order__e?subscription=airflow``). One without a status is late: its last
        response is unknown. ``None``: those with a status of a task of the DAG; others are not noticed.
    :raises ConfigurationError: at construction, unless exactly one way to send is set.
    """

    template_fields: Sequence[str] = ("http_conn_id", "endpoint")

    def __init__(
        self,
        *,
        through: BaseNotifier | None = None,
        http_conn_id: str | None = None,
        endpoint: str = "",
        only_on_loss: bool = True,
        streams: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if (through is None) == (http_conn_id is None):
            raise ConfigurationError(
                "SalesforceStreamNotifier requires either another notifier (through=...) or an Airflow "
                "connection of type http (http_conn_id=...)."
            )
        self.through = through
        self.http_conn_id = http_conn_id
        self.endpoint = endpoint
        self.only_on_loss = only_on_loss
        self.streams = streams

    def __call__(self, *args: Any) -> None:
        """Send the report of the task of this context."""
        # A copy, because rendering replaces the templates of a notifier: the next task of the same process, as in
        # dag.test(), would be reported with the fields of the first.
        super(SalesforceStreamNotifier, copy(self)).__call__(*args)

    def notify(self, context: Context) -> None:
        """Send the report of the task.

        :raises NotificationError: if the HTTP request was not accepted. Errors of another notifier are not caught.
        """
        message = self._message(context)
        if message is None:
            return
        if self.through is None:
            _post(str(self.http_conn_id), self.endpoint, message.document)
            return
        copy(self.through)({**context, "sfstream": message})

    async def async_notify(self, context: Context) -> None:
        """Send the report of a missed deadline, on the triggerer.

        :raises NotificationError: if the HTTP request was not accepted.
        """
        await sync_to_async(self.notify)(context)

    def _message(self, context: Context) -> StreamMessage | None:
        """Return the message; ``None`` after a success that is not reported, and if no drain is late."""
        from airflow_provider_sfstream.notifications.message import LossSummary, StreamMessage, missed_deadline

        if "deadline" in context:
            return missed_deadline(context, self.streams)
        task: Any = context.get("ti")
        if "reason" in context:  # of a DAG: the callbacks of its tasks report their results
            succeeded, result = context["reason"] == "success", None
        else:
            succeeded = getattr(task, "state", None) in ("success", "skipped")
            result = task.xcom_pull(task_ids=task.task_id, map_indexes=task.map_index) if succeeded else None
        if not succeeded:
            return StreamMessage.from_failure(context)
        losses = LossSummary.from_result(result)
        if self.only_on_loss and not losses:
            return None
        return StreamMessage.from_success(context, losses)


def _post(http_conn_id: str, endpoint: str, document: Mapping[str, Any]) -> None:
    """Post ``document`` as JSON to the address of a connection, with the same fields as for Airflow's ``HttpHook``.

    This function does not use Airflow's hook, which logs the address: the address of a webhook is a secret. It follows
    no redirect.

    :param endpoint: path after the connection's host.
    :raises ConfigurationError: if the connection has no host. Nothing was sent.
    :raises NotificationError: if the message was not accepted. No error contains the address.
    """
    import httpx

    from airflow_provider_sfstream.salesforce.network.proxies import proxy_for

    connection = BaseHook.get_connection(http_conn_id)
    extra = connection.extra_dejson
    headers = {name: str(value) for name, value in extra.items() if name not in _NO_HEADERS}
    url = _url(connection, endpoint)
    path = url.partition("://")[2].partition("/")[2]
    # A short path or header is not a secret, and its redaction would remove ordinary words from texts.
    secrets = [text for text in (path, *headers.values()) if len(text) >= _SECRET]
    remember_secrets(connection.password, *secrets)
    login = (connection.login, connection.password or "") if connection.login else None
    proxies = extra.get("proxies") or extra.get("proxy")
    proxy = proxy_for(url, proxies if isinstance(proxies, dict) else {})
    failure = f"Airflow connection {http_conn_id!r}: the message was not accepted"
    try:
        transport = httpx.HTTPTransport(verify=_trust(extra), trust_env=False, proxy=proxy, retries=_TRIES - 1)
        with httpx.Client(transport=transport, timeout=TIMEOUT, auth=login, trust_env=False) as client:
            response = client.post(url, json=dict(document), headers=headers)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, OSError) as fault:
        # Without the cause, which contains the request with its address and headers.
        raise NotificationError(f"{failure} ({type(fault).__name__}: {quoted(str(fault))}). {_REMEDY}") from None
    if not response.is_success:
        raise NotificationError(f"{failure} (HTTP {response.status_code}, {quoted(response.text)}). {_REMEDY}")


def _trust(extra: Mapping[str, Any]) -> ssl.SSLContext | bool:
    """Return the trusted certificates: the public ones, those of a file, or, with ``verify=False``, any certificate."""
    from airflow_provider_sfstream.salesforce.network.tls import load_ca, ssl_context

    verify = extra.get("verify", extra.get("verify_ssl", True))
    return False if verify is False else ssl_context(load_ca(verify if isinstance(verify, str) else None))


def _url(connection: Connection, endpoint: str) -> str:
    host = connection.host or ""
    if not host.strip():
        raise ConfigurationError(
            f"Airflow connection {connection.conn_id!r} has no host. Set its host to an address with a scheme, such as "
            "https://hooks.example.com. Nothing was sent."
        )
    base = host if "://" in host else f"{connection.schema or 'http'}://{host}"
    base = f"{base}:{connection.port}" if connection.port else base
    return f"{base.rstrip('/')}/{endpoint.lstrip('/')}" if endpoint else base
