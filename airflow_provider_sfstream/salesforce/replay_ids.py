"""Replay IDs: opaque bytes, stored unchanged, compared only for equality.

On the Pub/Sub API replay IDs were observed to have ten bytes (an eight-byte big-endian counter and two zero bytes);
some clients store only the first eight, which Salesforce accepts too. This package does not compute with them. The
Streaming API has integers; they are stored as eight big-endian bytes.
"""

from __future__ import annotations

from contextlib import suppress

from airflow_provider_sfstream.exceptions import InvalidReplayIdError
from airflow_provider_sfstream.salesforce.events import StartFrom

KNOWN_LENGTHS = (8, 10)
"""Lengths of the replay IDs that were observed, in bytes."""
LONGEST = 64
"""Maximum of bytes, far above the observed 10; a longer value is no replay ID."""


def check_replay_id(subject: object, replay_id: bytes, consequence: str) -> None:
    """Raise :class:`InvalidReplayIdError` if ``replay_id`` is empty or too long.

    :param subject: beginning of the message: a topic or a stream. ``consequence``: its end, the state of the data.
    """
    if not 0 < len(replay_id) <= LONGEST:
        raise InvalidReplayIdError(
            f"{subject}: invalid replay ID: expected 1 to {LONGEST} bytes, got {len(replay_id)}. {consequence}"
        )


def replay_id_to_text(replay_id: bytes | None) -> str | None:
    """Return the lower-case hex text of a replay ID, as recorded in manifests and stores; ``None`` without one."""
    return None if replay_id is None else replay_id.hex()


def start_from_text(start_from: str) -> StartFrom | bytes:
    """Return the value of a ``start_from`` argument: a preset, or a replay ID from hex text."""
    return StartFrom(start_from) if start_from in ("earliest", "latest") else replay_id_from_text(start_from)


def replay_id_from_text(replay_id: str) -> bytes:
    """Return the bytes of a replay ID in hex text (an optional ``0x`` is accepted)."""
    digits = replay_id.strip().removeprefix("0x").removeprefix("0X")
    if 0 < len(digits) <= 2 * LONGEST and not any(character.isspace() for character in digits):
        with suppress(ValueError):
            return bytes.fromhex(digits)
    raise InvalidReplayIdError(
        f"{replay_id!r} is not a replay ID. Write it as hex digits, two for each byte, as in manifests and the "
        "replay store, for example '00000000005a94f00000'. Nothing was changed."
    )


def replay_id_from_integer(number: int) -> bytes:
    """Return the bytes of a replay ID of the Streaming API: a number, not negative as the replay options -1 and -2
    are."""
    if type(number) is not int or not 0 <= number < 2**64:
        raise InvalidReplayIdError(f"{number!r} is not a replay ID of the Streaming API. Nothing was read or moved.")
    return number.to_bytes(8, "big")


def replay_id_to_integer(replay_id: bytes) -> int:
    """Return the number of ``replay_id`` for the Streaming API. Those of the other API have another length."""
    if len(replay_id) != 8:
        raise InvalidReplayIdError(
            f"Replay ID {replay_id.hex()} is not from the Streaming API: those have eight bytes (16 hex digits). "
            "Replay IDs of the Pub/Sub API cannot be used there. Nothing was read or moved."
        )
    return int.from_bytes(replay_id, "big")


def is_later(replay_id: bytes, other: bytes) -> bool:
    """Return whether a replay ID seems to lie after another one; ``False`` for an unknown form.

    Replay IDs are opaque: the result proves nothing. It can select the subscription to wait for, or prevent a claim.
    """
    return len(replay_id) == len(other) and len(replay_id) in KNOWN_LENGTHS and replay_id > other
