"""Variables that hold no status hide no other one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography.fernet import Fernet

from airflow_provider_sfstream.monitoring.status_store import status_to_text
from airflow_provider_sfstream.plugins.page.reading import _decrypted, _remembered
from tests.support.stream_statuses import well

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
