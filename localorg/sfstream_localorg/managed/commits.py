"""Commits of a managed subscription: their errors and acknowledgements. Pure.

Source: "ManagedSubscribe RPC Method" of the Pub/Sub API guide, and the comments of its proto file. The kinds of commit
errors are documented, their texts are not.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from sfstream_localorg.pubsub import pubsub_api_pb2 as pb

MISSING = "missing"
INVALID = "invalid"
NOT_DELIVERED = "not_delivered"
OLDER = "older"
FAILED = "failed"
COMMIT_ERRORS: dict[str, str] = {
    MISSING: "The commit request has no Replay ID. Provide the Replay ID to commit.",
    INVALID: "The Replay ID to commit is invalid. It may be malformed or outside of the event retention window.",
    NOT_DELIVERED: "The Replay ID to commit has not been delivered to this subscription yet.",
    OLDER: "The Replay ID to commit is older than the last committed Replay ID.",
    FAILED: "The commit of the Replay ID failed. Try again.",
}
"""Texts of commit errors by kind."""


@dataclass(frozen=True)
class CommitResult:
    """Result of a commit request. ``process_time`` is in milliseconds since the epoch; ``error`` is a kind of error."""

    request_id: str
    replay_id: bytes
    process_time: int
    error: str | None = None

    def as_response(self) -> pb.CommitReplayResponse:
        """Return the response to the commit request."""
        error = None if self.error is None else pb.Error(code=pb.COMMIT, msg=COMMIT_ERRORS[self.error])
        return pb.CommitReplayResponse(
            commit_request_id=self.request_id, replay_id=self.replay_id, error=error, process_time=self.process_time
        )


@dataclass
class _Answer:
    """A pending acknowledgement. ``commits`` counts its commits; ``result`` is of the last, ``at`` of the first."""

    result: CommitResult
    at: float
    commits: int = 1


class Acknowledgements:
    """Queue of pending acknowledgements. One acknowledges all commits before it, back to the last failed one."""

    def __init__(self) -> None:
        self._answers: deque[_Answer] = deque()

    def __bool__(self) -> bool:
        return bool(self._answers)

    def add(self, result: CommitResult, at: float) -> None:
        """Add the result of a commit to the queue.

        :param at: arrival of the commit in seconds, on the same clock as the result of :meth:`due_at`.
        """
        last = self._answers[-1] if self._answers else None
        if last is not None and last.result.error is None and result.error is None:
            last.result, last.commits = result, last.commits + 1
        else:
            self._answers.append(_Answer(result, at))

    def due_at(self, every: int, seconds: float) -> float | None:
        """Return the time to send the next acknowledgement; ``None`` if the queue is empty.

        :param every: number of commits after which a success is sent without delay. A failure is never delayed.
        :param seconds: longest delay of a success, from the arrival of its first commit.
        """
        if not self._answers:
            return None
        first = self._answers[0]
        waits = len(self._answers) == 1 and first.result.error is None and first.commits < every
        return first.at + seconds if waits else first.at

    def take(self) -> CommitResult:
        """Remove the next acknowledgement from the queue and return it."""
        return self._answers.popleft().result
