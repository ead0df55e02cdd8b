"""Change events of an Account that is created, changed and deleted: bitmaps, schema IDs, filters, enriched fields."""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import Any

from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as pb
from live_check.bitmap_names import field_names
from live_check.calls import Stream
from live_check.events import Schema
from live_check.probe import probe
from live_check.run import ACCOUNT_CHANGES, CHANGE_EVENTS, CHANNEL, ProbeRun, SkippedError, now

TOPICS = {"change_events": CHANGE_EVENTS, "entity": ACCOUNT_CHANGES, "channel": CHANNEL}
FIRST_SECONDS, FURTHER_SECONDS, QUIET_SECONDS = 5.0, 30.0, 4.0
LARGEST_EXACT_IN_FLOATS = 2**53
_BITMAP = re.compile(r"(?:\d+-)?0x(?:[0-9A-F]{2})+")


@probe("Which fields and headers do change events of an Account have, on its topic and on channels?", events=36)
def change_events(run: ProbeRun) -> Any:
    names = {kind: name for kind, name in TOPICS.items() if _is_there(run, name)}
    if not names:
        raise SkippedError("no topic with change events of Account exists; deploy the channel of deploy/salesforce")
    with ExitStack() as stack:
        streams = {kind: stack.enter_context(Stream(run)) for kind in names}
        for kind, stream in streams.items():
            stream.send(topic_name=names[kind], replay_preset=pb.LATEST, num_requested=12)
        for stream in streams.values():
            stream.next(FIRST_SECONDS)  # wait until the subscription is active, so that it misses no event
        ours = _change_account(run)
        events = {kind: _until_deleted(stream, filtered=kind == "channel") for kind, stream in streams.items()}
    newest = {kind: _schema_id(run, name) for kind, name in names.items()}
    everybodys = {kind: [_Change(run, each) for each in found] for kind, found in events.items()}
    decoded = {kind: [each for each in found if each.is_of(ours)] for kind, found in everybodys.items()}
    return {
        "topics": {
            kind: _description(decoded[kind], newest[kind], newest.get("entity"))
            if kind in names
            else {"skipped": name}
            for kind, name in TOPICS.items()
        },
        "same_replay_ids": _same_replay_ids(decoded),
        "header": _header(decoded),
        "update": _update(decoded),
    }


def _is_there(run: ProbeRun, name: str) -> bool:
    try:
        run.topic(name)
    except SkippedError:
        return False
    return True


def _schema_id(run: ProbeRun, name: str) -> str:
    return run.topic(name).schema_id


def _change_account(run: ProbeRun) -> set[str]:
    """Create an Account, change fields and set some to null, create an Account that the filter drops, delete the first.

    Return the IDs of both Accounts.
    """
    fields = {"Name": "Airflow live check", "Phone": "1", "Industry": "Banking", "BillingCity": "Aachen"}
    first = run.make("/sobjects/Account", fields)
    path = f"/sobjects/Account/{first}"
    run.org.rest("PATCH", path, {"Phone": None, "BillingCity": "Bonn", "NumberOfEmployees": 7}).raise_for_status()
    second = run.make("/sobjects/Account", {"Name": "Airflow live check, filtered out", "Industry": "Government"})
    run.org.rest("DELETE", path).raise_for_status()
    return {first, second}


class _Change:
    """A change event, decoded with the schema of its schema ID if it has one."""

    def __init__(self, run: ProbeRun, consumed: Any) -> None:
        self.replay_id = consumed.replay_id
        self.event_id = consumed.event.id
        self.schema_id = consumed.event.schema_id
        self.schema = Schema.of(run, self.schema_id) if self.schema_id else None
        self.fields = self.schema.decoded(consumed.event.payload) if self.schema else {}
        self.header: dict[str, Any] = self.fields.get("ChangeEventHeader", {})

    @property
    def kind(self) -> str:
        return str(self.header.get("changeType"))

    def is_of(self, record_ids: set[str]) -> bool:
        """Return whether the event belongs to one of these records, or its records are unknown."""
        return not self.schema or bool(record_ids & set(self.header.get("recordIds", ())))

    def names(self, bitmap: str) -> list[str]:
        """Return the field names that a bitmap of the header stands for."""
        return field_names(self.header.get(bitmap, []), self.schema.json) if self.schema else []


