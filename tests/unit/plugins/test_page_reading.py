"""Status documents that a user may read. An invalid Variable does not hide other documents."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography.fernet import Fernet

from airflow_provider_sfstream.monitoring.status import Status, connection_of
from airflow_provider_sfstream.monitoring.status_store import status_to_text
from airflow_provider_sfstream.plugins.page.loading import Reader, _cached, _decrypted, all_dag_ids
from airflow_provider_sfstream.plugins.page.overview import overview
from tests.support.stream_statuses import CONNECTION, UNHEALTHY, drain_statuses, healthy, task_fields

STATUS = healthy(datetime(2026, 11, 24, 12, 30, tzinfo=UTC))[0]
TEXT = status_to_text(STATUS)


@pytest.mark.parametrize("read", [_decrypted, _cached])
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
def test_invalid_status_is_logged(value: str, is_encrypted: bool, caplog: pytest.LogCaptureFixture) -> None:
    assert _decrypted("sfstream_status.1.drain", value, is_encrypted) is None
    assert "Variable sfstream_status.1.drain: the status cannot be read" in caplog.text
    assert "Order__e" not in caplog.text


NOW = datetime(2026, 11, 24, 12, 30, tzinfo=UTC)
STATUSES = [*healthy(NOW), *UNHEALTHY["dirty_replica"](NOW)]


def topics(reader: Reader, statuses: list[Status] = STATUSES) -> list[str]:
    return sorted(row["topic"] for row in overview(reader.readable(statuses), NOW)["streams"])


def reader(*dag_ids: str, connections: tuple[str, ...] = (CONNECTION,)) -> Reader:
    return Reader(frozenset(dag_ids), frozenset(connections))


def test_user_who_may_read_all_sees_all() -> None:
    assert reader("orders", "accounts").readable(STATUSES) == sorted(
        STATUSES, key=lambda status: "task" not in status.document
    )


def test_a_stream_of_another_dag_is_left_out_with_its_tables() -> None:
    assert topics(reader("orders")) == ["/event/Order__e"]
    assert {status.subject.partition(":")[0] for status in reader("orders").readable(STATUSES)} == {"sfstream"}
    assert topics(reader()) == []


def test_a_stream_of_another_connection_is_left_out() -> None:
    other = drain_statuses(NOW, "/event/Order__e", connection="another org")
    assert topics(reader("orders", connections=("another org",)), [*STATUSES, *other]) == ["/event/Order__e"]
    assert topics(reader("orders", "accounts", connections=()), STATUSES) == []


def test_a_task_of_another_dag_on_the_same_stream_stays_unnamed() -> None:
    drain, windows, event_log = healthy(NOW)
    theirs = task_fields(NOW, "secret_backfills")["task"]
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


def test_event_log_of_another_dag_is_left_out() -> None:
    drain, windows, event_log = healthy(NOW)
    event_log.document["task"]["dag_id"] = "secret_tables"
    assert [status.section for status in reader("orders").readable([drain, windows, event_log])] == ["drain", "windows"]


def test_failure_does_not_reveal_a_stream_of_another_dag() -> None:
    drain, windows, _ = healthy(NOW)
    ours = Status(drain.subject, "failed.1", {**task_fields(NOW, "mine"), "report": {}})
    assert reader("mine").readable([drain, windows, ours]) == []


def test_the_connection_of_a_subject_is_its_host() -> None:
    assert connection_of("sfstream://my%20org/event/Order__e?subscription=a") == "my org"
    assert connection_of("s3://lake/replica") is None
