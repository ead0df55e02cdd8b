"""Commits of a managed subscription: what is wrong with one, and how they are acknowledged. Pure.

Source: "ManagedSubscribe RPC Method" of the Pub/Sub API guide, and the comments of its proto file. The texts of commit
errors are not documented; the kinds are.
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
"""The text of each kind of commit error."""


@dataclass(frozen=True)
class CommitResult:
    """What came of a commit request. ``process_time`` is in milliseconds since the epoch; ``error`` is a kind."""

    request_id: str
    replay_id: bytes
    process_time: int
    error: str | None = None

    def as_response(self) -> pb.CommitReplayResponse:
        """Return the answer to the request."""
        error = None if self.error is None else pb.Error(code=pb.COMMIT, msg=COMMIT_ERRORS[self.error])
        return pb.CommitReplayResponse(
            commit_request_id=self.request_id, replay_id=self.replay_id, error=error, process_time=self.process_time
        )


@dataclass
class _Answer:
    """An answer to send: to the last of ``commits`` commits that it acknowledges, the first of which came at ``at``."""

    result: CommitResult
    at: float
    commits: int = 1


class Acknowledgements:
    """Answers that are owed. One acknowledges all commits before it, back to the last that failed."""

    def __init__(self) -> None:
        self._answers: deque[_Answer] = deque()

    def __bool__(self) -> bool:
        return bool(self._answers)

    def add(self, result: CommitResult, at: float) -> None:
        """Owe an answer.

        :param at: seconds, on the clock that :meth:`due_at` is asked about.
        """
        last = self._answers[-1] if self._answers else None
        if last is not None and last.result.error is None and result.error is None:
            last.result, last.commits = result, last.commits + 1
        else:
            self._answers.append(_Answer(result, at))

    def due_at(self, every: int, seconds: float) -> float | None:
        """Return when the next answer is to be sent; ``None`` if none is owed.

        :param every: send a success at once when it acknowledges this many commits,
        :param seconds: or when the first of them has waited this long. A failure never waits.
        """
        if not self._answers:
            return None
        first = self._answers[0]
        waits = len(self._answers) == 1 and first.result.error is None and first.commits < every
        return first.at + seconds if waits else first.at

    def take(self) -> CommitResult:
        """Return the next answer; it is owed no more."""
        return self._answers.popleft().result
