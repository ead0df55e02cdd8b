"""Credentials rotated during a drain, during a wait on the triggerer and before a retry, for every login flow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from airflow_provider_sfstream._airflow import AirflowFailException
from airflow_provider_sfstream.landing.parquet import ParquetWindowWriter
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.replay_stores.table.store import TableReplayStore
from airflow_provider_sfstream.salesforce.pubsub import subscription
from airflow_provider_sfstream.salesforce.streams import Stream
from airflow_provider_sfstream.triggers.salesforce_event import SalesforceEventTrigger
from sfstream_localorg.login.grants import PUBLIC_KEY_FILE
from tests.support.landed import landed_replay_ids
from tests.support.localorg import wait_until
from tests.support.shared_org import SharedOrg, org, shared_org
from tests.support.tasks import context_for, set_connection

__all__ = ["org", "shared_org"]

EVENTS = 1_000
WAITING = 200
"""Number of prefetched events in these tests; the default exceeds the number of published events."""

Extra = dict[str, Any]


class ClientSecret:
    remedy = "consumer_secret"

    def first(self, org: SharedOrg) -> Extra:
        return {}

    def rotated(self, org: SharedOrg) -> Extra:
        return {"consumer_secret": org.rotate_consumer_secret()}


class PrivateKey:
    remedy = "private key"

    def first(self, org: SharedOrg) -> Extra:
        return {"private_key": Path(org.jwt_private_key_file).read_text(), "auth_flow": "jwt_bearer"}

    def rotated(self, org: SharedOrg) -> Extra:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        (org.data_dir / PUBLIC_KEY_FILE).write_bytes(public)
        pkcs8 = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return {"private_key": key.private_bytes(*pkcs8).decode(), "auth_flow": "jwt_bearer"}


class PrivateKeyFile(PrivateKey):
    """Rotation of the key file's content, without a change of the connection."""

    def first(self, org: SharedOrg) -> Extra:
        return {"private_key_file_path": str(org.jwt_private_key_file)}

    def rotated(self, org: SharedOrg) -> Extra:
        Path(org.jwt_private_key_file).write_text(super().rotated(org)["private_key"])
        return self.first(org)


class RefreshToken:
    remedy = "store the new one"

    def first(self, org: SharedOrg) -> Extra:
        self.token = str(org.admin("POST", "/oauth/refresh_tokens", {})["refresh_token"])
        return {"refresh_token": self.token}

    def rotated(self, org: SharedOrg) -> Extra:
        org.revoke(self.token)
        return self.first(org)


class AccessToken:
    remedy = "access_token"

    def first(self, org: SharedOrg) -> Extra:
        self.token = org.token()
        return {
            "access_token": self.token,
            "instance_url": org.https_instance_url,
            "consumer_key": "",
            "consumer_secret": "",
            "login_url": "",
        }

    def rotated(self, org: SharedOrg) -> Extra:
        org.revoke(self.token)
        return self.first(org)


CREDENTIALS = [ClientSecret, PrivateKey, RefreshToken, AccessToken]


@pytest.fixture(autouse=True)
def events(org: SharedOrg, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Publish the events, limit the prefetch of clients, and restore the org's keys after the test."""
    org.publish_many(org.topic, EVENTS, {"Number__c": "{n}"})
    monkeypatch.setattr(subscription, "MOST_EVENTS_WAITING", WAITING)
    keys = [org.data_dir / PUBLIC_KEY_FILE, Path(org.jwt_private_key_file)]
    before = [key.read_bytes() for key in keys]
    yield
    for key, content in zip(keys, before, strict=True):
        key.write_bytes(content)


@pytest.fixture
def connect(org: SharedOrg, monkeypatch: pytest.MonkeyPatch) -> Callable[[Extra], None]:
    def set_extra(extra: Extra) -> None:
        connection = {**org.airflow_connection(**extra), "login": org.username}
        set_connection(monkeypatch, "salesforce_default", **connection)

    return set_extra


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TableReplayStore]:
    set_connection(monkeypatch, "sfstream_replay_store", conn_type="sqlite", host=str(tmp_path / "replay.db"))
    table = TableReplayStore(f"sqlite:///{tmp_path / 'replay.db'}")
    yield table
    table.close()


@pytest.fixture
def drain(org: SharedOrg, tmp_path: Path) -> DrainReplayWindowOperator:
    return DrainReplayWindowOperator(
        task_id="drain",
        topic=org.topic,
        landing_url=str(tmp_path / "lake"),
        replay_store="table",
        idle_timeout=2.0,
    )


