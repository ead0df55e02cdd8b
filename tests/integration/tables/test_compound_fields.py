"""Field protection of compound fields by random rules: no output file contains a protected value or a part of it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import ObjectStoragePath

from airflow_provider_sfstream.actions.tables.replica import read_snapshot
from airflow_provider_sfstream.operators.erase_records import EraseRecordsOperator
from airflow_provider_sfstream.privacy.field_rules import FieldRules
from airflow_provider_sfstream.salesforce.identifiers import to_18
from airflow_provider_sfstream.tables.event_log.config import EventLogConfig
from airflow_provider_sfstream.tables.event_log.job import run as run_event_log
from airflow_provider_sfstream.tables.refresh.fetch import RefreshFiles, TableFetch
from airflow_provider_sfstream.tables.refresh.plan import plan_all
from airflow_provider_sfstream.tables.replica.config import ReplicaConfig
from airflow_provider_sfstream.tables.replica.job import run
from airflow_provider_sfstream.tables.replica.refresh_document import FOLDER, Mode, RefreshDocument
from airflow_provider_sfstream.tables.runner.on_spark import SparkEngine
from tests.support.change_lake import START, ChangeLake, change
from tests.support.compound_people import COMPOUNDS, ENTITIES, KEY, Column, People, protected, random_rules, rules_of
from tests.support.engines import embedded
from tests.support.json_windows import JsonEvent, event, land_json_window, push_topic_event
from tests.support.landing_files import LandedEvent, encode
from tests.support.marked_bytes import contents
from tests.support.tasks import context_for

PERSON, BUSINESS = (to_18(f"00100000000000{number}") for number in "12")
ADA, BEN = (to_18(f"00300000000000{number}") for number in "12")
SCHEMAS = {name: entity.schema() for name, entity in ENTITIES.items()}


@dataclass
class Landed:
    """Windows of people, and the same people's records in an org."""

    folder: Path
    changes: list[str]
    others: list[str]
    people: People
    records: dict[str, list[dict[str, str]]]

    def copied(self, folder: Path) -> Landed:
        """Return a copy below another folder."""
        shutil.copytree(self.folder, folder)
        moved = [[url.replace(str(self.folder), str(folder)) for url in urls] for urls in (self.changes, self.others)]
        return replace(self, folder=folder, changes=moved[0], others=moved[1])


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory) -> Landed:
    """Land events of people from both APIs; those of the Pub/Sub API include a damaged one and one without a schema."""
    folder = tmp_path_factory.mktemp("people") / "lake"
    people = People(random.Random(1))
    lake = ChangeLake(None, folder)
    lake.schemas = SCHEMAS

    def changed(number: int, type_: str, record_id: str, entity: str, **how: Any) -> LandedEvent:
        values = people.record(entity, **how)
        return change(number, type_, [record_id], f"t{number}", entity=ENTITIES[entity], **values)

    damaged = changed(7, "UPDATE", ADA, "Contact", is_stored=False)
    assert isinstance(damaged.record, dict)
    payload = encode(SCHEMAS["Contact"], damaged.record)
    changes = [
        lake.land(
            changed(1, "CREATE", PERSON, "Account"),
            changed(2, "CREATE", BUSINESS, "Account", is_person=False),
            changed(3, "CREATE", ADA, "Contact"),
            changed(4, "CREATE", BEN, "Contact"),
        ),
        lake.land(
            changed(5, "UPDATE", PERSON, "Account"),
            changed(6, "UPDATE", ADA, "Contact"),
            LandedEvent(7, "Contact", payload[:-3]),
            LandedEvent(8, "none", payload),
        ),
    ]
    records: dict[str, list[dict[str, str]]] = {
        "Account": [
            {"Id": PERSON} | people.described("Account", people.record("Account", is_stored=False)),
            {"Id": BUSINESS} | people.described("Account", people.record("Account", is_person=False, is_stored=False)),
        ],
        "Contact": [
            {"Id": each} | people.described("Contact", people.record("Contact", is_stored=False)) for each in (ADA, BEN)
        ],
    }
    return Landed(folder, changes, [*_json(folder, people)], people, records)


def _json(folder: Path, people: People) -> Iterator[str]:
    """Land events of the Streaming API, whose JSON needs no schema."""
    values = people.record("Contact", is_stored=False)
    header = {"entityName": "Contact", "recordIds": [BEN], "changeType": "UPDATE", "commitTimestamp": 1_768_003_200_000}
    body = {"ChangeEventHeader": header, **ENTITIES["Contact"].body(values)}
    yield _landed_json(folder, "/data/ContactChangeEvent", event(1, body))
    flat = people.described("Contact", people.record("Contact", is_stored=False))
    nested = ENTITIES["Contact"].body(people.record("Contact", is_stored=False))
    compounds = {name: nested[name] for name in ("MailingAddress", "OtherAddress", "Home__c", "Place__c")}
    yield _landed_json(folder, "/topic/Contact", push_topic_event(1, {"Id": BEN} | flat | compounds, START))


def _landed_json(folder: Path, topic: str, one: JsonEvent) -> str:
    window_id = f"20260110T000000Z-{topic.strip('/').replace('/', '-')}"
    return land_json_window(folder / "landing", window_id, topic, [one])


