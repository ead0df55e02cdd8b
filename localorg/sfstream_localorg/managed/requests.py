"""Validation of ManagedSubscribe requests, and their errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfstream_localorg.identifiers import to_18
from sfstream_localorg.managed.subscriptions import KEY_PREFIX, ManagedRecord
from sfstream_localorg.pubsub import pubsub_api_pb2 as pb
from sfstream_localorg.pubsub.subscription import tenant_guid
from sfstream_localorg.streams.endings import CallEnded, refused

if TYPE_CHECKING:
    from sfstream_localorg.org import Org


def first_request(org: Org, request: pb.ManagedFetchRequest) -> ManagedRecord:
    """Return the subscription that a stream's first request names, by its id or by its developer name.

    :raises CallEnded: if the request names no subscription, or both an id and a developer name; if the Pub/Sub API does
        not see the subscription; or if the request has elements that only later requests may have.
    """
    name, given_id = request.developer_name, request.subscription_id
    if bool(given_id) == bool(name):
        message = "Provide either the subscription ID or the developer name of the managed subscription."
        raise invalid("id.or.developer.name.empty", message)
    if request.HasField("commit_replay_id_request"):
        raise invalid("fetch.request.commit.request.restricted", "The first request can't have a commit request.")
    if request.auth_refresh:
        raise invalid("fetch.request.auth.request.restricted", "The first request can't have an auth refresh.")
    record_id = checked_id(given_id) if given_id else ""
    record = org.managed.find(record_id=record_id, developer_name=name)
    if record is None:
        code, what = ("developer.name", "developer name") if name else ("subscription.id", "ID")
        message = f"The managed subscription with the {what} {name or given_id} was not found in {tenant_guid(org)}."
        raise refused(f"managed.subscription.{code}.not.found", "NOT_FOUND", message)
    return record


def checked_id(text: str) -> str:
    """Return a record id in its 18-character form.

    :raises CallEnded: if it is not the id of a managed subscription.
    """
    try:
        record_id = to_18(text)
    except ValueError:
        record_id = ""
    if not record_id.startswith(KEY_PREFIX):
        raise invalid("subscription.id.invalid", "The ID is not one of a managed event subscription.")
    return record_id


def stopped(record: ManagedRecord) -> CallEnded:
    """Return the error for a subscription in the state STOP."""
    message = f"The managed subscription {record.developer_name} is stopped."
    return refused("managed.subscription.config.stopped", "FAILED_PRECONDITION", message)


def invalid(code: str, message: str) -> CallEnded:
    """Return the refusal of a request; ``code`` is the error code without ``managed.subscription.``."""
    return refused(f"managed.subscription.{code}", "INVALID_ARGUMENT", message)
