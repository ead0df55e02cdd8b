"""All faults of the org. This package decides when a fault applies; the handlers of calls apply it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sfstream_localorg.cometd.faults import CometdFaults
from sfstream_localorg.managed.faults import ManagedFaults
from sfstream_localorg.streams.delivery_faults import DeliveryFaults
from sfstream_localorg.streams.endings import CallEnded
from sfstream_localorg.streams.schema_faults import SchemaFaults

RPCS = ("GetTopic", "GetSchema", "Publish", "PublishStream", "Subscribe", "ManagedSubscribe")


@dataclass
class StreamDrop:
    """End streams of ``topic`` (``None``: every topic) after ``every`` events, ``times`` times (``None``: always)."""

    every: int
    ending: CallEnded
    topic: str | None = None
    times: int | None = None


@dataclass
class CallFailure:
    """End the next ``times`` calls of an RPC on arrival."""

    rpc: str
    times: int
    ending: CallEnded


@dataclass
class Faults:
    """All active faults."""

    drops: list[StreamDrop] = field(default_factory=list)
    failures: list[CallFailure] = field(default_factory=list)
    silent: set[str] = field(default_factory=set)
    cometd: CometdFaults = field(default_factory=CometdFaults)
    managed: ManagedFaults = field(default_factory=ManagedFaults)
    schemas: SchemaFaults = field(default_factory=SchemaFaults)
    delivery: DeliveryFaults = field(default_factory=DeliveryFaults)

    def add_drop(self, drop: StreamDrop) -> None:
        """Add a fault that ends streams.

        :raises ValueError: if a count is not positive.
        """
        if drop.every < 1 or (drop.times is not None and drop.times < 1):
            raise ValueError("'every' and 'times' must be positive")
        self.drops.append(drop)

    def add_failure(self, failure: CallFailure) -> None:
        """Add a fault that fails calls.

        :raises ValueError: if the RPC is unknown or the count is not positive.
        """
        if failure.rpc not in RPCS or failure.times < 1:
            raise ValueError(f"'rpc' must be one of {', '.join(RPCS)} and 'times' positive")
        self.failures.append(failure)

    def check_call(self, rpc: str) -> None:
        """Apply the fault that fails calls.

        :raises CallEnded: if the fault applies to a call of this RPC.
        """
        for failure in self.failures:
            if failure.rpc == rpc:
                failure.times -= 1
                if not failure.times:
                    self.failures.remove(failure)
                raise replace(failure.ending)

    def events_until_drop(self, topic: str, delivered: int) -> int | None:
        """Return the remaining events of a stream after ``delivered`` events; ``None`` for no limit."""
        left = [drop.every - delivered for drop in self.drops if drop.topic in (None, topic)]
        return max(0, min(left)) if left else None

    def take_drop(self, topic: str, delivered: int) -> CallEnded:
        """Return the ending of a stream that has reached its number of events, and count it."""
        drop = next(d for d in self.drops if d.topic in (None, topic) and d.every <= delivered)
        if drop.times is not None:
            drop.times -= 1
            if not drop.times:
                self.drops.remove(drop)
        return replace(drop.ending)

    def is_silent(self, topic: str) -> bool:
        """Return whether streams of this topic stay open without sending responses."""
        return "*" in self.silent or topic in self.silent

    def clear(self) -> None:
        """Remove all faults."""
        self.drops.clear()
        self.failures.clear()
        self.silent.clear()
        self.cometd.clear()
        self.managed.clear()
        self.schemas.clear()
        self.delivery.clear()

    def as_dict(self) -> dict[str, Any]:
        """Return the active faults as JSON values."""
        return {
            "drops": [asdict(drop) for drop in self.drops],
            "failures": [asdict(failure) for failure in self.failures],
            "silent": sorted(self.silent),
            "cometd": self.cometd.as_list(),
            "managed": self.managed.as_list(),
            "schemas": self.schemas.as_dict(),
            **self.delivery.as_dict(),
        }