def in_the_middle(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Call ``act`` once, after the first 500 events were written.

    The prefetch is smaller than the remaining events, so the client still has to read after ``act``.
    """
    append, written = ParquetWindowWriter.append, []

    def counting(self: ParquetWindowWriter, batch: Any) -> None:
        append(self, batch)
        before = sum(written)
        written.append(len(batch))
        if before <= 500 < before + len(batch):
            act()

    monkeypatch.setattr(ParquetWindowWriter, "append", counting)


def stream(org: SharedOrg) -> Stream:
    return Stream(org.org_id, "pubsub", org.topic)


def everything_landed_once(org: SharedOrg, tmp_path: Path) -> bool:
    return landed_replay_ids(tmp_path / "lake", stream(org)) == [event["replay_id"] for event in org.record(org.topic)]


@pytest.mark.parametrize("credentials", [*CREDENTIALS, PrivateKeyFile])
def test_a_running_drain_logs_in_again_with_the_rotated_credentials(
    credentials: Any,
    org: SharedOrg,
    connect: Any,
    store: Any,
    drain: Any,
    tmp_path: Path,
    monkeypatch: Any,
    caplog: Any,
) -> None:
    rotating = credentials()
    secrets: list[Extra] = [rotating.first(org)]
    connect(secrets[0])
    org.knobs(batch_events=10)

    def rotate() -> None:
        secrets.append(rotating.rotated(org))
        connect(secrets[-1])
        org.revoke()
        if credentials is AccessToken:  # org.revoke() revokes every token, so create the new one afterwards
            secrets.append(rotating.first(org))
            connect(secrets[-1])

    in_the_middle(monkeypatch, rotate)
    result = drain.execute(context_for("drain"))

    assert result["event_count"] == EVENTS
    assert everything_landed_once(org, tmp_path)
    assert "logging in again with the changed credentials of the connection" in caplog.text
    values = [value for extra in secrets for name, value in extra.items() if name in SECRET_FIELDS]
    assert values or credentials is PrivateKeyFile
    assert not any(value in caplog.text for value in values if value)


def test_a_running_streaming_api_drain_logs_in_again_with_the_rotated_secret(
    org: SharedOrg, connect: Any, store: Any, tmp_path: Path, monkeypatch: Any, caplog: Any
) -> None:
    channel = "/u/notifications/Orders"
    org.generic_channel(channel)
    events = 4 * EVENTS  # more than the prefetch of this client
    org.publish(channel, [{"payload": str(number)} for number in range(events)])
    org.knobs(cometd_batch_events=50)
    connect({})

    def rotate() -> None:
        connect(ClientSecret().rotated(org))
        org.revoke()

    in_the_middle(monkeypatch, rotate)
    # The client receives nothing while it logs in again, so idle_timeout must be longer than a login.
    drain = DrainReplayWindowOperator(
        task_id="drain",
        topic=channel,
        landing_url=str(tmp_path / "lake"),
        replay_store="table",
        idle_timeout=60.0,
        max_events=events,
    )
    assert drain.execute(context_for("drain"))["event_count"] == events
    landed = landed_replay_ids(tmp_path / "lake", Stream(org.org_id, "streaming", channel))
    assert landed == [event["replay_id"] for event in org.record(channel)]
    assert "logging in again with the changed credentials of the connection" in caplog.text


SECRET_FIELDS = ("consumer_secret", "private_key", "refresh_token", "access_token")


@pytest.mark.parametrize("credentials", CREDENTIALS)
def test_an_outdated_connection_fails_the_task_and_the_next_try_lands_all_events(
    credentials: Any, org: SharedOrg, connect: Any, store: Any, drain: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    rotating = credentials()
    connect(rotating.first(org))
    org.knobs(batch_events=10)
    edited: list[Extra] = []

    def rotate() -> None:
        edited.append(rotating.rotated(org))
        org.revoke()

    in_the_middle(monkeypatch, rotate)
    with pytest.raises(AirflowFailException, match=rotating.remedy):
        drain.execute(context_for("drain"))
    assert store.read(stream(org)).fence == 0

    connect(rotating.first(org) if credentials is AccessToken else edited[-1])
    assert drain.execute(context_for("drain", try_number=2))["event_count"] == EVENTS
    assert everything_landed_once(org, tmp_path)


def test_a_rotated_secret_without_revoked_tokens_ends_no_session(
    org: SharedOrg, connect: Any, store: Any, drain: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    connect({})
    org.knobs(batch_events=10)
    in_the_middle(monkeypatch, lambda: ClientSecret().rotated(org) and None)
    assert drain.execute(context_for("drain"))["event_count"] == EVENTS
    assert org.logins == 1


@pytest.mark.parametrize("is_edited", [True, False])
@pytest.mark.parametrize("credentials", [ClientSecret, PrivateKey])
async def test_a_wait_on_the_triggerer_uses_rotated_credentials_or_names_the_remedy(
    credentials: Any, is_edited: bool, org: SharedOrg, connect: Any
) -> None:
    rotating = credentials()
    connect(rotating.first(org))
    waiting = asyncio.create_task(fired(SalesforceEventTrigger(topic=org.topic)))
    await asyncio.to_thread(wait_until, org.open_streams, what="the stream")

    extra = await asyncio.to_thread(rotating.rotated, org)
    if is_edited:
        connect(extra)
    await asyncio.to_thread(org.revoke)

    if is_edited:
        # The trigger starts at the latest event, so events published before the new stream opens would be missed.
        def again() -> bool:
            return len(org.requests("grpc", "Subscribe")) > 1 and org.open_streams() > 0

        await asyncio.to_thread(wait_until, again, what="a new stream")
        [new] = await asyncio.to_thread(org.publish, org.topic, [{"Number__c": 1.0}])
        assert (await waiting)["first_replay_id"] == new.hex()
    else:
        event = await waiting
        assert (event["reason"], event["error"]) == ("error", "AuthenticationError")
        assert rotating.remedy in event["message"]


async def fired(trigger: SalesforceEventTrigger) -> dict[str, Any]:
    async with asyncio.timeout(60):
        [event] = [event.payload async for event in trigger.run()]
    return dict(event)
