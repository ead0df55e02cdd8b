"""The notifier that tells of tasks on Salesforce streams in the words of their logs."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier

from airflow_provider_sfstream.exceptions import ConfigurationError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_sfstream.notifications.message import StreamMessage


class SalesforceStreamNotifier(BaseNotifier):
    """Tell of a task what its log says: what happened, what it is about, what is lost, how long there is, what to do.

    Give it as ``on_failure_callback``, ``on_retry_callback`` or ``on_success_callback`` of a task, or of all tasks in
    ``default_args``; as ``on_failure_callback`` of a DAG it tells that a run failed. It knows by itself what became of
    the task. Of an error that is none of this package it tells the text; of a task whose process is gone, that.

    After a success it tells what the result says to be lost: a gap, spans that are ``missing``, rows that were
    quarantined. A task that is cleared, and gives the same result, is told of again.

    Either another notifier sends the message, any that Airflow has, and finds it in its templates:
    ``{{ sfstream.text }}`` is all of it, ``{{ sfstream.title }}`` the first line, ``{{ sfstream.html }}`` all of it for
    an e-mail, ``{{ sfstream.parts["Do"] }}`` one part, empty where there is nothing to say. Or it is posted as JSON, by
    an Airflow connection of type ``http``: ``text`` (which Slack and Mattermost look for in a webhook), ``title``,
    ``what``, ``of``, ``lost``, ``left``, ``do``, ``guide``, ``dag_id``, ``task_id``, ``run_id``, ``map_index``,
    ``try_number``, ``state`` and ``log_url``.

    There is no secret in a message, nor an event. Where it cannot be sent, that is in the task's log, and the state of
    the task stays what it is.

    :param through: the notifier that sends the message.
    :param http_conn_id: in place of that, the Airflow connection to post it by: its host with scheme and path, or a
        part of them; login and password; headers in its Extra, as Airflow's ``HttpHook`` takes them. (templated)
    :param endpoint: what follows the connection's host, if anything. (templated)
    :param only_on_loss: after a success, tell only if something is lost or quarantined. ``False``: of each success.
    :raises ConfigurationError: at construction, if there is not one way to send.
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
                "SalesforceStreamNotifier needs one way to send: another notifier (through=...), or an Airflow "
                "connection of type http (http_conn_id=...)."
            )
        self.through = through
        self.http_conn_id = http_conn_id
        self.endpoint = endpoint
        self.only_on_loss = only_on_loss

    def __call__(self, *args: Any) -> None:
        """Send what there is to say of the task whose context is given."""
        # By a copy, because what becomes of a template stays in the notifier that has rendered it: the next task of the
        # same process, as in dag.test(), would be told of with the fields of the first.
        super(SalesforceStreamNotifier, copy(self)).__call__(*args)

    def notify(self, context: Context) -> None:
        """Send what there is to say of the task.

        :raises NotificationError: if it was posted and not accepted. What another notifier raises passes.
        """
        message = self._message(context)
        if message is None:
            return
        if self.through is None:
            from airflow_provider_sfstream.notifications.posting import post

            post(str(self.http_conn_id), self.endpoint, message.document)
            return
        copy(self.through)({**context, "sfstream": message})

    def _message(self, context: Context) -> StreamMessage | None:
        """Return what to send, ``None`` where there is nothing to tell."""
        from airflow_provider_sfstream.notifications.message import Losses, StreamMessage

        task: Any = context.get("ti")
        if "reason" in context:  # of a DAG, whose tasks tell of their results themselves
            succeeded, result = context["reason"] == "success", None
        else:
            succeeded = getattr(task, "state", None) in ("success", "skipped")
            result = task.xcom_pull(task_ids=task.task_id, map_indexes=task.map_index) if succeeded else None
        if not succeeded:
            return StreamMessage.of_failure(context)
        losses = Losses.of(result)
        if self.only_on_loss and not losses:
            return None
        return StreamMessage.of_success(context, losses)
