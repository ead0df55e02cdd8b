"""Minimal Pub/Sub subscriber for tests: it sends single requests and returns the responses."""

from __future__ import annotations

import queue
from typing import Any

import grpc

from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as pb
from tests.support.localorg import LocalOrg

PREFIX = "sfdc.platform.eventbus.grpc."


class Subscriber:
    """A Subscribe call; ``seconds`` is the deadline of the whole call."""

    def __init__(self, org: LocalOrg, *, token: str | None = None, stub: Any = None, seconds: float = 120.0) -> None:
        self._requests: queue.SimpleQueue[pb.FetchRequest | None] = queue.SimpleQueue()
        self.call = (stub or org.stub()).Subscribe(
            iter(self._requests.get, None), metadata=org.metadata(token), timeout=seconds
        )

    def fetch(
        self, count: int, topic: str = "", *, after: bytes | None = None, preset: pb.ReplayPreset | None = None
    ) -> Subscriber:
        """Request ``count`` events after a replay ID or from a preset; default: from the earliest event."""
        chosen = preset if preset is not None else pb.EARLIEST if after is None else pb.CUSTOM
        self._requests.put(
            pb.FetchRequest(topic_name=topic, replay_preset=chosen, replay_id=after or b"", num_requested=count)
        )
        return self

    def half_close(self) -> Subscriber:
        """Close the request stream: the server expects no more requests."""
        self._requests.put(None)
        return self

    def next(self) -> pb.FetchResponse:
        """Return the next response."""
        return next(self.call)

    def events(self, count: int) -> list[pb.ConsumerEvent]:
        """Return the next ``count`` events; request as many further events as each response contained."""
        events: list[pb.ConsumerEvent] = []
        while len(events) < count:
            response = self.next()
            events += response.events
            if response.events and len(events) < count:
                self.fetch(len(response.events))
        return events

    def rest(self) -> list[pb.ConsumerEvent]:
        """Return all events until the stream ends without an error."""
        return [event for response in self.call for event in response.events]

    def error(self) -> grpc.RpcError:
        """Return the error that ends the stream; skip the responses before it."""
        try:
            self.rest()
        except grpc.RpcError as error:
            return error
        raise AssertionError("the stream ended without an error")

    def cancel(self) -> None:
        """Cancel the call."""
        self.half_close()
        self.call.cancel()

    def __enter__(self) -> Subscriber:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()


def error_code(error: Any) -> str | None:
    """Return the ``error-code`` trailer without its prefix, ``None`` if it is missing."""
    trailers = dict(error.trailing_metadata() or ())
    code = trailers.get("error-code")
    return None if code is None else str(code).removeprefix(PREFIX)
