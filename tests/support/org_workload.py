"""Random changes of a local org's records through its REST API, and random windows of its change events.

The workload covers all field types, nulls, compound fields, business and person accounts, deletes and undeletes, bulk
updates, transactions across entities, fields added during the run, lost changes (GAP events) and an overflow.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.replay_stores.document.store import DocumentReplayStore
from airflow_provider_sfstream.replay_windows.incremental import WindowRequest, drain_window
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.salesforce.streams import RunIdentity, Stream
from airflow_provider_sfstream.streams.drain.limits import DrainLimits
from tests.support.clients import pubsub_client
from tests.support.localorg import LocalOrg
from tests.support.replay_stores import DictVariables

TOPIC = "/data/ChangeEvents"
ENTITIES = ("Account", "Contact", "Opportunity", "Shipment__c")
GAP_PERCENT = 5
DIFF_TEXT_CHARACTERS = 1_000
NEW_FIELDS = {
    "Account": (("Colour__c", "Text"), ("Spot__c", "Location"), ("Grade__c", "Percent")),
    "Shipment__c": (("Checked_At__c", "DateTime"), ("Boxes__c", "Integer")),
}
_READ_ONLY = {"Id", "IsDeleted", "SystemModstamp", "CreatedDate", "CreatedById", "LastModifiedDate", "LastModifiedById"}
_COMPOUND = {"address", "location"}
_NAMES = {"Name", "Salutation", "FirstName", "LastName"}
_LONG_TEXT_FIELDS = {"Account": "Description", "Contact": "Description", "Shipment__c": "Instructions__c"}
_EPOCH = date(1970, 1, 1)
_MOMENT = datetime(1970, 1, 1, tzinfo=UTC)
_WORDS = (
    "Graz",
    "Wien",
    "ü",
    "漢字",
    'a "quoted", word',
    "line\nbreak",
    "line\r\nbreak",
    "Tab\there",
    "'",
    "\\",
    "🙂",
    "0",
)


class OrgWorkload:
    """Random changes of an org's records, which depend on the seed alone.

    :param seed: two workloads with the same seed on two new orgs send the same requests.
    :param diffs: whether the workload edits long texts, whose changes the org sends as diffs.
    """

    def __init__(self, org: LocalOrg, seed: int, *, diffs: bool = False) -> None:
        self.random = random.Random(seed)
        self._org = org
        self._diffs = diffs
        self._base = f"{org.instance_url}/services/data/v62.0"
        headers = {"Authorization": f"Bearer {org.token()}"}
        self._http = httpx.Client(headers=headers, timeout=60, trust_env=False, verify=False)
        self._columns = {entity: self._describe(entity, calculated=False) for entity in ENTITIES}
        self._live: dict[str, list[str]] = {entity: [] for entity in ENTITIES}
        self._deleted: dict[str, list[str]] = {entity: [] for entity in ENTITIES}
        self._persons: set[str] = set()
        self._long_texts: dict[str, str] = {}

    @classmethod
    @contextmanager
    def on(cls, org: LocalOrg, seed: int, *, diffs: bool = False) -> Iterator[OrgWorkload]:
        """Yield a workload, after configuring the org to lose change events and, with ``diffs``, to send diffs."""
        if diffs:
            org.knobs(diff_text_characters=DIFF_TEXT_CHARACTERS)
        for entity in ENTITIES:
            org.admin("POST", f"/entities/{entity}/gaps", {"percent": GAP_PERCENT, "seed": seed})
        workload = cls(org, seed, diffs=diffs)
        try:
            yield workload
        finally:
            workload.close()

    def close(self) -> None:
        self._http.close()

    def run(self, steps: int) -> None:
        """Send ``steps`` random requests. Each is one transaction, some over several entities."""
        acts: list[tuple[int, Callable[[], None]]] = [
            (20, self.create),
            (36, self.update),
            (8, self.update_alike),
            (6, self.update_one),
            (6, self.clear),
            (9, self.delete),
            (9, self.undelete),
            (10, self.edit_long_text if self._diffs else self.update),
        ]
        weights = [weight for weight, _ in acts]
        for _ in range(steps):
            (_, act), *_ = self.random.choices(acts, weights)
            act()

    def create(self) -> None:
        """Create records of several entities; sometimes two records with the same values."""
        records = [self._new(self.random.choice(ENTITIES)) for _ in range(self.random.randint(1, 10))]
        if self.random.random() < 0.3:
            records.append(records[0])
        self._created(records, self._collection("POST", records))

    def update(self) -> None:
        """Change some fields of some records of several entities."""
        self._collection("PATCH", [self._changed(entity, one) for entity, one in self._some(10)])

    def update_alike(self) -> None:
        """Set the same values in many records of an entity, and change up to two further records."""
        entity = self.random.choice(ENTITIES)
        chosen = self._sample(entity, 60)
        if not chosen:
            return
        values = self._values(entity, self.random.randint(1, 4))
        records = [_record(entity, values, Id=one) for one in chosen]
        records += [self._changed(*one) for one in self._some(2) if one[1] not in chosen]
        self._collection("PATCH", records)

    def update_one(self) -> None:
        """Change one record in a request of its own."""
        for entity, one in self._some(1):
            self._call("PATCH", f"/sobjects/{entity}/{one}", self._content(self._changed(entity, one)))

    def clear(self) -> None:
        """Set many fields of some records to null."""
        records = []
        for entity, one in self._some(4):
            names = self.random.sample(sorted(self._fields(entity)), 25 if entity == "Account" else 8)
            records.append(_record(entity, dict.fromkeys(names), Id=one))
            self._long_texts.pop(one, None)
        self._collection("PATCH", records)

    def edit_long_text(self) -> None:
        """Change a few lines of long texts, and write new texts into some records."""
        records = []
        with_text = [
            (entity, one) for entity in _LONG_TEXT_FIELDS for one in self._live[entity] if self._long_texts.get(one)
        ]
        for entity, one in dict.fromkeys([*self.random.sample(with_text, min(len(with_text), 3)), *self._some(3)]):
            if entity in _LONG_TEXT_FIELDS:
                self._long_texts[one] = self._edited(self._long_texts.get(one))
                records.append(_record(entity, {_LONG_TEXT_FIELDS[entity]: self._long_texts[one]}, Id=one))
        self._collection("PATCH", records)

    def delete(self) -> None:
        """Delete records of several entities."""
        chosen = self._some(6)
        if chosen:
            self._call("DELETE", "/composite/sobjects", params={"ids": ",".join(one for _, one in chosen)})
        for entity, one in chosen:
            self._live[entity].remove(one)
            self._deleted[entity].append(one)

    def undelete(self) -> None:
        """Undelete one record."""
        entity = self.random.choice(ENTITIES)
        if self._deleted[entity]:
            one = self._deleted[entity].pop(self.random.randrange(len(self._deleted[entity])))
            self._call("POST", f"/sobjects/{entity}/{one}/undelete")
            self._live[entity].append(one)

    def overflow(self) -> str:
        """Change so many records of one entity that GAP_OVERFLOW events replace the last changes.

        Return the entity.
        """
        entity = self.random.choice(ENTITIES)
        self._org.knobs(overflow_changes=self.random.randint(1, 30))
        self._collection("PATCH", [self._changed(entity, one) for one in self._sample(entity, 100)])
        new = [self._new(entity) for _ in range(50)]
        self._created(new, self._collection("POST", new))
        self._org.knobs(overflow_changes=100_000)
        return entity

    def add_fields(self) -> None:
        """Add fields to some entities; later changes use them."""
        for entity, fields in NEW_FIELDS.items():
            for name, kind in fields:
                self._org.admin("POST", f"/entities/{entity}/fields", {"name": name, "type": kind})
            self._columns[entity] = self._describe(entity, calculated=False)

    def all_records(self, entity: str) -> list[dict[str, Any]]:
        """Return all records of an entity in REST format, including deleted ones."""
        page = self._call("GET", "/queryAll", params={"q": f"SELECT FIELDS(ALL) FROM {entity}"})
        records = list(page["records"])
        while not page["done"]:
            page = self._http.get(f"{self._org.instance_url}{page['nextRecordsUrl']}").raise_for_status().json()
            records += page["records"]
        return records

    def field_types(self, entity: str) -> dict[str, str]:
        """Return the columns of an entity with their types from the describe resource."""
        return self._columns[entity] | self._describe(entity, calculated=True)

    def _describe(self, entity: str, *, calculated: bool) -> dict[str, str]:
        fields = self._call("GET", f"/sobjects/{entity}/describe")["fields"]
        chosen = (field for field in fields if field["calculated"] is calculated)
        return {field["name"]: field["type"] for field in chosen if field["type"] not in _COMPOUND}

    def _fields(self, entity: str) -> dict[str, str]:
        """Return the columns for random values, without names: their rules depend on the kind of record."""
        left_out = _READ_ONLY | (_NAMES if entity in ("Account", "Contact") else {"Name", "StageName", "CloseDate"})
        return {name: kind for name, kind in self._columns[entity].items() if name not in left_out}

    def _new(self, entity: str) -> dict[str, Any]:
        values = self._values(entity, self.random.randint(0, 40))
        return _record(entity, {**values, **self._name(entity, is_person=self.random.random() < 0.4)})

    def _name(self, entity: str, *, is_person: bool) -> dict[str, Any]:
        if entity == "Opportunity":
            return {"Name": self._text(), "StageName": self._text(), "CloseDate": self._date()}
        if entity == "Shipment__c":
            return {"Name": self._text()} if self.random.random() < 0.5 else {}
        if entity == "Account" and not is_person:
            return {"Name": self._text()}
        parts = {name: self._text() for name in ("Salutation", "FirstName") if self.random.random() < 0.6}
        return {**parts, "LastName": self._text()}

    def _changed(self, entity: str, one: str) -> dict[str, Any]:
        values = self._values(entity, self.random.choice((1, 1, 2, 3, 5, 12)))
        if self.random.random() < 0.2:
            name = self._name(entity, is_person=one in self._persons)
            values |= dict(self.random.sample(sorted(name.items()), self.random.randint(0, len(name))))
            if "LastName" in name and self.random.random() < 0.3:
                values |= {"FirstName": None}
        for field in (name for name in (_LONG_TEXT_FIELDS.get(entity),) if name in values):
            self._long_texts[one] = values[field] or ""
        return _record(entity, values, Id=one)

    def _created(self, records: Sequence[Mapping[str, Any]], results: Sequence[Mapping[str, Any]]) -> None:
        for record, result in zip(records, results, strict=True):
            entity = record["attributes"]["type"]
            self._live[entity].append(result["id"])
            if entity == "Account" and "LastName" in record:
                self._persons.add(result["id"])

    def _some(self, most: int) -> list[tuple[str, str]]:
        """Return some records without duplicates; prefer a few records, so that they change often."""
        live = [(entity, one) for entity in ENTITIES for one in self._live[entity]]
        wanted = self.random.randint(1, most)
        hot = live[:3] if self.random.random() < 0.3 else []
        chosen = hot + (self.random.choices(live, k=wanted) if live else [])
        return list(dict.fromkeys(chosen))[:wanted]

    def _sample(self, entity: str, most: int) -> list[str]:
        live = self._live[entity]
        return self.random.sample(live, min(len(live), self.random.randint(2, most)))

    def _values(self, entity: str, count: int) -> dict[str, Any]:
        fields = self._fields(entity)
        names = self.random.sample(sorted(fields), min(count, len(fields)))
        return {name: self._value(fields[name]) for name in names}

    def _value(self, kind: str) -> Any:
        if self.random.random() < 0.15:
            return None
        make: Mapping[str, Callable[[], Any]] = {
            "boolean": lambda: self.random.random() < 0.5,
            "int": lambda: self.random.choice((0, 1, -1, 2**31 - 1, -(2**31), self.random.randint(-1000, 1000))),
            "currency": self._number,
            "double": self._number,
            "percent": self._number,
            "date": self._date,
            "datetime": self._datetime,
            "time": lambda: f"{(_MOMENT + timedelta(milliseconds=self.random.randrange(86_400_000))):%H:%M:%S.%f}"[:12],
            "reference": lambda: f"001{self.random.randrange(10**12):012d}",
            "multipicklist": lambda: ";".join(self.random.sample(("Red", "Green", "Blue"), self.random.randint(1, 3))),
        }
        return make.get(kind, self._text)()

    def _text(self) -> str:
        return " ".join(self.random.choices(_WORDS, k=self.random.choice((1, 1, 2, 4))))

    def _number(self) -> float:
        return self.random.choice(
            (0.0, 0.1, -1.5, 1e15, self.random.uniform(-1e6, 1e6), float(self.random.randint(0, 99)))
        )

    def _date(self) -> str:
        # Salesforce accepts dates of the years from 1700 to 4000.
        day = self.random.choice((-98_000, -26_000, 0, 740_000, self.random.randint(-20_000, 40_000)))
        return (_EPOCH + timedelta(days=day)).isoformat()

    def _datetime(self) -> str:
        return f"{self._date()}T{self.random.randrange(24):02d}:{self.random.randrange(60):02d}:59Z"

    def _edited(self, text: str | None) -> str:
        if not text or len(text) < DIFF_TEXT_CHARACTERS:
            line_break = self.random.choice(("\n", "\r\n"))
            return line_break.join(f"Line {n}: {self.random.random()} {'.' * 20}" for n in range(60))
        line_break = "\r\n" if "\r\n" in text else "\n"
        lines = text.split(line_break)
        for _ in range(self.random.randint(1, 3)):
            at = self.random.randrange(len(lines))
            lines[at : at + self.random.randint(0, 2)] = [self._text()] * self.random.randint(0, 2)
        return line_break.join(lines) or "x"

    @staticmethod
    def _content(record: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in record.items() if name not in ("attributes", "Id")}

    def _collection(self, method: str, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        if not records:
            return []
        results = self._call(method, "/composite/sobjects", {"allOrNone": True, "records": list(records)})
        assert all(result["success"] for result in results), [one["errors"] for one in results if not one["success"]][
            :3
        ]
        return list(results)

    def _call(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        response = self._http.request(method, self._base + path, json=body, **options)
        assert response.is_success, f"{method} {path}: {response.status_code} {response.text[:500]}"
        return response.json() if response.content else None


class RandomWindows:
    """Landing of an org's change events in windows with random limits, which may be inside transactions.

    :param topic: topic to read the events from.
    :attr manifests: URLs of the manifests, in the order of the chain.
    """

    def __init__(self, org: LocalOrg, folder: Path, seed: int, topic: str = TOPIC) -> None:
        org.knobs(keepalive_seconds=0.05)
        self.manifests: list[str] = []
        self.events = 0
        self._random = random.Random(f"windows of {seed}")
        self._client = pubsub_client(org)
        self._stream = Stream(org.org_id, "pubsub", topic)
        self._catalog = LandingCatalog(Landing.from_url(str(folder)))
        self._store = DocumentReplayStore(self._catalog, DictVariables())
        self._due = datetime(2026, 1, 10, tzinfo=UTC)

    def __enter__(self) -> RandomWindows:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def drain(self, count: int, most: int) -> None:
        """Drain ``count`` windows of 1 to ``most`` events."""
        for _ in range(count):
            self.drain_one(self._random.randint(1, most))

    def drain_rest(self, most: int) -> None:
        """Drain windows until the end of the stream."""
        while self.drain_one(self._random.randint(1, most)) not in ("caught_up", "idle"):
            pass

    def drain_one(self, max_events: int | None = None) -> str:
        """Drain one window and return its stop reason."""
        number = len(self.manifests)
        run = RunIdentity("workload", "drain", f"run-{number}", self._due + timedelta(minutes=number))
        request = WindowRequest(run, DrainLimits(max_events=max_events))
        landed = LandedStream(self._stream, self._catalog, self._store)
        manifest = drain_window(landed, request, source=self._client).manifest
        self.manifests.append(manifest.window.manifest_url)
        self.events += manifest.window.event_count
        return manifest.stop_reason


def _record(entity: str, values: Mapping[str, Any], **further: Any) -> dict[str, Any]:
    return {"attributes": {"type": entity}, **values, **further}
