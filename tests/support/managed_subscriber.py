"""Minimal managed subscriber for tests: it sends single requests and returns the responses."""

from __future__ import annotations

import queue
from typing import Any

import grpc

from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as pb
from tests.support.localorg import LocalOrg


class ManagedSubscriber:
    """A ManagedSubscribe call; ``seconds`` is the deadline of the whole call."""

    def __init__(self, org: LocalOrg, *, token: str | None = None, stub: Any = None, seconds: float = 120.0) -> None:
        self._requests: queue.SimpleQueue[pb.ManagedFetchRequest | None] = queue.SimpleQueue()
        self._commits = 0
        self.call: Any = (stub or org.stub()).ManagedSubscribe(
            iter(self._requests.get, None), metadata=org.metadata(token), timeout=seconds
        )

    def send(self, **fields: Any) -> ManagedSubscriber:
        """Send a request with these fields."""
        self._requests.put(pb.ManagedFetchRequest(**fields))
        return self

    def fetch(self, count: int, name: str = "") -> ManagedSubscriber:
        """Request ``count`` events. The first request needs the developer name of the subscription."""
        return self.send(developer_name=name, num_requested=count)

    def commit(self, replay_id: bytes, *, fetch: int = 0) -> str:
        """Send a commit, and return its request ID."""
        self._commits += 1
        request_id = f"commit-{self._commits}"
        request = pb.CommitReplayRequest(commit_request_id=request_id, replay_id=replay_id)
        self.send(num_requested=fetch, commit_replay_id_request=request)
        return request_id

    def next(self) -> pb.ManagedFetchResponse:
        """Return the next response."""
        response: pb.ManagedFetchResponse = next(self.call)
        return response

    def events(self, count: int) -> list[pb.ConsumerEvent]:
        """Return the next ``count`` events."""
        events: list[pb.ConsumerEvent] = []
        while len(events) < count:
            events += self.next().events
        return events

    def answer(self, request_id: str) -> pb.CommitReplayResponse:
        """Return the response to a commit; skip other responses."""
        for response in self.call:
            if response.HasField("commit_response") and response.commit_response.commit_request_id == request_id:
                answer: pb.CommitReplayResponse = response.commit_response
                return answer
        raise AssertionError(f"the stream ended without a response to {request_id}")

    def committed(self, replay_id: bytes) -> pb.CommitReplayResponse:
        """Commit a replay ID, and return the response; fail if it is an error."""
        response = self.answer(self.commit(replay_id))
        assert not response.HasField("error"), response
        return response

    def error(self) -> grpc.RpcError:
        """Return the error that ends the stream; skip the responses before it."""
        try:
            for _ in self.call:
                pass
        except grpc.RpcError as error:
            return error
        raise AssertionError("the stream ended without an error")

    def half_close(self) -> ManagedSubscriber:
        """Close the request stream: the server expects no more requests."""
        self._requests.put(None)
        return self

    def cancel(self) -> None:
        """Cancel the call."""
        self.half_close()
        self.call.cancel()

    def __enter__(self) -> ManagedSubscriber:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()
