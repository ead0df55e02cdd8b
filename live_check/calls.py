"""Raw calls of the Pub/Sub API: refusals, and responses with their times."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass
from typing import Any

import grpc

from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as pb
from live_check.run import CALL_SECONDS, ProbeRun, now

PREFIX = "sfdc.platform.eventbus.grpc."
REQUESTS = {
    "Subscribe": pb.FetchRequest,
    "ManagedSubscribe": pb.ManagedFetchRequest,
    "PublishStream": pb.PublishRequest,
}


def refusal(run: ProbeRun, call: Any) -> dict[str, Any]:
    """Return the end of a call: status, error code without its usual prefix, names of the trailers, text."""
    trailers = dict(iter(call.trailing_metadata() or ()))
    code = trailers.get("error-code")
    text = code.decode("utf-8", "replace") if isinstance(code, bytes) else code
    return {
        "status": call.code().name,
        "error_code": None if text is None else text.removeprefix(PREFIX),
        "trailers": sorted(trailers),
        "message": run.org.redact(call.details() or ""),
    }


def asked(run: ProbeRun, rpc: str, request: Any, **metadata: str | None) -> dict[str, Any]:
    """Send a unary call with changed metadata and return its end."""
    try:
        run.rpc(rpc)(request, metadata=run.metadata(**metadata), timeout=CALL_SECONDS)
    except grpc.RpcError as error:
        return refusal(run, error)
    return {"status": "OK"}


@dataclass(frozen=True)
class Arrived:
    """A response, or the end of the stream, with the time of its arrival."""

    at: float
    response: Any = None
    end: dict[str, Any] | None = None


class Stream:
    """A call with a stream of requests. A thread reads each response immediately and stores it with its arrival time.

    :param metadata: changes to the usual metadata, as for :meth:`ProbeRun.metadata`.
    """

    def __init__(self, run: ProbeRun, rpc: str = "Subscribe", *, channel: Any = None, **metadata: str | None) -> None:
        self._run = run
        self._kind = REQUESTS[rpc]
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._arrived: queue.SimpleQueue[Arrived] = queue.SimpleQueue()
        self.metadata_at: float | None = None
        self.began = now()
        self._call = run.rpc(rpc, channel)(
            iter(self._requests.get, None), metadata=run.metadata(**metadata), timeout=3600.0
        )
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.half_close()
        self._call.cancel()

    def _read(self) -> None:
        try:
            self._call.initial_metadata()
            self.metadata_at = now()
            for response in self._call:
                self._arrived.put(Arrived(now(), response))
            self._arrived.put(Arrived(now(), end={"status": "OK"}))
        except grpc.RpcError:
            self._arrived.put(Arrived(now(), end=refusal(self._run, self._call)))
        except ValueError:  # the channel was closed during the call
            self._arrived.put(Arrived(now(), end={"status": "CANCELLED"}))

    def send(self, **fields: Any) -> Stream:
        """Send a request with these fields."""
        self._requests.put(self._kind(**fields))
        return self

    def half_close(self) -> None:
        """Send the end of the request stream."""
        self._requests.put(None)

    def next(self, seconds: float) -> Arrived | None:
        """Return the next response or the end, or ``None`` after a timeout. Delivered events count as spent."""
        try:
            arrived = self._arrived.get(timeout=seconds)
        except queue.Empty:
            return None
        self._run.spend(len(getattr(arrived.response, "events", ())))
        return arrived

    def events(self, count: int, seconds: float) -> list[Any]:
        """Return received events until there are ``count``, the stream ends, or the time is over."""
        events: list[Any] = []
        until = now() + seconds
        while len(events) < count:
            arrived = self.next(max(0.0, until - now()))
            if arrived is None or arrived.end is not None:
                break
            events += arrived.response.events
        return events

    def end(self, seconds: float) -> dict[str, Any]:
        """Return the end of the stream, and whether responses preceded it; skip these responses."""
        until = now() + seconds
        responses = 0
        while True:
            arrived = self.next(max(0.0, until - now()))
            if arrived is None:
                return {"status": "open, after responses" if responses else "open, without a response"}
            if arrived.end is not None:
                return arrived.end
            responses += 1
