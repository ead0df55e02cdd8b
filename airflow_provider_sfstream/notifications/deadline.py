"""Message about a DAG run that did not succeed before its deadline."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime
from typing import Any

from airflow_provider_sfstream.actions.failures import LABELS, guide
from airflow_provider_sfstream.hooks.replay_store import open_status_store
from airflow_provider_sfstream.monitoring.known_status import ReportedStatus
from airflow_provider_sfstream.notifications.message import StreamMessage

log = logging.getLogger(__name__)


def missed_deadline(context: Mapping[str, Any]) -> StreamMessage | None:
    """Return the message; ``None`` if Salesforce answered a drain of each stream of the DAG since the run was queued.

    :param context: the context of a deadline's callback: the run as in Airflow's API, and the deadline.
    """
    run = context["dag_run"]
    dag_id, run_id = run["dag_id"], run["dag_run_id"]
    contacts = _contacts(dag_id)
    since = datetime.fromisoformat(run["queued_at"] or run["run_after"])
    late = [uri for uri, contact in contacts.items() if contact is None or contact < since]
    if contacts and not late:
        log.info(
            "Run %s of %s missed its deadline, but Salesforce has answered a drain of each stream since.",
            run_id,
            dag_id,
        )
        return None
    streams = [f"{uri} (last response of Salesforce: {contacts[uri] or 'none'})" for uri in late]
    parts = {
        "Error": f"The run is {run['state']}, and should have succeeded by {context['deadline']['deadline_time']}.",
        "Context": ", ".join(streams) or "no stream of this DAG has a readable status",
        "Docs": guide("on-call.md#what-to-do"),
    }
    facts = {"dag_id": dag_id, "task_id": None, "run_id": run_id, "map_index": None, "try_number": None}
    facts |= {"state": run["state"], "log_url": None}
    return StreamMessage(
        f"{dag_id} missed its deadline ({run_id})", {label: parts.get(label, "") for label in LABELS}, facts
    )


def _contacts(dag_id: str) -> dict[str, datetime | None]:
    """Return the time of Salesforce's last response to a drain, for each stream of a DAG whose status is readable."""
    try:
        with closing(open_status_store()) as store:
            reported = ReportedStatus(store.statuses())
    except Exception as error:  # the alert must not depend on this store
        log.warning("The status of streams cannot be read, so that the deadline is reported: %s", error)
        return {}
    contacts = {
        uri: reported.section(uri, "drain").get("contact_at")
        for uri in reported.streams()
        if reported.owner(uri) == dag_id
    }
    return {uri: None if contact is None else datetime.fromisoformat(contact) for uri, contact in contacts.items()}
