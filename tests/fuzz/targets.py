"""Fuzz targets: functions that pass one hostile input to a reader of the package.

Each function returns a name or a count for the outcome. An exception of the package is an ordinary outcome. Any other
exception is a failure, and so is a secret in the text of an exception.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

import httpx
from google.protobuf.message import DecodeError
from hypothesis import strategies as st

from airflow_provider_sfstream.exceptions import SalesforceStreamError
from airflow_provider_sfstream.landing.intervals import INTERVAL_DOCUMENT
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.landing.pruned import PRUNED_DOCUMENT
from airflow_provider_sfstream.redaction import quoted, quoted_setting, redacted, remember_secrets
from airflow_provider_sfstream.replay_stores.document.document import PositionDocument, gaps_from_json
from airflow_provider_sfstream.replay_stores.table.urls import sqlalchemy_url
from airflow_provider_sfstream.salesforce.auth.credentials import Credentials, credentials_from
from airflow_provider_sfstream.salesforce.errors.pubsub import error_from
from airflow_provider_sfstream.salesforce.errors.rest import job_error, query_error
from airflow_provider_sfstream.salesforce.errors.streaming import error_from_reply, error_from_status
from airflow_provider_sfstream.salesforce.event_time import EventTimeReader, JsonEventTimeReader
from airflow_provider_sfstream.salesforce.network.proxies import checked_proxy
from airflow_provider_sfstream.salesforce.network.settings import TIMERS, Timers
from airflow_provider_sfstream.salesforce.network.tls import checked_origin
from airflow_provider_sfstream.salesforce.pubsub.channel import Endpoint
from airflow_provider_sfstream.salesforce.pubsub.subscription import response_batch
from airflow_provider_sfstream.salesforce.pubsub_api_pb2 import FetchResponse
from airflow_provider_sfstream.salesforce.replay_ids import replay_id_from_text
from airflow_provider_sfstream.salesforce.rest import client as rest
from airflow_provider_sfstream.salesforce.rest.records import _Progress
from airflow_provider_sfstream.salesforce.schemas import parse, record_name
from airflow_provider_sfstream.salesforce.stream_uris import StreamUri
from airflow_provider_sfstream.salesforce.streaming.cometd.messages import (
    EventMessage,
    MessageSplitter,
    UnreadableMessageError,
    default_loads,
    parse_message,
)
from airflow_provider_sfstream.salesforce.streaming.subscription import message_batch
from airflow_provider_sfstream.salesforce.streams import Stream
from airflow_provider_sfstream.salesforce.topics import Topic, slug
from airflow_provider_sfstream.tables.decode.avro_decoding import AvroDecoder
from airflow_provider_sfstream.tables.decode.json_decoding import JsonDecoder
from airflow_provider_sfstream.tables.decode.self_described import read_body
from airflow_provider_sfstream.tables.replica.refresh_document import RefreshDocument
from airflow_provider_sfstream.tables.replica.snapshots import Snapshot
from airflow_provider_sfstream.tables.replica.table_schemas import StoredSchema, TableSchema
from airflow_provider_sfstream.tables.rows.replica_columns import entity_of, replica_columns
from tests.fuzz.strategies import JSON, NAMES, PAYLOADS, SCHEMAS, TEXTS, amplified, bodies
from tests.support.decoders import LIBRARIES, decoding_with
from tests.support.stepwise_login import Login

SECRET = "c0rrect/horse battery+staple"
REMEMBERED = st.sampled_from(
    [SECRET, quote(SECRET, safe=""), quote_plus(SECRET), json.dumps(SECRET), base64.b64encode(SECRET.encode()).decode()]
)
LEAKY = st.builds(lambda before, secret, after: f"{before}{secret}{after}", TEXTS, REMEMBERED, TEXTS) | TEXTS
STREAM = Stream("00D000000000001EAA", "pubsub", "/event/Order__e")
EVENT = {
    "channel": "/event/Order__e",
    "data": {
        "schema": "s",
        "payload": {"CreatedDate": "2026-01-10T00:00:00.000Z", "N__c": 1.5},
        "event": {"replayId": 7, "EventUuid": "u", "createdDate": "2026-01-10T00:00:00.000Z"},
    },
}
ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order__e",
        "fields": [
            {"name": "CreatedDate", "type": "long", "doc": "CreatedDate:DateTime"},
            {"name": "N__c", "type": ["null", "double"]},
            {"name": "Any__c", "type": ["null", "string", "long", "int"]},
            {"name": "Many__c", "type": ["null", {"type": "array", "items": ["null", "string"]}]},
        ],
    }
)


class Target(NamedTuple):
    """A function, its inputs, and the exceptions outside the package's tree that its callers handle."""

    function: Callable[[Any], Any]
    inputs: st.SearchStrategy[Any]
    raises: tuple[type[BaseException], ...] = ()