class Org:
    """Client of an org that returns prepared records and descriptions."""

    def __init__(self, records: dict[str, list[dict[str, str]]]) -> None:
        self._records = records

    def describe(self, entity: str) -> dict[str, str]:
        types = {name: column.type for name, column in ENTITIES[entity].columns.items()}
        parts = [column for each in COMPOUNDS[entity].values() for column in each.values()]
        scalars = {name: "double" if types.get(name) == "Double" else "string" for name in ("Name", *parts)}
        return {"Id": "id", **scalars, **dict.fromkeys(COMPOUNDS[entity].keys() - {"Name"}, "address")}

    def count(self, entity: str) -> int:
        return len(self._records[entity])

    def query(self, entity: str, columns: Sequence[str], ids: Sequence[str] = ()) -> Iterator[dict[str, str | None]]:
        yield from ({column: record.get(column) for column in columns} for record in self._records[entity])


def arguments_of(rules: FieldRules) -> dict[str, Any]:
    """Return the config arguments for these rules."""
    return {"exclude_fields": rules.exclude, "mask_fields": rules.mask, "hash_fields": rules.hash, "hash_key": KEY}


class Output:
    """An event log and a replica of people, written with random rules.

    :attr hidden: the columns that the rules protect.
    """

    def __init__(self, landed: Landed, seed: int, folder: Path) -> None:
        self.chosen = random_rules(random.Random(seed))
        self.rules = rules_of(self.chosen)
        self.hidden = protected([name for name, _ in self.chosen])
        self.lake, self.people = landed.copied(folder / "lake"), landed.people
        self.log, self.replica, self._engines = folder / "output/log", folder / "output/replica", folder / "engines"
        self._arguments = arguments_of(self.rules)

    def write_event_log(self) -> int:
        """Write the events of both APIs; return the number of quarantined events."""
        quarantined = 0
        for urls in (self.lake.changes, self.lake.others):
            config = EventLogConfig(manifests=tuple(urls), output_url=self.log.as_uri(), **self._arguments)
            quarantined += run_event_log(embedded(self._engines), config).quarantined
        return quarantined

    def write_replica(self) -> int:
        """Apply the changes, window after window, with a history; return the number of quarantined events."""
        quarantined = 0
        for url in self.lake.changes:
            config = ReplicaConfig(output_url=self.replica.as_uri(), manifests=(url,), history=True, **self._arguments)
            quarantined += run(embedded(self._engines), config).quarantined
        return quarantined

    def fetch(self, mode: Mode) -> RefreshFiles:
        """Fetch all records, as a refresh does."""
        snapshot = read_snapshot(str(self.replica), None)
        files, tables = RefreshFiles(str(self.replica), ObjectStoragePath, f"refresh-{mode}"), {}
        for plan in plan_all(snapshot, None, mode):
            org: Any = Org(self.lake.records)
            table = TableFetch(org, files, plan, 100, 100, self.rules).run()
            assert table is not None
            tables[plan.name] = table
        files.publish(RefreshDocument(files.refresh_id, snapshot.number, tables))
        return files

    def check(self, folder: Path) -> bytes:
        """Assert that no file below a folder contains a protected value; return the content of all files."""
        content = b"\n".join(name.encode() + b"\n" + found for name, found in contents(folder))
        found = {column for column in self.hidden if any(has(content, self.people.marks[column]))}
        assert found == set(), f"{folder.name}, by {self.chosen}"
        return content

    def check_others(self, content: bytes, values: Mapping[Column, Iterable[str]]) -> None:
        """Assert that the content has all values of unprotected columns."""
        lost = [
            column for column, marks in values.items() if column not in self.hidden and not all(has(content, marks))
        ]
        assert lost == [], f"by {self.chosen}"

    def fetched(self) -> dict[Column, list[str]]:
        """Return the values that a refresh fetches, without the names that Salesforce builds from parts."""
        return {
            (entity, column): [record[column] for record in self.lake.records[entity] if column in record]
            for entity, compounds in COMPOUNDS.items()
            for column in (column for parts in compounds.values() for column in parts.values())
        }


def has(content: bytes, marks: Iterable[str]) -> Iterator[bool]:
    """Yield for each mark whether the content contains it."""
    return (mark.encode() in content for mark in marks)


def seeds(plain: int, all_: int) -> list[Any]:
    """Return ``all_`` seeds; those after the first ``plain`` ones run only in `make test-all`."""
    return [*range(plain), *(pytest.param(seed, marks=pytest.mark.extended) for seed in range(plain, all_))]


@pytest.mark.parametrize("seed", seeds(3, 12))
def test_no_protected_value_is_in_any_byte_of_the_output(landed: Landed, seed: int, tmp_path: Path) -> None:
    output = Output(landed, seed, tmp_path)
    assert (output.write_event_log(), output.write_replica()) == (2, 2)
    for folder in (output.log, output.replica):
        output.check_others(output.check(folder), output.people.stored)
    for mode in ("full", "compare"):
        output.fetch(mode)
    output.check_others(output.check(output.replica / FOLDER), output.fetched())
    erased = EraseRecordsOperator(
        task_id="erase",
        entity="Contact",
        ids=[BEN],
        landing_url=str(output.lake.folder / "landing"),
        event_log_urls=[str(output.log)],
        replica_urls=[str(output.replica)],
    ).execute(context_for("erase"))
    assert erased["replicas"][str(output.replica)]["rows"] >= 1
    for folder in (output.log, output.replica):
        output.check(folder)


@pytest.mark.parametrize("seed", seeds(0, 2))
def test_refreshes_and_comparisons_by_spark_write_no_protected_value(
    spark: Any, landed: Landed, seed: int, tmp_path: Path
) -> None:
    output = Output(landed, seed, tmp_path)
    output.write_replica()
    for mode in ("full", "compare"):
        files = output.fetch(mode)
        run(SparkEngine(spark), ReplicaConfig(output_url=str(output.replica), refresh_url=files.url))
        output.check_others(output.check(output.replica), output.fetched())
