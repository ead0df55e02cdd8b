"""Documents of the index of a chain: stretches of live windows, each with bounds of their times. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from airflow_provider_sfstream.exceptions import SalesforceStreamError
from airflow_provider_sfstream.landing.window_bounds import Bounds
from airflow_provider_sfstream.salesforce.streams import Stream

FORMAT, VERSION = "sfstream-window-index", 1

_BITS = 3
"""One window in two to the power of this has level 1 or more, one in as many of these level 2 or more, and so on."""
_HIGHEST_LEVEL = 8


@dataclass(frozen=True)
class Part:
    """A part of a stretch, from the window ``newest`` back to the next part."""

    newest: str
    bounds: Bounds


@dataclass(frozen=True)
class Stretch:
    """A stretch of the chain of live windows, newest first. ``before``: the window before it, ``None`` at the first."""

    stream: Stream
    level: int
    parts: tuple[Part, ...]
    before: str | None

    @property
    def newest(self) -> str:
        """The window that the stretch begins at."""
        return self.parts[0].newest

    @property
    def bounds(self) -> Bounds:
        """Bounds around all of its windows."""
        return Bounds.around(part.bounds for part in self.parts)

    def to_json(self) -> str:
        """Return the document, one stable form for equal stretches."""
        content = {
            "format": FORMAT,
            "version": VERSION,
            "stream": vars(self.stream),
            "level": self.level,
            "parts": [{"newest": part.newest, **part.bounds.to_document()} for part in self.parts],
            "before": self.before,
        }
        return json.dumps({**content, "sha256": _digest(content)}, indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Stretch:
        """Return the stretch in a document.

        :raises ValueError: if the document is not whole, or something else.
        """
        try:
            content: dict[str, Any] = json.loads(text)
            digest = content.pop("sha256")
            if (content["format"], content["version"], digest) != (FORMAT, VERSION, _digest(content)):
                raise ValueError(f"it is no {FORMAT} of version {VERSION}, or not as it was written")
            parts = tuple(Part(part["newest"], Bounds.from_document(part)) for part in content["parts"])
            if not parts:
                raise ValueError("it has no parts")
            return cls(Stream(**content["stream"]), content["level"], parts, content["before"])
        except (KeyError, TypeError, AttributeError, IndexError, RecursionError, SalesforceStreamError) as error:
            raise ValueError(f"it lacks or mistypes a field ({type(error).__name__}: {error})") from error


def level_of(window_id: str) -> int:
    """Return the level of a window in the index; most have 0, which begin no stretch."""
    number = int.from_bytes(hashlib.sha256(window_id.encode()).digest()[:8])
    zeros = (number & -number).bit_length() - 1 if number else 64
    return min(zeros // _BITS, _HIGHEST_LEVEL)


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