def schema(given: tuple[Any, bytes]) -> str:
    document, payload = given
    text = json.dumps(document)
    parse(text)
    record_name(text)
    times = EventTimeReader(text)
    times.read(payload)
    times.read_many([payload, payload[:-1]])
    decoded: list[Any] = []
    for library in LIBRARIES:
        with decoding_with(library):
            events, failures = AvroDecoder(text).decode_all([payload, payload[:-1]])
        decoded.append((events, [failure.row for failure in failures]))
    JsonDecoder(text).decode_all([b'{"payload": {}}'])
    try:
        replica_columns(text)
        entity_of(document)
    except ValueError:  # no change event
        pass
    return "decoded" if decoded[0][0] is not None else "quarantined"


def json_event(payload: bytes) -> str:
    _, failures = JsonDecoder(ORDER).decode_all([payload])
    JsonEventTimeReader().read(payload)
    for format_ in ("push_topic", "generic", "event"):
        with suppress(ValueError, ArithmeticError, RecursionError):  # the callers handle these
            read_body(format_, payload)  # type: ignore[arg-type]
    return "quarantined" if failures else "decoded"


def cometd(body: bytes) -> int:
    splitter = MessageSplitter()
    messages = []
    for at in range(0, len(body), 65_536):
        messages += [parse_message(raw, default_loads) for raw in splitter.feed(body[at : at + 65_536])]
    splitter.end()
    events = [message for message in messages if isinstance(message, EventMessage)]
    return len(message_batch("/event/Order__e", events, 1))


def grpc_response(wire: bytes) -> int:
    return len(response_batch("/event/Order__e", FetchResponse.FromString(wire), 1))


def errors(given: tuple[Any, ...]) -> str:
    code, status, text = given
    found = [
        error_from(code, "UNAVAILABLE", text, topic="/event/Order__e", rpc_id=code),
        query_error(status, code, text, what="Account"),
        job_error(text, what="Account"),
        error_from_reply(text, code, topic="/event/Order__e"),
        error_from_status(status, text, topic="/event/Order__e"),
    ]
    for error in found:
        check(str(error))
    return "told"


def login(given: tuple[int, bytes]) -> str:
    status, body = given
    steps = Login(Credentials("client_credentials", "https://acme.example", "key", consumer_secret=SECRET), 0)
    steps.answer(httpx.Response(status, content=body, request=steps.request))
    if steps.request is not None:
        assert steps.request.url.scheme == "https"
        steps.answer(httpx.Response(status, content=body, request=steps.request))
    return "logged in"


def rest_answer(given: tuple[int, bytes]) -> str:
    status, body = given
    response = httpx.Response(status, content=body, request=httpx.Request("GET", "https://acme.example/x"))
    document = rest._document(response)
    if not response.is_success or not isinstance(document, dict):
        raise rest._error(response, document, "Account", names_record=False)
    progress = _Progress()
    try:
        progress.follow(document.get("nextRecordsUrl"))
    except ValueError:
        return "stopped"
    return "follows"


def _stored_schema(table: str, name: str) -> StoredSchema:
    return StoredSchema(name, table, str)


def documents(text: bytes) -> int:
    url = "file:///lake/o/pubsub/t/airflow/windows/2026/01/10/w/manifest.json"
    read = 0
    readers: list[tuple[Callable[[], Any], tuple[type[BaseException], ...]]] = [
        (lambda: _inside(Manifest.from_json(text, url)), ()),
        (lambda: INTERVAL_DOCUMENT.from_json(text, "interval"), ()),
        (lambda: PRUNED_DOCUMENT.from_json(text, "pruned.json"), ()),
        (lambda: RefreshDocument.from_json(text.decode(errors="replace"), "refresh.json"), ()),
        (lambda: Snapshot.from_json(text.decode(errors="replace"), "snapshot", _stored_schema), ()),
        (lambda: TableSchema.from_json(text.decode(errors="replace"), "schema"), ()),
        (lambda: PositionDocument.from_json(text.decode(errors="replace"), STREAM), (ValueError,)),
        (lambda: gaps_from_json(text.decode(errors="replace"), STREAM), (ValueError,)),
    ]
    for reader, raises in readers:
        try:
            reader()
            read += 1
        except (SalesforceStreamError, *raises):
            pass
    return read


