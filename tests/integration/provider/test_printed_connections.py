"""The connections that the local org prints when it is ready: each logs in and reaches the Pub/Sub API."""

from __future__ import annotations

import json
import shlex

import pytest

from airflow_provider_sfstream.hooks.salesforce_pubsub import SalesforcePubSubHook
from sfstream_localorg.connections import airflow_commands
from tests.support.shared_org import SharedOrg, org, shared_org
from tests.support.tasks import set_connection

__all__ = ["org", "shared_org"]


@pytest.mark.parametrize("connection_id", ["salesforce_default", "salesforce_jwt", "salesforce_password"])
def test_each_printed_connection_reaches_the_org(
    org: SharedOrg, connection_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = next(words for command in airflow_commands(org.info) if connection_id in (words := shlex.split(command)))
    assert words[:4] == ["airflow", "connections", "add", connection_id]
    options = dict(zip(words[4::2], words[5::2], strict=True))
    assert options["--conn-port"] == "0", "Airflow's Test button refuses a connection without a port"
    fields = {name.removeprefix("--conn-").replace("type", "conn_type"): value for name, value in options.items()}
    set_connection(monkeypatch, connection_id, **{**fields, "extra": json.loads(fields["extra"])})
    answer = SalesforcePubSubHook(connection_id).test_connection(org.topic)
    assert answer == (True, answer[1]), answer


def test_client_secret_of_the_caller_is_not_printed(org: SharedOrg) -> None:
    commands = airflow_commands({**org.info, "client_secret": None})
    assert [shlex.split(command)[3] for command in commands] == ["salesforce_jwt"]