def _until_deleted(stream: Stream, *, filtered: bool) -> list[Any]:
    """Return the events of a stream, until all expected events have arrived or no further event arrives in time.

    :param filtered: whether the filter drops one event. Other streams have delivered all events by then, so the wait is
        short.
    """
    events: list[Any] = []
    until = now() + FURTHER_SECONDS
    while len(events) < 4 and now() < until:
        more = stream.events(1, QUIET_SECONDS if filtered and events else until - now())
        if not more:
            break
        events += more
    return events


def _description(changes: list[_Change], newest: str, entity: str | None) -> Any:
    if not changes:
        return {"events": "none came"}
    return {
        "events": [change.kind for change in changes],
        "event_id": "given" if all(change.event_id for change in changes) else "empty",
        "schema_id": "given" if all(change.schema_id for change in changes) else "empty",
        "schema_id_is_the_topics": all(change.schema_id == newest for change in changes),
        "schema_id_is_the_entitys": all(change.schema_id == entity for change in changes),
        "schema_name": sorted({change.schema.json["name"] for change in changes if change.schema}),
        "industry_of_the_update": next((c.fields.get("Industry") for c in changes if c.kind == "UPDATE"), "no update"),
    }


def _same_replay_ids(decoded: dict[str, list[_Change]]) -> Any:
    ids = [{change.replay_id for change in changes} for changes in decoded.values() if changes]
    return len(ids) > 1 and all(one <= max(ids, key=len) for one in ids)


def _all(decoded: dict[str, list[_Change]]) -> list[_Change]:
    return [change for changes in decoded.values() for change in changes if change.schema]


def _header(decoded: dict[str, list[_Change]]) -> Any:
    changes = _all(decoded)
    if not changes:
        return "no event"
    headers = [change.header for change in changes]
    return {
        "fields": list(headers[0]),
        "position": 0 if next(iter(changes[0].fields)) == "ChangeEventHeader" else "another",
        "record_id_characters": sorted({len(each) for header in headers for each in header["recordIds"]}),
        "sequence_numbers": sorted({header["sequenceNumber"] for header in headers}),
        "commit_number_above_2_53": headers[0]["commitNumber"] > LARGEST_EXACT_IN_FLOATS,
        "change_origin": re.sub(r"[\d.]+", "N", str(headers[0]["changeOrigin"])),
        "a_transaction_for_each": len({header["transactionKey"] for header in headers}) > 1,
        "bitmaps_of_a_create": [name for name in ("changedFields", "nulledFields") if _of(changes, "CREATE", name)],
        "bitmaps_of_a_delete": [name for name in ("changedFields", "nulledFields") if _of(changes, "DELETE", name)],
    }


def _of(changes: list[_Change], kind: str, bitmap: str) -> bool:
    return any(change.header.get(bitmap) for change in changes if change.kind == kind)


def _update(decoded: dict[str, list[_Change]]) -> Any:
    update = next((change for change in _all(decoded) if change.kind == "UPDATE"), None)
    if update is None:
        return "no event"
    bitmaps = [text for name in ("changedFields", "nulledFields", "diffFields") for text in update.header[name]]
    set_fields = sorted(name for name, value in update.fields.items() if value is not None)
    return {
        "bitmaps_are_upper_case_whole_bytes": all(_BITMAP.fullmatch(text) for text in bitmaps),
        "changed": update.names("changedFields"),
        "nulled": update.names("nulledFields"),
        "fields_with_values": set_fields,
        "compound_field": update.fields.get("BillingAddress"),
    }


PROBES = [change_events]