def _inside(manifest: Manifest) -> None:
    for url in (*manifest.file_sums(), *map(manifest.url_of, manifest.schemas.values())):
        assert url.startswith("file:///lake/o/pubsub/t/airflow/"), url
        assert "/../" not in url, url


def connection(fields: dict[str, Any]) -> str:
    _check_error(lambda: credentials_from(fields))
    _check_error(lambda: Endpoint.parse(fields.get("login_url") or ""))
    _check_error(lambda: Timers.from_fields({name: fields.get("domain") for name in TIMERS}))
    extra = {"ssl": fields.get("domain"), "ssl_mode": fields.get("instance")}
    for kind in ("postgres", "mysql", "sqlite", fields.get("auth_flow") or ""):
        _check_error(lambda kind=kind: sqlalchemy_url(kind, fields.get("domain"), None, "s", "u", SECRET, extra))
    return "checked"


def names(text: str) -> str:
    for read in (
        StreamUri.parse,
        Topic.parse,
        replay_id_from_text,
        checked_proxy,
        lambda given: checked_origin("login_url", given, allow_insecure=False),
        lambda given: Landing(_Nothing(), "/lake", given),
        lambda given: landing.window_folder(STREAM, given),
        lambda given: landing.position_path(given),
    ):
        _check_error(lambda read=read: read(text))
    segment = slug(text)
    assert "/" not in segment
    assert segment not in ("", ".", "..")
    assert landing.schema_path(STREAM, text).startswith("/lake/00D000000000001EAA/")
    return "checked"


def texts(text: str) -> str:
    for shown in (redacted(text), quoted(text), quoted_setting(text), str(SalesforceStreamError(text))):
        check(shown)
    return "redacted"


def _check_error(action: Callable[[], Any]) -> None:
    try:
        action()
    except SalesforceStreamError as error:
        check(str(error))


def check(shown: str) -> None:
    """Check that a text is printable, is one line and contains no secret."""
    shown.encode()
    assert "\n" not in shown
    assert "\x1b" not in shown
    assert SECRET not in shown
    assert quote(SECRET, safe="") not in shown
    assert quote_plus(SECRET) not in shown


class _Nothing:
    """A filesystem without methods: these targets must not access storage."""


landing = Landing(_Nothing(), "/lake", "file:///lake")
remember_secrets(SECRET)

