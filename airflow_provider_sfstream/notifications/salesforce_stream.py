"""Notifier for tasks on Salesforce streams, with the failure report of their logs."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier
from asgiref.sync import sync_to_async

from airflow_provider_sfstream.exceptions import ConfigurationError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_sfstream.notifications.message import StreamMessage


class SalesforceStreamNotifier(BaseNotifier):
    """Send the failure report of a task: error, context, data loss, remaining time and action.

    Use it as ``on_failure_callback``, ``on_retry_callback`` or ``on_success_callback`` of a task, or of all tasks in
    ``default_args``; as ``on_failure_callback`` of a DAG it reports that a run failed. It determines the outcome from
    the context. For an error of another package it sends the text; for a task whose process ended, that fact.

    As the ``AsyncCallback`` of a deadline alert (Airflow 3.2 and later, with ``http_conn_id``) it reports that a run is
    late, unless Salesforce has answered a drain of each stream of the DAG since the run was queued.

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
            from airflow_provider_sfstream.notifications.posting import post

            post(str(self.http_conn_id), self.endpoint, message.document)
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
            return missed_deadline(context)
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
