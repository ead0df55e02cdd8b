"""Publication by runs that are killed and retried, with a ledger in files and a topic that loses responses."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import fastavro
import pytest
from fsspec.implementations.local import LocalFileSystem

from airflow_provider_sfstream.exceptions import (
    AccessDeniedError,
    PositionConflictError,
    PublishError,
    PublishOutcomeUnknownError,
    QuotaExceededError,
    SalesforceStreamError,
    ServiceUnavailableError,
    ThrottledError,
)
from airflow_provider_sfstream.publishing.ledger import AcceptedEvent, PublishLedger
from airflow_provider_sfstream.publishing.publication import Publication
from airflow_provider_sfstream.publishing.rows import EventIds, Row, Summary
from airflow_provider_sfstream.salesforce.pubsub.publishing import EventEncoder
from tests.support.killed import Killed, killed_at
from tests.support.model_bus import ModelBus

TOPIC = "/event/Order__e"
SCHEMA = {
    "type": "record",
    "name": "Order__e",
    "fields": [{"name": "Number__c", "type": ["null", "double"], "default": None}],
}
IDS = EventIds("00D000000000001EAA", TOPIC, "run")
GONE = ServiceUnavailableError(f"{TOPIC}: the connection failed. Resume.")
BAD = PublishError(f"{TOPIC}: the event was not published ('too odd'). Mend it.")
BUSY = ServiceUnavailableError(f"{TOPIC}: the event was not published, for the moment. Again.")


def rows(count: int, first: int = 0) -> list[Row]:
    return [Row(f"key {number}", {"Number__c": float(number)}, str(number)) for number in range(first, first + count)]


class Run:
    """Task run that can be retried any number of times."""

    def __init__(self, folder: Path, bus: ModelBus, *, before: Sequence[AcceptedEvent] = ()) -> None:
        self.folder, self.bus, self.pauses = folder / "task" / "run", bus, list[float]()
        self.ledger = PublishLedger(LocalFileSystem(), str(self.folder), "file:///run")
        self._before = [[event.event_id, event.replay_id.hex()] for event in before]
        self.last: Publication

    def begin(self, **options: Any) -> Publication:
        recorded = self.ledger.read(self._before)
        encoder = EventEncoder(json.dumps(SCHEMA), "schema")
        arguments = {"sleep": self.pauses.append, **options}
        self.last = Publication(self.bus, encoder, IDS, self.ledger, recorded, **arguments)
        return self.last

    def go(self, source_rows: Sequence[Row], **options: Any) -> Summary:
        return self.begin(**options).run(source_rows)

    def failures(self) -> list[dict[str, Any]]:
        files = sorted(self.folder.glob("failures/*/*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def numbers(self) -> list[float]:
        """Return the number of each event on the bus, in order."""
        parsed = fastavro.parse_schema(SCHEMA)
        events = [fastavro.schemaless_reader(io.BytesIO(event[2]), parsed, None) for event in self.bus.events]
        return [event["Number__c"] for event in events]  # type: ignore[call-overload,index]


@pytest.fixture
def bus() -> ModelBus:
    return ModelBus()


@pytest.fixture
def run(tmp_path: Path, bus: ModelBus) -> Run:
    return Run(tmp_path, bus)


def test_all_rows_are_published_in_order_with_a_result_each(run: Run, bus: ModelBus) -> None:
    assert run.go(rows(450)) == Summary(published=450)
    assert run.numbers() == [float(number) for number in range(450)]
    assert [len(request) for request in bus.requests] == [200, 200, 50]
    lines = [json.loads(line) for n in range(3) for line in (run.folder / f"results/{n:06d}.jsonl").open()]
    assert [(line["row"], line["key"], line["error"]) for line in lines] == [(n, str(n), None) for n in range(450)]
    assert [line["replay_id"] for line in lines] == [event[1].hex() for event in bus.events]
    assert [line["id"] for line in lines] == [IDS.id_of(f"key {n}") for n in range(450)]


def test_a_second_try_publishes_nothing_again(run: Run, bus: ModelBus) -> None:
    run.go(rows(250))
    assert run.go(rows(300)) == Summary(published=50, already_published=250)
    assert run.numbers() == [float(number) for number in range(300)]
    recorded = run.last.recorded
    assert recorded.first is not None
    assert recorded.last is not None
    assert (recorded.first.replay_id, recorded.last.replay_id) == (bus.events[0][1], bus.events[-1][1])


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_each_event_is_published_once_after_a_kill_at_any_call(tmp_path: Path, after: bool) -> None:
    """An earlier run published two events, so the bus can show the result of every request."""
    made = nth = 0
    while made >= nth:
        nth += 1
        bus = ModelBus()
        before = Run(tmp_path / f"{nth}-{after}-before", bus)
        before.go([Row("a", {"Number__c": -2.0}), Row("b", {"Number__c": -1.0})])
        run = Run(tmp_path / f"{nth}-{after}", bus, before=before.last.recorded.latest)
        calls = [(bus, "publish"), (run.ledger, "begin"), (run.ledger, "finish"), (run.ledger, "fail")]
        bad = [Row("bad", {"Number__c": "text"}, "bad")]
        with killed_at(calls, nth, after=after) as count:
            with suppress(Killed):
                run.go([*rows(250), *bad])
            made = count()
        summary = run.go([*rows(250), *bad])
        assert summary.published + summary.already_published == 250
        assert (summary.failed, summary.in_doubt) == (1, 0)
        assert run.numbers() == [-2.0, -1.0, *map(float, range(250))]
        assert run.failures()[-1]["key"] == "bad"
    assert nth > 6


class TestDoubt:
    """Requests with a lost response: the bus shows the result, otherwise ``on_unknown_outcome`` decides."""

    def test_published_events_are_found_and_the_others_are_sent_again(self, run: Run, bus: ModelBus) -> None:
        bus.script = [bus.accept, bus.lose_answer(GONE, of=120)]
        assert run.go(rows(450)) == Summary(published=450)
        assert Counter(run.numbers()) == Counter(map(float, range(450)))
        assert [len(request) for request in bus.requests] == [200, 200, 80, 50]
        assert (bus.subscription_count, len(run.pauses)) == (2, 1), "one search, in two parts"
        lines = [json.loads(line) for line in (run.folder / "results/000001.jsonl").open()]
        assert [line["error"] for line in lines] == [None] * 120 + ["PublishError"] * 80
        assert run.go(rows(450)) == Summary(already_published=450)

    def test_doubt_without_an_earlier_event_fails_with_a_remedy(self, run: Run, bus: ModelBus) -> None:
        bus.script = [bus.lose_answer(GONE)]
        with pytest.raises(PublishOutcomeUnknownError, match="unknown whether 10 events were published") as caught:
            run.go(rows(10))
        assert not caught.value.retriable
        assert "on_unknown_outcome='publish_again'" in caught.value.advice
        with pytest.raises(PublishOutcomeUnknownError, match="an earlier try ended before it recorded a response"):
            run.go(rows(10))
        assert len(bus.requests) == 1

    def test_org_that_replaces_event_ids_proves_nothing(self, tmp_path: Path) -> None:
        bus = ModelBus(keeps_ids=False)
        run = Run(tmp_path, bus)
        bus.script = [bus.accept, bus.lose_answer(GONE)]
        with pytest.raises(PublishOutcomeUnknownError, match="200 events"):
            run.go(rows(400))
        assert bus.subscription_count == 2, "one search, in two parts"

    def test_unconfirmed_end_proves_nothing(self, run: Run, bus: ModelBus) -> None:
        bus.confirms_end = False
        bus.script = [bus.accept, bus.lose_request(GONE)]
        with pytest.raises(PublishOutcomeUnknownError, match="200 events"):
            run.go(rows(400))

    def test_answer_before_the_call_timeout_proves_nothing(self, run: Run, bus: ModelBus) -> None:
        bus.call_timeout = 1800.0
        bus.script = [bus.accept, bus.lose_request(GONE)]
        with pytest.raises(PublishOutcomeUnknownError, match="200 events"):
            run.go(rows(400))

    def test_worker_clock_days_ahead_proves_nothing(self, run: Run, bus: ModelBus) -> None:
        bus.call_timeout = 1800.0
        with killed_at([(bus, "publish")], 2, after=False), suppress(Killed):
            run.go(rows(400))
        request = run.folder / "requests/000001.json"
        document = json.loads(request.read_text())
        sent_at = datetime.fromisoformat(document["sent_at"]) - timedelta(days=3)
        request.write_text(json.dumps({**document, "sent_at": sent_at.isoformat()}))
        with pytest.raises(PublishOutcomeUnknownError, match="200 events"):
            run.go(rows(400))
        assert len(bus.requests) == 1

    def test_publish_again(self, run: Run, bus: ModelBus) -> None:
        bus.script = [bus.lose_answer(GONE)]
        assert run.go(rows(10), on_unknown_outcome="publish_again") == Summary(published=10)
        assert Counter(run.numbers()) == Counter([*map(float, range(10))] * 2)
        assert len({event[0] for event in bus.events}) == 10, "the copies have the same ID"
        assert run.go(rows(10)) == Summary(already_published=10), (
            "events accepted by the second request are not in doubt"
        )

    def test_skip(self, run: Run, bus: ModelBus) -> None:
        bus.script = [bus.lose_request(GONE)]
        assert run.go(rows(210), on_unknown_outcome="skip") == Summary(published=10, in_doubt=200)
        assert run.go(rows(210), on_unknown_outcome="skip") == Summary(already_published=10, in_doubt=200)
        assert run.numbers() == [float(number) for number in range(200, 210)]

    def test_invalid_response_leaves_doubt(self, run: Run, bus: ModelBus) -> None:
        bus.script = [bus.accept, bus.lose_answer(PublishError(f"{TOPIC}: 3 results for 200 events. Unknown."))]
        assert run.go(rows(400)) == Summary(published=400)
        assert Counter(run.numbers()) == Counter(map(float, range(400)))

    def test_unavailable_service_fails_the_run_after_eight_faults(self, run: Run, bus: ModelBus) -> None:
        bus.script = [bus.lose_request(GONE)] * 20
        with pytest.raises(ServiceUnavailableError, match="the last of 9 consecutive faults") as caught:
            run.go(rows(10), on_unknown_outcome="publish_again")
        assert "the next try publishes the remaining rows" in str(caught.value)
        assert len(bus.requests) == 9


class TestRefusals:
    def test_permanent_refusal_is_a_failure_and_the_other_rows_are_published(self, run: Run, bus: ModelBus) -> None:
        bus.script = [bus.refuse(BAD, 3)]
        odd = [Row("odd", {"Number__c": "private"}, "odd"), Row("unknown", {"No__c": 1.0}, "unknown")]
        summary = run.go([*rows(10), *odd])
        assert (summary.published, summary.failed) == (9, 3)
        assert summary.problems == {"PublishError": 1, "SchemaError": 2}
        failures = {failure["key"]: failure for failure in run.failures()}
        assert failures["3"]["values"] == {"Number__c": 3.0}
        assert "too odd" in failures["3"]["text"]
        assert failures["odd"]["values"] == {"Number__c": "private"}
        assert "private" not in failures["odd"]["text"]
        assert run.last.failures_url is not None

    def test_corrected_row_is_published_by_the_next_try(self, run: Run, bus: ModelBus) -> None:
        bus.script = [bus.refuse(BAD, 3)]
        run.go(rows(10))
        assert run.go(rows(10)) == Summary(published=1, already_published=9)
        assert run.last.failures_url is None

    def test_transient_refusal_is_sent_again_alone(self, run: Run, bus: ModelBus) -> None:
        bus.script = [bus.refuse(BUSY, 3, 5), bus.refuse(BUSY, 1)]
        assert run.go(rows(10)) == Summary(published=10)
        assert [len(request) for request in bus.requests] == [10, 2, 1]
        assert sorted(run.numbers()) == [float(number) for number in range(10)]

    def test_exhausted_allocation_ends_the_run_and_the_next_try_publishes_the_rest(
        self, run: Run, bus: ModelBus
    ) -> None:
        quota = QuotaExceededError(f"{TOPIC}: the allocation is used up. Wait.")
        bus.script = [bus.accept, bus.refuse(quota, *range(100, 200))]
        with pytest.raises(QuotaExceededError, match="300 events of this try were published"):
            run.go(rows(450))
        assert run.go(rows(450)) == Summary(published=150, already_published=300)
        assert run.numbers() == [float(number) for number in range(450)]

    @pytest.mark.parametrize("error", [ThrottledError("busy"), AccessDeniedError("no")], ids=lambda e: type(e).__name__)
    def test_a_refused_request_leaves_no_doubt(self, run: Run, bus: ModelBus, error: SalesforceStreamError) -> None:
        bus.script = [bus.lose_request(error)]
        if error.retriable:
            assert run.go(rows(10)) == Summary(published=10)
        else:
            with pytest.raises(AccessDeniedError):
                run.go(rows(10))
            assert run.go(rows(10)) == Summary(published=10)
        assert bus.subscription_count == 0

    def test_second_row_with_the_same_key_is_a_failure(self, run: Run) -> None:
        summary = run.go([*rows(2), Row("key 1", {"Number__c": 9.0}, "1")])
        assert (summary.published, summary.failed) == (2, 1)
        assert run.failures()[0]["values"] == {"Number__c": 9.0}

    def test_an_event_over_1_mb_is_a_failure(self, tmp_path: Path, run: Run) -> None:
        schema = {**SCHEMA, "fields": [{"name": "Note__c", "type": "string"}]}
        publication = run.begin()
        publication._encoder = EventEncoder(json.dumps(schema), "schema")
        summary = publication.run([Row("a", {"Note__c": "x" * 1_100_000}), Row("b", {"Note__c": "x"})])
        assert (summary.published, summary.failed) == (1, 1)


def test_older_of_two_concurrent_tries_stops_before_it_sends(run: Run, bus: ModelBus) -> None:
    older = run.begin()
    assert run.go(rows(10)) == Summary(published=10)
    with pytest.raises(PositionConflictError, match="another try of this task"):
        older.run(rows(10))
    assert len(bus.requests) == 1


def test_event_ids_depend_on_org_topic_run_and_key() -> None:
    others = [replace(IDS, run_key="b"), replace(IDS, topic="/event/B__e"), replace(IDS, org_id="00D000000000002EAA")]
    ids = {each.id_of(identity) for each in (IDS, *others) for identity in ("1", "2")}
    assert len(ids) == 8
    assert all(len(each) == 36 for each in ids)
    assert IDS.id_of("key 1") == "229c56bd-a66c-5af9-a379-8513c1cdce7e", (
        "with a changed ID, a retry after an upgrade would publish again"
    )
