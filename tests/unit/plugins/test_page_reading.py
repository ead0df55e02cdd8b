"""Variables that hold no status hide no other one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography.fernet import Fernet

from airflow_provider_sfstream.monitoring.status import Status, connection_of
from airflow_provider_sfstream.monitoring.status_store import status_to_text
from airflow_provider_sfstream.plugins.page.overview import overview
from airflow_provider_sfstream.plugins.page.reading import Reader, _decrypted, _remembered, all_dag_ids
from tests.support.stream_statuses import BROKEN, CONNECTION, drained, signed, well

STATUS = well(datetime(2026, 11, 24, 12, 30, tzinfo=UTC))[0]
TEXT = status_to_text(STATUS)


@pytest.mark.parametrize("read", [_decrypted, _remembered])
def test_a_status_is_read(read: Any) -> None:
    assert read("sfstream_status.1.drain", TEXT, False) == STATUS


@pytest.mark.parametrize(
    ("value", "is_encrypted"),
    [
        ("nonsense", False),
        ("[]", False),
        (Fernet(Fernet.generate_key()).encrypt(TEXT.encode()).decode(), True),
    ],
)
def test_what_is_none_is_told_in_the_log(value: str, is_encrypted: bool, caplog: pytest.LogCaptureFixture) -> None:
    assert _decrypted("sfstream_status.1.drain", value, is_encrypted) is None
    assert "Variable sfstream_status.1.drain holds no status" in caplog.text
    assert "Order__e" not in caplog.text


NOW = datetime(2026, 11, 24, 12, 30, tzinfo=UTC)
STATUSES = [*well(NOW), *BROKEN["dirty_replica"](NOW)]


def topics(reader: Reader, statuses: list[Status] = STATUSES) -> list[str]:
    return sorted(row["topic"] for row in overview(reader.readable(statuses), NOW)["streams"])


def reader(*dag_ids: str, connections: tuple[str, ...] = (CONNECTION,)) -> Reader:
    return Reader(frozenset(dag_ids), frozenset(connections))


def test_all_is_seen_by_who_may_read_all() -> None:
    assert reader("orders", "accounts").readable(STATUSES) == sorted(
        STATUSES, key=lambda status: "task" not in status.document
    )


def test_a_stream_of_another_dag_is_left_out_with_its_tables() -> None:
    assert topics(reader("orders")) == ["/event/Order__e"]
    assert {status.subject.partition(":")[0] for status in reader("orders").readable(STATUSES)} == {"sfstream"}
    assert topics(reader()) == []


def test_a_stream_of_another_connection_is_left_out() -> None:
    other = drained(NOW, "/event/Order__e", connection="another org")
    assert topics(reader("orders", connections=("another org",)), [*STATUSES, *other]) == ["/event/Order__e"]
    assert topics(reader("orders", "accounts", connections=()), STATUSES) == []


def test_a_task_of_another_dag_on_the_same_stream_stays_unnamed() -> None:
    drain, windows, event_log = well(NOW)
    theirs = signed(NOW, "secret_backfills")["task"]
    windows.document["windows"][3]["task"] = theirs
    drain.document["window"]["task"] = theirs
    drain.document["gaps"] = [{"task": theirs, "reason": "x"}]
    seen = reader("orders").readable([drain, windows, event_log])
    assert "secret_backfills" not in str(seen)
    by_section = {status.section: status.document for status in seen}
    assert by_section["windows"]["windows"][3]["event_count"] is not None
    assert by_section["windows"]["windows"][3]["manifest_url"] is None
    assert by_section["windows"]["windows"][2]["manifest_url"] is not None
    assert all_dag_ids([drain, windows]) == {"orders", "secret_backfills"}


def test_what_another_dag_makes_of_a_stream_is_left_out() -> None:
    drain, windows, event_log = well(NOW)
    event_log.document["task"]["dag_id"] = "secret_tables"
    assert [status.section for status in reader("orders").readable([drain, windows, event_log])] == ["drain", "windows"]


def test_a_stream_that_another_dag_drains_is_not_seen_by_its_failure() -> None:
    drain, windows, _ = well(NOW)
    ours = Status(drain.subject, "failed", {**signed(NOW, "mine"), "report": {}})
    assert reader("mine").readable([drain, windows, ours]) == []


def test_the_connection_of_a_subject_is_its_host() -> None:
    assert connection_of("sfstream://my%20org/event/Order__e?subscription=a") == "my org"
    assert connection_of("s3://lake/replica") is None
