"""A managed event subscription of the bus in memory: its record and a simulated ``ManagedStream``."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from airflow_provider_sfstream.exceptions import (
    CommitError,
    ReplayIdLostError,
    ServiceUnavailableError,
    SubscriptionBusyError,
    SubscriptionStoppedError,
)
from airflow_provider_sfstream.salesforce.events import EventBatch, StartFrom
from tests.support.claims_bus import place_of
from tests.support.claims_server import Server

if TYPE_CHECKING:
    from tests.support.claims_source import SimulatedSource


@dataclass
class ManagedRecord:
    """Record of a managed event subscription, as Salesforce stores it.

    ``committed`` is ``None`` until a commit. Salesforce also removes it when the record is deleted and created again,
    or stopped and started. ``records`` counts the created records.
    """

    default_replay: StartFrom
    error_recovery: StartFrom
    committed: bytes | None = None
    is_stopped: bool = False
    records: int = 1
    holder: SimulatedManagedStream | None = None

    @property
    def record_id(self) -> str:
        """The ID of the record, which changes when it is created again."""
        return f"18x{self.records:015d}"


@dataclass
class SimulatedManagedStream:
    """Simulated ManagedSubscribe call with the interface of the client's ``ManagedStream``."""

    client: SimulatedSource
    record: ManagedRecord
    limit: int | None
    idle_timeout: float
    _server: Server | None = None
    _responses: Generator[EventBatch | None, None, None] | None = None
    _delivered: set[bytes] = field(default_factory=set)
    _acknowledged: bytes | None = None
    _is_open: bool = True
    _fetches: bool = True

    @property
    def is_open(self) -> bool:
        """True until the stream ends."""
        return self._is_open

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> EventBatch | None:
        if not self._is_open:
            raise ServiceUnavailableError("The managed stream has ended.")
        self._responses = self._responses or self._open()
        try:
            try:
                response = next(self._responses)
            except StopIteration:
                if self._server is None or self._server.left == 0:
                    raise
                self._responses = self.client.batches(self._server, self.idle_timeout)
                response = next(self._responses)
        except StopIteration:
            raise
        except BaseException:
            self.close()
            raise
        if response is not None:
            self._delivered.update(response.replay_ids or [response.latest_replay_id])
        return response

    def _open(self) -> Generator[EventBatch | None, None, None]:
        client, record, bus = self.client, self.record, self.client.bus
        server_received_at = client.time_received(bus.time.seconds + client.delay())
        yield from client.silence(server_received_at, self.idle_timeout)
        if record.is_stopped:
            raise SubscriptionStoppedError("The managed subscription is in state STOP.")
        if record.holder is not None:
            raise SubscriptionBusyError("The managed subscription is already active.")
        record.holder = self
        start = record.default_replay if record.committed is None else record.committed
        limit = self.limit if self._fetches else 0
        try:
            self._server = client.server(start, server_received_at, limit, None)
        except ReplayIdLostError:
            self._server = client.server(record.error_recovery, server_received_at, limit, None)
        yield from client.batches(self._server, self.idle_timeout)

    def allow(self, count: int) -> None:
        """Raise the limit by ``count`` events."""
        if self._fetches and self._server is not None and self._server.left is not None:
            self._server.left += count

    def stop_fetching(self) -> None:
        """Request no more events."""
        self._fetches = False
        if self._server is not None:
            self._server.left = 0

    def commit(self, replay_id: bytes) -> None:
        """Commit a replay ID. The simulated network may lose the commit or its acknowledgement."""
        if not self._is_open:
            raise ServiceUnavailableError("The managed stream has ended.")
        record, random = self.record, self.client.random
        if replay_id not in self._delivered:
            raise CommitError(f"replay ID {replay_id.hex()} was not delivered")
        committed = None if record.committed is None else place_of(record.committed)
        if committed is not None and committed > place_of(replay_id):
            raise CommitError(f"replay ID {replay_id.hex()} is older than the committed one")
        is_lost = random.random() < self.client.weather.drops / 3
        if not is_lost or random.random() < 0.5:
            record.committed = replay_id
        if not is_lost:
            self._acknowledged = replay_id

    def wait_for_commit(self, replay_id: bytes, timeout: float) -> None:
        """Wait for the acknowledgement of a commit."""
        if self._acknowledged == replay_id:
            self.client.bus.time.sleep(2 * self.client.delay())
            return
        self.client.bus.time.sleep(timeout)
        raise ServiceUnavailableError("Salesforce did not acknowledge the commit.")

    def close(self) -> None:
        """End the stream."""
        self._is_open = False
        if self.record.holder is self:
            self.record.holder = None
        if self._responses is not None:
            self._responses.close()
