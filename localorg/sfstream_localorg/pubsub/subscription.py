"""Subscribe call: flow control, delivery of events, and the end of the stream."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

import grpc

from sfstream_localorg.bus.event_bus import ReplayIdCorruptedError
from sfstream_localorg.pubsub import pubsub_api_pb2 as pb
from sfstream_localorg.pubsub.backlog import Backlog
from sfstream_localorg.streams.endings import CallEnded, refused

if TYPE_CHECKING:
    from sfstream_localorg.org import Org

LIMIT_EXCEEDED = (
    "subscription.limit.exceeded",
    "RESOURCE_EXHAUSTED",
    "You have exceeded the event delivery limit for your org.",
)


class Subscription:
    """Server side of one stream. It sends requested events as soon as they are available, in the order of the bus."""

    def __init__(self, org: Org, context: Any, rpc_id: str, token: str) -> None:
        self._org = org
        self._context = context
        self._rpc_id = rpc_id
        self._token = token
        self._position = 0
        self._backlog: Backlog | None = None
        self._pending = 0
        self._half_closed = False
        self._ending: CallEnded | None = None
        self._last_response = time.monotonic()
        self.wake = asyncio.Event()
        self.topic = ""
        self.delivered = 0

    def end(self, ending: CallEnded) -> None:
        """End the stream, from another task."""
        self._ending = ending
        self.wake.set()

    async def serve(self) -> None:
        """Serve the stream until the client ends it.

        :raises CallEnded: if the stream ends for another reason.
        """
        first = await self._context.read()
        if first is grpc.aio.EOF:
            return
        self._start(first)
        self._backlog = Backlog(self._org, self.topic, seeks=self._has_backlog(first))
        reader = asyncio.create_task(self._read_requests())
        self._org.subscriptions.add(self)
        try:
            with self._org.bus.listen(self.topic, self.wake):
                await self._write_responses()
        finally:
            self._org.subscriptions.discard(self)
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader

    def _start(self, request: Any) -> None:
        topic = self._org.topics.get(request.topic_name)
        if not request.topic_name.strip():
            raise refused("topic.validation.empty", "INVALID_ARGUMENT", "The topic name is empty.")
        if topic is None:
            raise topic_not_found(self._org, request.topic_name)
        self.topic = topic.name
        self._add_credit(request)
        if request.replay_preset == pb.CUSTOM:
            self._position = self._resume_position(request.replay_id)
        elif request.replay_preset == pb.EARLIEST:
            self._position = self._org.bus.earliest(self.topic)
        else:
            self._position = self._org.bus.tip()
        if self._org.deliveries.left() == 0:
            raise refused(*LIMIT_EXCEEDED)

    def _has_backlog(self, first: Any) -> bool:
        """Return whether the stream starts at an earlier position than the end."""
        return bool(first.replay_preset != pb.LATEST)

    def _resume_position(self, replay_id: bytes) -> int:
        if not replay_id:
            raise refused(
                "subscription.fetch.replayid.validation.failed",
                "INVALID_ARGUMENT",
                "The Replay ID validation failed. A replay ID is required with the replay preset CUSTOM.",
            )
        try:
            return self._org.bus.position_of(self.topic, replay_id)
        except ReplayIdCorruptedError:
            raise refused(
                "subscription.fetch.replayid.corrupted",
                "INVALID_ARGUMENT",
                "The Replay ID validation failed. Ensure that the Replay ID is valid.",
            ) from None

    async def _read_requests(self) -> None:
        try:
            while (request := await self._context.read()) is not grpc.aio.EOF:
                self._accept(request)
                self.wake.set()
            self._half_closed = True
            self.wake.set()
        except CallEnded as ending:
            self.end(ending)

    def _accept(self, request: Any) -> None:
        """Process a request after the first one.

        :raises CallEnded: if the request is invalid, which ends the stream.
        """
        if request.topic_name and request.topic_name != self.topic:
            raise refused(
                "subscription.fetch.topic.mismatch",
                "INVALID_ARGUMENT",
                f"The topic name must stay {self.topic} for the whole stream.",
            )
        self._add_credit(request)

    def _add_credit(self, request: Any) -> None:
        if request.num_requested <= 0:
            raise refused(
                "subscription.fetch.requested.events.invalid",
                "INVALID_ARGUMENT",
                "The number of requested events must be greater than zero.",
            )
        self._add_pending(request.num_requested)

    def _add_pending(self, events: int) -> None:
        self._pending = min(self._org.knobs.credit_cap, self._pending + events)

    async def _write_responses(self) -> None:
        while True:
            self.wake.clear()
            self._check_ending()
            frames = self._next_frames()
            if frames or self._has_extra_fields():
                await self._respond(frames)
            elif self._is_done():
                return
            else:
                await self._wait()

    def _is_done(self) -> bool:
        return self._half_closed and not self._pending

    def _has_extra_fields(self) -> bool:
        """Return whether a response must be sent even without events."""
        return False

    def _extra_fields(self) -> bytes:
        """Return the serialised additional fields of the next response."""
        return b""

    def _check_ending(self) -> None:
        if self._ending is not None:
            raise self._ending
        if self._org.sessions.check(self._token) is None:
            raise refused("service.auth.error", "UNAUTHENTICATED", "The session ended or was revoked. Log in again.")
        if self._org.faults.events_until_drop(self.topic, self.delivered) == 0:
            raise self._org.faults.take_drop(self.topic, self.delivered)

    def _is_withheld(self) -> bool:
        """Return whether events are withheld, because the topic is stalled or the stream still seeks."""
        is_seeking = self._backlog is not None and self._backlog.is_seeking
        return is_seeking or self._org.faults.delivery.is_stalled(self.topic)

    def _next_frames(self) -> list[bytes]:
        if not self._pending or self._org.faults.is_silent(self.topic) or self._is_withheld():
            return []
        knobs = self._org.knobs
        until_drop = self._org.faults.events_until_drop(self.topic, self.delivered)
        quota = self._org.deliveries.left()
        bounds = [bound for bound in (self._pending, knobs.batch_events, until_drop, quota) if bound is not None]
        frames: list[bytes] = []
        while not frames:
            position, read = self._org.bus.read(self.topic, self._position, max(1, min(bounds)), knobs.response_bytes)
            # A channel may deliver one event as several with one replay ID; they are sent in one response.
            frames = self._org.channel_delivery.frames(self.topic, read)
            if frames and quota == 0:
                raise refused(*LIMIT_EXCEEDED)
            self._position = position
            if not read:
                break
        return self._org.faults.schemas.delivered(self.topic, frames)

    async def _respond(self, frames: list[bytes]) -> None:
        self._pending = max(0, self._pending - len(frames))
        self.delivered += len(frames)
        self._org.delivered(len(frames))
        rest = pb.FetchResponse(
            latest_replay_id=self._org.bus.replay_id(self._position),
            rpc_id=self._rpc_id,
            pending_num_requested=self._pending,
        )
        await self._context.write(b"".join((*frames, rest.SerializeToString(), self._extra_fields())))
        self._last_response = time.monotonic()

    async def _wait(self) -> None:
        """Wait for a wake-up; at the deadline, send an empty response or end the stream."""
        try:
            # Not wait_for: on Python 3.11 it loses a client's cancellation that arrives together with a wake-up.
            async with asyncio.timeout(max(0.0, self._deadline() - time.monotonic())):
                await self.wake.wait()
        except TimeoutError:
            if not self.wake.is_set():  # a wake-up at the deadline may mean events, which an empty response would skip
                await self._time_out()

    def _deadline(self) -> float:
        """Return the latest time to wait for a wake-up, on the monotonic clock."""
        knobs = self._org.knobs
        if not self._pending:
            return self._last_response + knobs.client_idle_seconds
        if self._backlog is not None and self._backlog.is_seeking:
            return self._last_response + self._backlog.seconds
        return self._last_response + knobs.keepalive_seconds

    async def _time_out(self) -> None:
        if not self._pending:
            raise CallEnded("reset" if self._org.knobs.client_idle_end == "reset" else "end")
        if self._org.faults.is_silent(self.topic):
            self._last_response = time.monotonic()
        elif self._backlog is not None and self._is_withheld():
            self._position = self._backlog.next_position(self._position)
            await self._respond([])
        else:
            self._position = max(self._position, self._org.bus.tip())
            await self._respond([])


def topic_not_found(org: Org, name: str) -> CallEnded:
    """Return the error for a topic that the org does not have."""
    return refused(
        "topic.not.found",
        "NOT_FOUND",
        f"Topic {name} was not found in {tenant_guid(org)}. Check the topic name and the org you are logged in to.",
    )


def tenant_guid(org: Org) -> str:
    """Return the tenant name of the org on the event bus."""
    return f"core/prod/{org.org_id}"
