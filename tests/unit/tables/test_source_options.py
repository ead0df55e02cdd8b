from __future__ import annotations

import json

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.source.options import SourceOptions

PLACE = {"path": "s3://lake/landing", "topic": "/event/Order__e"}


def test_option_names_ignore_case_and_values_have_types() -> None:
    values = {
        **PLACE,
        "TOPIC": "/event/Order__e, /data/AccountChangeEvent",
        "Max_Events": "500",
        "verify_files": "FALSE",
    }
    values.pop("topic")
    options = SourceOptions.from_options(values)
    assert [topic.name for topic in options.topics] == ["/event/Order__e", "/data/AccountChangeEvent"]
    assert (options.max_events, options.verify_files, options.rows, options.subscription) == (
        500,
        False,
        "decoded",
        "airflow",
    )
    assert options.replay_store is None


def test_manifests_are_a_list_with_commas_or_json() -> None:
    urls = ("file:///a/manifest.json", "file:///b,c/manifest.json")
    assert SourceOptions.from_options({"manifests": json.dumps(urls)}).manifests == urls
    assert SourceOptions.from_options({"manifests": "file:///a, file:///b"}).manifests == ("file:///a", "file:///b")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "Set the data to read"),
        ({"path": "/lake"}, "Set the data to read"),
        ({**PLACE, "manifests": "file:///a"}, "not both"),
        ({**PLACE, "subscribtion": "spark"}, "'subscribtion' is not an option"),
        ({**PLACE, "rows": "cooked"}, "rows='cooked' must be one of decoded, raw, quarantine"),
        ({**PLACE, "on_undecodable": "drop"}, "must be one of fail, leave_out"),
        ({**PLACE, "replay_store": "redis"}, "replay_store='redis' must be one of landing, table, variable"),
        ({**PLACE, "pushdown": "yes"}, "pushdown='yes' must be true or false"),
        ({**PLACE, "max_events": "0"}, "max_events='0' must be a whole number above zero"),
        ({**PLACE, "max_events": "many"}, "max_events='many' must be a whole number above zero"),
        ({**PLACE, "topic": "Order__e"}, "is not a topic name"),
        ({**PLACE, "path": "s3://key:s3cret@lake/landing"}, "contains a password"),
        ({"manifests": "[1,"}, "not a JSON array"),
    ],
)
def test_invalid_option_is_refused_by_name(values: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        SourceOptions.from_options(values)
    assert "s3cret" not in str(caught.value)


def test_storage_options_are_in_no_text() -> None:
    secret = "9f8e7d6c5b4a-of-the-storage"
    client = '{"endpoint_url": "http://127.0.0.1:8333"}'
    values = {**PLACE, "storage.secret": secret, "storage.anon": "false", "storage.client_kwargs": client}
    options = SourceOptions.from_options(values)
    assert options.storage == {"secret": secret, "anon": False, "client_kwargs": json.loads(client)}
    assert secret not in repr(options)
    with pytest.raises(ConfigurationError) as caught:
        SourceOptions.from_options({**values, "rows": secret})
    assert secret not in str(caught.value)
