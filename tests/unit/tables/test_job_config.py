"""Input of a Spark application: a config as JSON, and the hash key in its environment."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.privacy.field_rules import HASH_KEY_VARIABLE
from airflow_provider_sfstream.tables.event_log.config import EventLogConfig
from airflow_provider_sfstream.tables.job_config import JobConfig
from airflow_provider_sfstream.tables.maintenance.config import MaintenanceConfig
from airflow_provider_sfstream.tables.replica.config import ReplicaConfig
from airflow_provider_sfstream.tables.spark_apps.application import read_config

KEY = "a key of sixteen or more characters"
RUN = {"output_url": "s3://lake/t", "metrics_url": "s3://lake/m.json", "job": "d.t run r try 1"}
EVENT_LOG = EventLogConfig(
    **RUN,
    manifests=("a.json", "b.json"),
    event_time_from=datetime(2026, 1, 10, 1, 2, 3, 4, tzinfo=UTC),
    event_time_to=datetime(2026, 1, 11, tzinfo=UTC),
    own_windows=("w1",),
    verify_files=False,
    exclude_fields=["Phone"],
    mask_fields=["Fax"],
    hash_fields=["Email"],
    hash_key=KEY,
)
CONFIGS = [
    EVENT_LOG,
    ReplicaConfig(**RUN, manifests=("a.json",), deletes="hard", history=True, target_file_bytes=9, keep_snapshots=3),
    ReplicaConfig(**RUN, refresh_url="r.json", max_deleted_fraction=1),
    MaintenanceConfig(**RUN, retention_hours=49, target_file_bytes=1 << 20),
    MaintenanceConfig(output_url="s3://lake/t"),
]


@pytest.mark.parametrize("config", CONFIGS)
def test_a_driver_gets_the_config_of_the_operator(config: JobConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HASH_KEY_VARIABLE, KEY)
    value = read_config(type(config), config.to_arguments())
    if config is not EVENT_LOG:
        monkeypatch.delenv(HASH_KEY_VARIABLE)
        value = read_config(type(config), config.to_arguments())
    assert value == config


def test_the_key_is_in_no_text_of_a_config() -> None:
    assert KEY not in EVENT_LOG.to_json() + repr(EVENT_LOG)
    with pytest.raises(ConfigurationError, match="has no argument hash_key"):
        EventLogConfig.from_arguments([json.dumps({"output_url": "t", "hash_key": KEY})])


def test_a_driver_without_the_key_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HASH_KEY_VARIABLE, raising=False)
    with pytest.raises(ConfigurationError, match=f"key for the hash of Email is missing.*{HASH_KEY_VARIABLE}"):
        read_config(EventLogConfig, EVENT_LOG.to_arguments())


@pytest.mark.parametrize("config", CONFIGS)
def test_config_has_no_double_braces(config: JobConfig) -> None:
    """YARN would replace double braces."""
    assert config.to_json().count("{") == config.to_json().count("}") == 1


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (EventLogConfig, "", "is not JSON"),
        (EventLogConfig, "--manifest", "is not JSON"),
        (EventLogConfig, [], "not a JSON object with output_url"),
        (EventLogConfig, {"manifests": ["m"]}, "not a JSON object with output_url"),
        (EventLogConfig, {"manifest": "m"}, "has no argument manifest. It accepts output_url"),
        (EventLogConfig, {"manifests": "m"}, "manifests='m' must be of the type tuple"),
        (EventLogConfig, {"manifests": [1]}, "manifests=.* must be of the type tuple"),
        (EventLogConfig, {"verify_files": "no"}, "verify_files='no' must be of the type bool"),
        (EventLogConfig, {"event_time_from": "now"}, "event_time_from='now' is not an ISO 8601 time"),
        (EventLogConfig, {"event_time_from": 5}, "event_time_from=5 is not an ISO 8601 time"),
        (ReplicaConfig, {"refresh_url": 1}, "refresh_url=1 must be of the type str"),
        (ReplicaConfig, {"refresh_url": "r", "manifests": ["m"]}, "manifests or refresh_url, not both"),
        (ReplicaConfig, {"max_deleted_fraction": 2}, "must be from 0 to 1"),
        (ReplicaConfig, {"deletes": "never"}, "deletes='never' must be one of"),
        (MaintenanceConfig, {"retention_hours": 23}, "must be at least 24"),
        (ReplicaConfig, {"max_deleted_fraction": True}, "max_deleted_fraction=True must be of the type float"),
        (ReplicaConfig, {"keep_snapshots": True}, "keep_snapshots=True must be of the type int"),
        (MaintenanceConfig, {"target_file_bytes": 0}, "whole number above zero"),
        (EventLogConfig, {"batch_bytes": 0}, "batch_bytes=0 must be a whole number above zero"),
        (ReplicaConfig, {"batch_bytes": (1 << 30) + 1}, "batch_bytes=1073741825 must be at most 1073741824"),
        (MaintenanceConfig, {"retention_hours": True}, "retention_hours=True must be of the type int"),
    ],
)
def test_invalid_job_config_is_refused(kind: type[JobConfig], value: Any, message: str) -> None:
    if (isinstance(value, dict) and "output_url" not in message) or "It accepts" in message:
        value = {"output_url": "t", **value}
    text = value if isinstance(value, str) else json.dumps(value)
    with pytest.raises(ConfigurationError, match=message):
        kind.from_arguments([text])


def test_the_windows_of_a_long_backlog_fit_into_a_command_line() -> None:
    chance = random.Random(1)
    folder = (
        "s3a://a-bucket-of-a-lake/landing/00D000000000001AAA/pubsub/data.AccountChangeEvent/airflow/windows/2026/01"
    )
    manifests = tuple(f"{folder}/10/{number:06}-{chance.randbytes(8).hex()}/manifest.json" for number in range(20_000))
    config = EventLogConfig(output_url="t", manifests=manifests)
    assert len(config.to_json()) > 2 << 20
    arguments = config.to_arguments()
    subprocess.run([sys.executable, "-c", "", *arguments], check=True)
    assert read_config(EventLogConfig, arguments) == config


@pytest.mark.parametrize("character", ["#", "?", "%", "\\", "\n"])
@pytest.mark.parametrize("config", [EventLogConfig, ReplicaConfig, MaintenanceConfig])
def test_folder_with_characters_unsupported_by_delta_rs_is_refused(config: type[JobConfig], character: str) -> None:
    message = re.escape(f"output_url contains the character {character!r}")
    with pytest.raises(ConfigurationError, match=message) as caught:
        config(output_url=f"/lake/secret{character}b")
    assert "secret" not in str(caught.value), "the text after ? may be a signature"