FIELDS = (
    "login",
    "password",
    "consumer_key",
    "consumer_secret",
    "private_key",
    "private_key_file_path",
    "refresh_token",
)
ALL_FIELDS = (*FIELDS, "instance_url", "login_url", "domain", "instance", "auth_flow", "access_token", "security_token")
GRANTED = {
    "access_token": "s3cret-tok",
    "instance_url": "https://acme.example",
    "id": "https://x/id/00D000000000001AAA/005000000000001AAA",
    "organization_id": "00D000000000001AAA",
    "error": "invalid_grant",
    "error_description": SECRET,
}
MANIFEST: dict[str, Any] = {
    "format": "sfstream-manifest",
    "version": 1,
    "stream": {"org_id": "00D", "api": "pubsub", "topic": "/event/Order__e", "subscription": "airflow"},
    "window_id": "20260110T000000Z-0123456789abcdef",
    "kind": "live",
    "after": None,
    "through": "00ff",
    "event_count": 1,
    "payload_bytes": 1,
    "payload_encoding": "avro",
    "untimed_events": 0,
    "first_event_time": "2026-01-10T00:00:00+00:00",
    "last_event_time": "2026-01-10T00:00:00+00:00",
    "covered_from": None,
    "covered_until": None,
    "contact_at": None,
    "counts_from": None,
    "late_before": None,
    "retention": None,
    "previous_window_id": None,
    "fence": 0,
    "gap": None,
    "schemas": {"one": "../../../../../schemas/one.avsc"},
    "missing_schemas": {"two": {"file": "../../../../../schemas/two.avsc", "reason": "hidden"}},
    "files": [{"name": "part-00000-1.parquet", "rows": 1, "bytes": 1, "sha256": "00"}],
    "stop_reason": "caught_up",
    "run": {"dag_id": "d", "task_id": "t", "run_id": "r", "run_after": "2026-01-10T00:00:00+00:00", "map_index": -1}
    | {"try_number": 1},
    "started_at": "2026-01-10T00:00:00+00:00",
    "finished_at": "2026-01-10T00:00:00+00:00",
    "provider_version": "0",
}
OTHERS = [
    {"format": "sfstream-pruned", "version": 1, "window_ids": ["w"], "through": "00"},
    {"format": "sfstream-position", "version": 1, "stream": vars(STREAM), "position": "00", "fence": 1},
    {"format": "sfstream-gaps", "version": 1, "stream": vars(STREAM), "gaps": [{"after": "00"}]},
    {"format": "sfstream-replica", "version": 1, "number": 1, "streams": {}, "tables": {}},
    {"format": "sfstream-refresh", "version": 1, "tables": [{"mode": "full"}]},
]
WIRE = st.sampled_from(
    [b"\x0a", b"\x12", b"\x1a", b"\x0a\x02\x12\x00", b"\x12\x41", b"\xff", b"\x00", b"\x08\x07", b"1" * 65]
)
URLS = st.builds(
    lambda scheme, user, host, tail: f"{scheme}{user}{host}{tail}",
    st.sampled_from(["https://", "http://", "sfstream://", "s3://", "sfstream:", "", "//", "file://", "abfss://"]),
    st.sampled_from(["", "u@", f"u:{SECRET}@", f"u:{quote(SECRET, safe='')}@", ":@", "@", "u:p@ss@"]),
    st.sampled_from(["host", "salesforce_default", "[::1]", "[", "h:99999", "h:x", "", "h\n", "٣", "h\\@x"]) | NAMES,
    st.sampled_from(["/event/Order__e", "?sig=" + SECRET, "/../..", "#f", "/a?min_events=0", "?a=1&a=2", ""]) | TEXTS,
)
IDENTITIES = st.builds(
    lambda url, org_id, user_id: f"{url}/id/{org_id}/{user_id}",
    URLS,
    st.sampled_from(["00D000000000001AAA", "00D", "..", "%2e%2e"]) | TEXTS,
    st.sampled_from(["005000000000001AAA", ""]) | TEXTS,
)
LOGINS = st.fixed_dictionaries(
    {
        "access_token": st.sampled_from(["s3cret-tok", "two words", ""]) | TEXTS,
        "instance_url": st.sampled_from(["https://acme.example", "https://["]) | URLS,
        "id": st.sampled_from(["https://[", "https://x/id/00D000000000001AAA/005000000000001AAA"]) | URLS | IDENTITIES,
    },
    optional={"organization_id": JSON, "user_id": JSON, "error": JSON, "error_description": LEAKY},
).map(lambda document: json.dumps(document).encode())

TARGETS = {
    "schemas": Target(schema, st.tuples(SCHEMAS, PAYLOADS)),
    "json_events": Target(json_event, bodies(EVENT["data"])),
    "cometd": Target(cometd, bodies([EVENT, EVENT]), (UnreadableMessageError.__mro__[1],)),
    "grpc": Target(grpc_response, amplified(WIRE) | st.lists(WIRE, max_size=8).map(b"".join), (DecodeError,)),
    "errors": Target(errors, st.tuples(TEXTS, st.sampled_from([None, 200, 400, 401, 404, 500]), LEAKY)),
    "login": Target(login, st.tuples(st.sampled_from([200, 400, 401, 503]), bodies(GRANTED) | LOGINS)),
    "rest": Target(
        rest_answer,
        st.tuples(
            st.sampled_from([200, 201, 204, 400, 401, 500]),
            bodies([{"errorCode": "INVALID_FIELD", "message": SECRET}])
            | bodies({"done": False, "records": [{"Id": "001"}], "nextRecordsUrl": "/services/data/x"}),
        ),
    ),
    "documents": Target(documents, bodies(MANIFEST) | st.sampled_from(OTHERS).flatmap(bodies)),
    "connections": Target(
        connection, st.fixed_dictionaries({}, optional=dict.fromkeys(ALL_FIELDS, LEAKY | URLS | st.none()))
    ),
    "names": Target(names, URLS | TEXTS),
    "texts": Target(
        texts, LEAKY | amplified(st.binary(max_size=4), 200_000).map(lambda data: data.decode(errors="replace"))
    ),
}
