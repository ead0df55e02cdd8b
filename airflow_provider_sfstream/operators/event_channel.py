"""Have custom channels with the members, filters and enriched fields that are declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from airflow.sdk import Context

from airflow_provider_sfstream.actions.arguments import is_template
from airflow_provider_sfstream.actions.failures import airflow_errors
from airflow_provider_sfstream.actions.retries import RetriedOperator
from airflow_provider_sfstream.arguments import check_choice
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.hooks.event_channel import EventChannelHook, check_confirmed
from airflow_provider_sfstream.salesforce.rest.event_channels import channel_name, members_of


class SalesforceEventChannelOperator(RetriedOperator):
    """Create, update or delete a custom channel: the events that its topic delivers, and their fields.

    Each delivered event counts towards the org's delivery allocation; **events that a filter excludes are not delivered
    and do not count**. The operator creates the channel, adds members, changes filters and enriched fields that differ,
    and removes members that are not declared. Safe to retry, also after a partial change, and to clear. An open
    subscription receives a change within about 10 minutes. Landed events do not change.

    **Events of a removed member are no longer delivered on the channel**, not even earlier ones that no drain has
    read: drain first. Other topics are not affected.

    - *Filters* compare fields with values: ``=  !=  <  <=  >  >=  LIKE  IN  NOT IN``, joined by ``AND``, ``OR`` and
      parentheses. Texts are in single quotes and compare case-insensitively; a date or date-time is a literal
      (``2026-11-24T09:30:00Z``), not ``TODAY``. For a change event also the header, except lists:
      ``ChangeEventHeader.changeType = 'UPDATE'``. Long text areas cannot be compared. No event reports that a record
      no longer matches.
    - *Enriched fields* are in update and delete events whether they changed or not, and so are the fields of a filter.
      ``changedFields`` does not name them, and a replica does not change them. Salesforce reads their values at
      delivery: an event that is read again may have others.
    - **Salesforce splits a change of several records** on a member with enriched fields or with a filter of record
      fields: one event for each record, **all with one replay ID**, each counted. A drain lands them in one window, and
      tables have all of them.

    Source: "Filter Your Stream of Change Events with Channels" and "Event Enrichment Considerations" of the Change Data
    Capture guide.

    The XCom result is a dict: ``channel``, ``topic``, ``label``, ``members`` (dicts with ``entity``, ``filter``,
    ``enriched_fields``; of an absent channel those that it had), ``state`` and ``changed`` (false without a change).

    :param channel: full name of a custom channel: ``Sales__chn``. (templated)
    :param members: its selected entities: change events (``AccountChangeEvent``, ``Shipment__ChangeEvent``), or
        platform events (``Order__e``), never both. Not required for an absent channel. (templated)
    :param filters: filter expressions, by member. (templated)
    :param enriched_fields: lists of names of fields, by member; only for change events. (templated)
    :param state: ``"present"``, or ``"absent"``: delete the channel.
    :param channel_label: label in Salesforce's Setup. ``None``: unchanged; for a new channel the name with spaces.
        (templated)
    :param confirm_removal: must be ``True`` with ``state="absent"``, and if members are removed or get another filter:
        you accept that earlier events may no longer be delivered.
    :param salesforce_conn_id: Airflow connection of the org. (templated)
    :raises ConfigurationError: at construction, if an argument cannot be used, or a deletion is not confirmed; in the
        run, before any change, if fewer events may be delivered without confirmation, or the channel is of the
        other type; and if Salesforce does not accept a value, or has stored another one after the change.
    """

    template_fields: Sequence[str] = (
        *("channel", "members", "filters", "enriched_fields"),
        *("channel_label", "salesforce_conn_id"),
    )
    ui_color = "#e6f0d8"

    def __init__(
        self,
        *,
        channel: str,
        members: Sequence[str] = (),
        filters: Mapping[str, str] | None = None,
        enriched_fields: Mapping[str, Sequence[str]] | None = None,
        state: Literal["present", "absent"] = "present",
        channel_label: str | None = None,
        confirm_removal: bool = False,
        salesforce_conn_id: str = "salesforce_default",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.channel = channel
        self.members = members
        self.filters = filters
        self.enriched_fields = enriched_fields
        self.state = state
        self.channel_label = channel_label
        self.confirm_removal = confirm_removal
        self.salesforce_conn_id = salesforce_conn_id
        check_choice("state", state, ("present", "absent"))
        if confirm_removal not in (True, False):
            raise ConfigurationError(f"confirm_removal={confirm_removal!r} must be True or False.")
        if state == "absent":
            check_confirmed(confirm_removal, f"deleting channel {channel}")
        if not is_template(channel):
            channel_name(channel)
        if state == "present" and not any(_has_template(one) for one in (members, filters, enriched_fields)):
            members_of(members, filters, enriched_fields)

    def execute(self, context: Context) -> dict[str, Any]:
        """Apply the declared settings; return the settings."""
        hook = EventChannelHook(self.salesforce_conn_id)
        with airflow_errors(self):
            if self.state == "absent":
                return self._delete(hook)
            change = hook.ensure(
                self.channel,
                self.members,
                filters=self.filters,
                enriched_fields=self.enriched_fields,
                label=self.channel_label or None,
                confirm_removal=self.confirm_removal,
            )
        self.log.info("%s.", change)
        return {**change.channel.as_dict(), "state": self.state, "changed": change.changed}

    def _delete(self, hook: EventChannelHook) -> dict[str, Any]:
        channel = hook.delete(self.channel, confirm_removal=self.confirm_removal)
        if channel is None:
            self.log.info("Channel %s was not found: it does not exist, or is hidden from this user.", self.channel)
            was: dict[str, Any] = {"channel": self.channel, "topic": None, "label": None, "members": []}
        else:
            was = channel.as_dict()
        return {**was, "state": self.state, "changed": channel is not None}


def _has_template(value: Any) -> bool:
    """Return whether an argument, or anything in it, is known only once the task runs."""
    if isinstance(value, Mapping):
        return any(_has_template(one) for pair in value.items() for one in pair)
    if isinstance(value, list | tuple):
        return any(_has_template(one) for one in value)
    return is_template(value)
