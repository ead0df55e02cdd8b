"""What shall go wrong, and how often. Decided here, carried out where calls are served."""

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
    """End each stream of ``topic`` (every topic if ``None``) after ``every`` events, ``times`` times (or always)."""

    every: int
    ending: CallEnded
    topic: str | None = None
    times: int | None = None


@dataclass
class CallFailure:
    """End the next ``times`` calls of an RPC as they arrive."""

    rpc: str
    times: int
    ending: CallEnded


@dataclass
class Faults:
    """All faults in force."""

    drops: list[StreamDrop] = field(default_factory=list)
    failures: list[CallFailure] = field(default_factory=list)
    silent: set[str] = field(default_factory=set)
    cometd: CometdFaults = field(default_factory=CometdFaults)
    managed: ManagedFaults = field(default_factory=ManagedFaults)
    schemas: SchemaFaults = field(default_factory=SchemaFaults)
    delivery: DeliveryFaults = field(default_factory=DeliveryFaults)

    def add_drop(self, drop: StreamDrop) -> None:
        """Drop streams from now on.

        :raises ValueError: if a count is not positive.
        """
        if drop.every < 1 or (drop.times is not None and drop.times < 1):
            raise ValueError("'every' and 'times' must be positive")
        self.drops.append(drop)

    def add_failure(self, failure: CallFailure) -> None:
        """Fail calls from now on.

        :raises ValueError: if the RPC is unknown or the count is not positive.
        """
        if failure.rpc not in RPCS or failure.times < 1:
            raise ValueError(f"'rpc' must be one of {', '.join(RPCS)} and 'times' positive")
        self.failures.append(failure)

    def check_call(self, rpc: str) -> None:
        """:raises CallEnded: if a call of this RPC shall fail now."""
        for failure in self.failures:
            if failure.rpc == rpc:
                failure.times -= 1
                if not failure.times:
                    self.failures.remove(failure)
                raise replace(failure.ending)

    def events_until_drop(self, topic: str, delivered: int) -> int | None:
        """Return how many more events a stream that has had ``delivered`` may have; ``None`` for no end."""
        left = [drop.every - delivered for drop in self.drops if drop.topic in (None, topic)]
        return max(0, min(left)) if left else None

    def take_drop(self, topic: str, delivered: int) -> CallEnded:
        """Return how a stream that reached its number of events ends, and count it."""
        drop = next(d for d in self.drops if d.topic in (None, topic) and d.every <= delivered)
        if drop.times is not None:
            drop.times -= 1
            if not drop.times:
                self.drops.remove(drop)
        return replace(drop.ending)

    def is_silent(self, topic: str) -> bool:
        """Return whether streams of this topic stay open and say nothing."""
        return "*" in self.silent or topic in self.silent

    def clear(self) -> None:
        """Let everything work again."""
        self.drops.clear()
        self.failures.clear()
        self.silent.clear()
        self.cometd.clear()
        self.managed.clear()
        self.schemas.clear()
        self.delivery.clear()

    def as_dict(self) -> dict[str, Any]:
        """Return the faults in force, JSON-able."""
        return {
            "drops": [asdict(drop) for drop in self.drops],
            "failures": [asdict(failure) for failure in self.failures],
            "silent": sorted(self.silent),
            "cometd": self.cometd.as_list(),
            "managed": self.managed.as_list(),
            "schemas": self.schemas.as_dict(),
            **self.delivery.as_dict(),
        }
