"""ManagedSubscribe call: the org stores the position of the subscription, and the client's commits advance it."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from sfstream_localorg.bus.event_bus import ReplayIdCorruptedError
from sfstream_localorg.managed.commits import (
    INVALID,
    MISSING,
    NOT_DELIVERED,
    OLDER,
    Acknowledgements,
    CommitResult,
)
from sfstream_localorg.managed.faults import (
    LOSE_ACKNOWLEDGEMENT,
    LOSE_COMMIT,
    REFUSE_COMMIT,
    CommitFault,
)
from sfstream_localorg.managed.requests import checked_id, first_request, invalid, stopped
from sfstream_localorg.managed.settings import EARLIEST, STOP, ManagedSettings
from sfstream_localorg.managed.subscriptions import ManagedRecord
from sfstream_localorg.pubsub import pubsub_api_pb2 as pb
from sfstream_localorg.pubsub.subscription import LIMIT_EXCEEDED, Subscription
from sfstream_localorg.streams.endings import CallEnded, refused

if TYPE_CHECKING:
    from sfstream_localorg.org import Org


class ManagedStream(Subscription):
    """Server side of one managed stream. ``record`` is its subscription, ``None`` before the first request."""

    def __init__(self, org: Org, context: Any, rpc_id: str, token: str) -> None:
        super().__init__(org, context, rpc_id, token)
        self.record: ManagedRecord | None = None
        self.commits = 0
        self._start_position = 0
        self._confirmed: set[int] = set()
        self._acknowledgements = Acknowledgements()
        self._last_commit = time.monotonic()
        self._vanished = False

    async def serve(self) -> None:
        """Serve the stream until the client ends it.

        :raises CallEnded: if the stream ends for another reason.
        """
        try:
            await super().serve()
        finally:
            if self.record is not None:
                self._org.managed.slots.leave(self.record.id, self)

    def _start(self, request: pb.ManagedFetchRequest) -> None:
        record = first_request(self._org, request)
        settings = self._org.managed.visible(record)
        if settings is None or settings.state == STOP:
            raise stopped(record)
        self._add_credit(request)
        if not self._org.managed.slots.take(record.id, self):
            raise refused(
                "managed.subscription.already.active",
                "ALREADY_EXISTS",
                f"The managed subscription {record.developer_name} is already active on another stream.",
            )
        self.record = record
        self.topic = settings.topic_name
        self._position = self._start_position = self._resume(record, settings)
        if self._org.deliveries.left() == 0:
            raise refused(*LIMIT_EXCEEDED)

    def _resume(self, record: ManagedRecord, settings: ManagedSettings) -> int:
        """Return the start position: the committed position if it is valid, else that of the replay preset."""
        preset = settings.default_replay
        if record.committed is not None:
            try:
                return self._org.bus.position_of(self.topic, self._org.bus.replay_id(record.committed))
            except ReplayIdCorruptedError:
                preset = settings.error_recovery_replay
        return self._org.bus.earliest(self.topic) if preset == EARLIEST else self._org.bus.tip()

    def _has_backlog(self, first: Any) -> bool:
        record = self._active_record()
        return record.committed is not None or record.settings.default_replay == EARLIEST

    def _accept(self, request: pb.ManagedFetchRequest) -> None:
        if self._vanished:
            return
        record = self._active_record()
        same = (request.developer_name or record.developer_name, checked_id(request.subscription_id or record.id))
        if same != (record.developer_name, record.id) or request.auth_refresh:
            raise invalid("fetch.request.invalid", "The request names another managed subscription.")
        self._add_credit(request)
        if request.HasField("commit_replay_id_request"):
            self._take_commit(record, request.commit_replay_id_request)

    def _add_credit(self, request: pb.ManagedFetchRequest) -> None:
        least = 0 if request.HasField("commit_replay_id_request") else 1
        if request.num_requested < least:
            message = "The number of requested events must be greater than zero, or zero with a commit request."
            raise invalid("fetch.request.events.invalid", message)
        self._add_pending(request.num_requested)

    def _take_commit(self, record: ManagedRecord, request: pb.CommitReplayRequest) -> None:
        self.commits += 1
        self._last_commit = time.monotonic()
        fault = self._org.faults.managed.take(record.developer_name)
        if fault is not None and fault.name == LOSE_COMMIT:
            self._end_with(fault)
            return
        error = fault.error if fault is not None and fault.name == REFUSE_COMMIT else self._commit(record, request)
        if fault is not None and fault.name == LOSE_ACKNOWLEDGEMENT:
            self._end_with(fault)
            return
        result = CommitResult(request.commit_request_id, request.replay_id, int(self._org.now() * 1000), error)
        self._acknowledgements.add(result, self._last_commit)

    def _end_with(self, fault: CommitFault) -> None:
        if fault.ending is not None:
            self.end(fault.ending)

    def _commit(self, record: ManagedRecord, request: pb.CommitReplayRequest) -> str | None:
        """Store the position of a commit request and return ``None``, or return the kind of error."""
        if not request.replay_id:
            return MISSING
        try:
            position = self._org.bus.position_of(self.topic, request.replay_id)
        except ReplayIdCorruptedError:
            return INVALID
        if record.committed is not None and position < record.committed:
            return OLDER
        if position != record.committed:
            if not self._is_delivered(position):
                return NOT_DELIVERED
            self._org.managed.commit(record, position)
        return None

    def _is_delivered(self, position: int) -> bool:
        if position in self._confirmed:
            return True
        is_past = self._start_position < position <= self._position
        return is_past and self._org.bus.read(self.topic, position - 1, 1, 0)[0] == position

    def _check_ending(self) -> None:
        super()._check_ending()
        record = self._active_record()
        settings = self._org.managed.visible(record)
        if settings is None:
            message = f"The managed subscription {record.developer_name} was deleted."
            raise refused("managed.subscription.config.deleted", "NOT_FOUND", message)
        if settings.state == STOP:
            raise stopped(record)
        if time.monotonic() >= self._commit_deadline():
            seconds = f"{self._org.knobs.managed_commit_seconds:g}"
            message = f"No CommitReplayRequests sent in the last {seconds} seconds. Closing managed subscription."
            raise CallEnded(code="", status="DEADLINE_EXCEEDED", message=message)
        if self._vanished and time.monotonic() >= self._slot_freed_at():
            raise CallEnded(code="", status="UNAVAILABLE", message="keepalive watchdog timeout")

    def serves(self, developer_name: str) -> bool:
        """Return whether the subscription of this stream has this developer name."""
        return self.record is not None and self.record.developer_name == developer_name

    def vanish(self) -> None:
        """Simulate an unnoticed loss of the connection: the stream sends nothing more, and the slot stays occupied."""
        self._vanished = self._org.managed.slots.vanish(self._active_record().id)
        self.wake.set()

    def _slot_freed_at(self) -> float:
        return self._org.managed.slots.freed_at(self._active_record().id, self) or 0.0

    def _commit_deadline(self) -> float:
        return self._last_commit + self._org.knobs.managed_commit_seconds

    def _is_silenced(self) -> bool:
        return self._vanished or self._org.faults.is_silent(self.topic)

    def _next_frames(self) -> list[bytes]:
        return [] if self._vanished else super()._next_frames()

    def _acknowledge_at(self) -> float:
        """Return the time of the next acknowledgement on the monotonic clock; infinite if none is pending."""
        knobs = self._org.knobs
        due_at = self._acknowledgements.due_at(knobs.managed_ack_every, knobs.managed_ack_seconds)
        if due_at is None or self._is_silenced():
            return math.inf
        return 0.0 if self._half_closed else due_at

    def _has_extra_fields(self) -> bool:
        return self._acknowledge_at() <= time.monotonic()

    def _extra_fields(self) -> bytes:
        if not self._has_extra_fields():
            return b""
        response = self._acknowledgements.take().as_response()
        return pb.ManagedFetchResponse(commit_response=response).SerializeToString()

    def _is_done(self) -> bool:
        return self._half_closed and not self._vanished

    async def _respond(self, frames: list[bytes]) -> None:
        if not frames:
            self._confirmed.add(self._position)
        await super()._respond(frames)

    def _deadline(self) -> float:
        if self._vanished:
            return min(self._slot_freed_at(), self._commit_deadline())
        return min(super()._deadline(), self._commit_deadline(), self._acknowledge_at(), self._change_visible_at())

    def _change_visible_at(self) -> float:
        """Return the time on the monotonic clock when a change of the subscription takes effect; infinite if none."""
        seconds = self._org.managed.seconds_until_visible(self._active_record())
        return time.monotonic() + seconds if seconds > 0 else math.inf

    async def _time_out(self) -> None:
        if not self._vanished and time.monotonic() >= super()._deadline():
            await super()._time_out()

    def _active_record(self) -> ManagedRecord:
        if self.record is None:
            raise RuntimeError("the first request has not come")
        return self.record
