"""Pub/Sub API over gRPC: all RPCs of ``eventbus.v1.PubSub``."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import grpc
from google.protobuf.message import DecodeError

from sfstream_localorg.bus.event_bus import BusEvent
from sfstream_localorg.bus.payloads import decode
from sfstream_localorg.bus.topics import TopicDefinition
from sfstream_localorg.managed.stream import ManagedStream
from sfstream_localorg.org import Org
from sfstream_localorg.pubsub import pubsub_api_pb2 as pb
from sfstream_localorg.pubsub.subscription import Subscription, tenant_guid, topic_not_found
from sfstream_localorg.streams.endings import CallEnded, end_call, refused

SERVICE = "eventbus.v1.PubSub"
OPTIONS = [
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_concurrent_streams", 1000),
    # Unlimited pings, also without a call, because the limits of the real service are not known.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 0),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
]


class PubSubService:
    """Handler of gRPC calls for one org."""

    def __init__(self, org: Org) -> None:
        self._org = org

    def handler(self) -> Any:
        """Return the generic handler to add to a server."""
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler
        topic_info, schema_info = pb.TopicInfo.SerializeToString, pb.SchemaInfo.SerializeToString
        published = pb.PublishResponse.SerializeToString
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "GetTopic": unary(self._handler("GetTopic", self._get_topic), pb.TopicRequest.FromString, topic_info),
                "GetSchema": unary(
                    self._handler("GetSchema", self._get_schema), pb.SchemaRequest.FromString, schema_info
                ),
                # Publish requests are parsed after their size was checked.
                "Publish": unary(self._handler("Publish", self._publish), None, published),
                "PublishStream": stream(self._handler("PublishStream", self._publish_stream), None, published),
                # Responses consist of events that are already serialised.
                "Subscribe": stream(self._handler("Subscribe", self._subscribe), pb.FetchRequest.FromString, None),
                "ManagedSubscribe": stream(
                    self._handler("ManagedSubscribe", self._managed_subscribe), pb.ManagedFetchRequest.FromString, None
                ),
            },
        )

    def _handler(self, rpc: str, serve: Callable[[Any, Any, _Call], Awaitable[Any]]) -> Callable[[Any, Any], Any]:
        async def serve_call(request: Any, context: Any) -> Any:
            call = _Call(self._org, rpc)
            try:
                call.authenticate(context)
                self._org.faults.check_call(rpc)
                response = await serve(request, context, call)
                call.entry.outcome = "OK"
                return response
            except CallEnded as ending:
                call.entry.outcome = ending.outcome
                return await end_call(context, ending, rpc=rpc, rpc_id=call.rpc_id)
            except asyncio.CancelledError:
                call.entry.outcome = "CANCELLED"
                raise

        return serve_call

    async def _get_topic(self, request: pb.TopicRequest, context: Any, call: _Call) -> pb.TopicInfo:
        topic = self._topic(request.topic_name, call)
        return pb.TopicInfo(
            topic_name=topic.name,
            tenant_guid=tenant_guid(self._org),
            can_publish=topic.can_publish,
            can_subscribe=True,
            schema_id=self._org.topics.schema_id(topic),
            rpc_id=call.rpc_id,
        )

    async def _get_schema(self, request: pb.SchemaRequest, context: Any, call: _Call) -> pb.SchemaInfo:
        if not request.schema_id.strip():
            raise refused("schema.validation.failed", "INVALID_ARGUMENT", "The schema ID is empty.")
        call.entry.detail["schema_id"] = request.schema_id
        schema = self._org.faults.schemas.answer(request.schema_id)
        if schema is None:
            schema = self._org.schemas.get(request.schema_id)
        if schema is None:
            raise refused(
                "schema.meta.permission", "PERMISSION_DENIED", "The schema does not exist or you have no access to it."
            )
        return pb.SchemaInfo(schema_json=schema, schema_id=request.schema_id, rpc_id=call.rpc_id)

    async def _subscribe(self, request: Any, context: Any, call: _Call) -> None:
        subscription = Subscription(self._org, context, call.rpc_id, call.token)
        try:
            await subscription.serve()
        finally:
            call.entry.detail.update(topic=subscription.topic, events=subscription.delivered)

    async def _managed_subscribe(self, request: Any, context: Any, call: _Call) -> None:
        stream = ManagedStream(self._org, context, call.rpc_id, call.token)
        try:
            await stream.serve()
        finally:
            name = None if stream.record is None else stream.record.developer_name
            call.entry.detail.update(
                topic=stream.topic, developer_name=name, events=stream.delivered, commits=stream.commits
            )

    async def _publish(self, body: bytes, context: Any, call: _Call) -> pb.PublishResponse:
        request = self._publish_request(body)
        topic = self._topic(request.topic_name, call, empty="publish.topic.validation.empty")
        return self._publish_events(topic, request, call)

    async def _publish_stream(self, request: Any, context: Any, call: _Call) -> None:
        topic: TopicDefinition | None = None
        while True:
            try:
                body = await asyncio.wait_for(context.read(), self._org.knobs.publish_idle_seconds)
            except TimeoutError:
                raise refused(
                    "publish.stream.sweeper.timeout",
                    "DEADLINE_EXCEEDED",
                    "No publish request came in time. Closing the publish stream.",
                ) from None
            if body is grpc.aio.EOF:
                return
            message = self._publish_request(body)
            if topic is None:
                topic = self._topic(message.topic_name, call, empty="publish.topic.validation.empty")
            elif message.topic_name not in ("", topic.name):
                raise refused("publish.topic.mismatch", "INVALID_ARGUMENT", f"The topic must stay {topic.name}.")
            if self._org.sessions.check(call.token) is None:
                raise refused("service.auth.error", "UNAUTHENTICATED", "The session ended or was revoked.")
            await context.write(self._publish_events(topic, message, call))

    def _topic(self, name: str, call: _Call, *, empty: str = "topic.validation.empty") -> TopicDefinition:
        call.entry.detail["topic"] = name
        if not name.strip():
            raise refused(empty, "INVALID_ARGUMENT", "The topic name is empty.")
        topic = self._org.topics.get(name)
        if topic is None:
            raise topic_not_found(self._org, name)
        return topic

    def _publish_request(self, body: bytes) -> pb.PublishRequest:
        if len(body) > self._org.knobs.publish_request_bytes:
            raise CallEnded(
                code="",
                status="UNAVAILABLE",
                message="upstream connect error or disconnect/reset before headers. reset reason: remote reset",
            )
        try:
            return pb.PublishRequest.FromString(body)
        except DecodeError:
            raise CallEnded(code="", status="INTERNAL", message="Exception deserializing request!") from None

    def _publish_events(self, topic: TopicDefinition, request: pb.PublishRequest, call: _Call) -> pb.PublishResponse:
        if not topic.can_publish:
            raise refused("topic.meta.permission", "PERMISSION_DENIED", f"You cannot publish to {topic.name}.")
        if not request.events:
            raise refused("publish.event.count.invalid", "INVALID_ARGUMENT", "The request has no events.")
        errors = [self._publish_error(topic, event) for event in request.events]
        left = self._org.publications.left()
        for index, error in enumerate(errors):
            if error is None and left is not None:
                left -= 1
                if left < 0:
                    errors[index] = "LIMIT_EXCEEDED: the hourly event publishing limit of the org is exceeded"
        accepted = [
            BusEvent(topic.name, event.schema_id, event.payload, event.id or str(uuid.uuid4()))
            for event, error in zip(request.events, errors, strict=True)
            if error is None
        ]
        self._org.publications.use(len(accepted))
        replay_ids = iter(self._org.bus.publish(accepted) if accepted else ())
        results = [
            pb.PublishResult(correlation_key=event.id, error=pb.Error(code=pb.PUBLISH, msg=error))
            if error
            else pb.PublishResult(correlation_key=event.id, replay_id=next(replay_ids))
            for event, error in zip(request.events, errors, strict=True)
        ]
        call.entry.detail["events"] = call.entry.detail.get("events", 0) + len(accepted)
        return pb.PublishResponse(results=results, schema_id=self._org.topics.schema_id(topic), rpc_id=call.rpc_id)

    def _publish_error(self, topic: TopicDefinition, event: pb.ProducerEvent) -> str | None:
        """Return the error of an invalid event, ``None`` if it is valid. Older schemas of the topic are valid."""
        if len(event.payload) > self._org.knobs.event_bytes:
            return f"The event of {len(event.payload)} bytes exceeds {self._org.knobs.event_bytes} bytes."
        if self._org.schemas.name(event.schema_id) != topic.event_name:
            return f"The schema ID {event.schema_id!r} is not one of {topic.name}."
        try:
            decode(self._org.schemas.parsed(event.schema_id), event.payload)
        except ValueError as error:
            return str(error)
        return None


class _Call:
    """One call: its id, its entry in the request log, and its access token."""

    def __init__(self, org: Org, rpc: str) -> None:
        self._org = org
        self.rpc_id = str(uuid.uuid4())
        self.entry = org.request_log.begin("grpc", rpc, rpc_id=self.rpc_id)
        self.token = ""

    def authenticate(self, context: Any) -> None:
        """Validate the metadata of the call.

        :raises CallEnded: if the metadata are empty or malformed, or the token is not valid.
        """
        metadata = dict(context.invocation_metadata() or ())
        self.token = str(metadata.get("accesstoken", ""))
        tenant = str(metadata.get("tenantid", ""))
        if not self.token.strip() or not self._is_instance_url(str(metadata.get("instanceurl", ""))):
            raise refused("service.auth.headers.invalid", "UNAUTHENTICATED", "accesstoken or instanceurl is invalid.")
        if tenant not in (self._org.org_id, self._org.org_id[:15]):
            raise refused("service.auth.headers.invalid", "UNAUTHENTICATED", "tenantid is not the ID of this org.")
        if self._org.sessions.check(self.token) is None:
            raise refused("service.auth.error", "UNAUTHENTICATED", "The access token is invalid or expired.")

    def _is_instance_url(self, text: str) -> bool:
        """Return whether ``text`` has the scheme and host of this org, or of a local proxy (a loopback address)."""
        parts = urlsplit(text)
        hosts = {urlsplit(url).hostname for url in (self._org.instance_url, self._org.https_instance_url)}
        is_url = parts.scheme in ("http", "https") and parts.path in ("", "/") and not parts.query
        return is_url and parts.hostname in {*hosts, "localhost", "127.0.0.1", "::1"}
