"""Names of managed event subscriptions, and outcomes of the commits on their streams. Pure.

Source of the protocol facts: the Pub/Sub API guide, "ManagedSubscribe RPC Method", and the proto's comments.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, field

from airflow_provider_sfstream.exceptions import CommitError, CommitFailedError, ConfigurationError

_ID = re.compile(r"18x[A-Za-z0-9]{12}(?:[A-Za-z0-9]{3})?")
_DEVELOPER_NAME = re.compile(r"[A-Za-z](?:_?[A-Za-z0-9])*")
_LONGEST_NAME = 80
_STORED_COMMITS = 1_000


@dataclass(frozen=True)
class ManagedSubscription:
    """A ``ManagedEventSubscription`` of an org.

    :param text: 15 or 18 characters that begin with ``18x``: the ID of the record. Else its developer name: at most 80
        letters, digits and underscores, beginning with a letter, no underscore at the end or after another.
    :raises ConfigurationError: if it is neither. Nothing was contacted.
    """

    text: str

    def __post_init__(self) -> None:
        text = self.text if isinstance(self.text, str) else ""
        if not _ID.fullmatch(text) and not (_DEVELOPER_NAME.fullmatch(text) and len(text) <= _LONGEST_NAME):
            raise ConfigurationError(
                f"{self.text!r} does not name a managed event subscription. Use its developer name (at most "
                f"{_LONGEST_NAME} letters, digits and single underscores, beginning with a letter) or its ID (15 or 18 "
                "characters beginning with 18x). Nothing was contacted."
            )

    @property
    def subscription_id(self) -> str | None:
        """The ID of the record, if it is named by the ID."""
        return self.text if self.text.startswith("18") else None

    @property
    def developer_name(self) -> str | None:
        """The developer name, if it is named by that."""
        return None if self.text.startswith("18") else self.text

    @property
    def description(self) -> str:
        """The subscription as named at the beginning of a message."""
        return f"managed subscription {self.text}"

    def __str__(self) -> str:
        return self.text


_REFUSED = (
    *("no replay id", "missing", "empty", "required"),
    *("invalid", "malformed", "retention", "expired"),
    *("not delivered", "not been delivered", "older"),
)
"""Words in commit errors about the replay ID; the guide lists the cases, but neither codes nor exact texts."""


def commit_error_from(message: str, *, subscription: ManagedSubscription, replay_id: bytes) -> CommitError:
    """Return the error for a commit that Salesforce answered with an error, ready to raise.

    :class:`CommitError`: the replay ID is missing, invalid, out of retention, not delivered yet or older than the
        committed one; a retry fails too. :class:`CommitFailedError`: any other failure, which may be temporary.
    """
    text = " ".join(message.split())[:500]
    refused = any(part in text.lower() for part in _REFUSED)
    error = CommitError if refused else CommitFailedError
    remedy = (
        "Check for another consumer that commits to it, or for a change of the subscription in Salesforce."
        if refused
        else "Commit again. Until then, Salesforce delivers the events again."
    )
    return error(
        f"{subscription.description}: Salesforce did not commit replay ID {replay_id.hex()} ({text!r}). The "
        f"committed position did not change, and no event is lost. {remedy}"
    )


@dataclass
class _Commit:
    number: int
    replay_id: bytes
    error: CommitError | None = None


@dataclass
class Commits:
    """Commits that were sent on one stream, and the responses. Not safe for concurrent use.

    A response acknowledges its own commit and all commits sent before it (proto, ``CommitReplayResponse``). An error
    concerns its own commit only. The last 1,000 commits are stored.
    """

    subscription: ManagedSubscription
    acknowledged: bytes | None = field(default=None, init=False)
    """The last acknowledged replay ID."""
    _sent: dict[str, _Commit] = field(default_factory=dict, init=False)
    _number: int = field(default=0, init=False)
    _through: int = field(default=0, init=False)

    def sent(self, replay_id: bytes) -> str:
        """Record that a commit of ``replay_id`` is sent, and return its commit request ID."""
        request_id = str(uuid.uuid4())
        self._number += 1
        self._sent[request_id] = _Commit(self._number, replay_id)
        if len(self._sent) > _STORED_COMMITS:
            del self._sent[next(iter(self._sent))]
        return request_id

    def answered(self, request_id: str, error: str | None) -> CommitError | None:
        """Record the response to a commit; return its error, if any. A response to an unknown commit is ignored."""
        commit = self._sent.get(request_id)
        if commit is None:
            return None
        if error is not None:
            commit.error = commit_error_from(error, subscription=self.subscription, replay_id=commit.replay_id)
        elif commit.number > self._through:
            self._through, self.acknowledged = commit.number, commit.replay_id
        return commit.error

    def outcome(self, replay_id: bytes) -> bool:
        """Return whether the last commit of ``replay_id`` is acknowledged; ``False``: no response yet. Raise its error,
        if any."""
        # The last one: a keepalive commits the same replay ID again.
        commit = next((sent for sent in reversed(self._sent.values()) if sent.replay_id == replay_id), None)
        if commit is None:
            raise CommitError(
                f"{self.subscription.description}: replay ID {replay_id.hex()} was not committed on this "
                "stream. The committed position did not change."
            )
        if commit.error is not None:
            raise commit.error
        return commit.number <= self._through

    @property
    def unanswered(self) -> bool:
        """Return whether a response is outstanding."""
        return any(commit.number > self._through and commit.error is None for commit in self._sent.values())
