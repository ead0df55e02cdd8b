"""A behaviour of the local org, and how it is known that Salesforce behaves so."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Evidence = Literal["documented", "observed", "inferred"]

UNPROBED = "-"
"""The path of what no probe asks for."""


@dataclass(frozen=True)
class Behaviour:
    """One row of the table.

    :param path: of the values in a live check's answers that show it; ``*`` is any part of one, and what is below a
        path belongs to it. :data:`UNPROBED` where no probe asks.
    :param evidence: ``documented`` by Salesforce (or in the proto), ``observed`` at an org by somebody who tells of it
        in public, ``inferred`` by us: nobody says so.
    :param statement: what the local org does.
    :param source: where it is documented or told of; empty where it is inferred.
    """

    path: str
    evidence: Evidence
    statement: str
    source: str = ""

    @property
    def is_unprobed(self) -> bool:
        """Whether no probe asks for it."""
        return self.path == UNPROBED

    def covers(self, path: str) -> bool:
        """Return whether a value at ``path`` shows it."""
        parts = (re.escape(part).replace(r"\*", r"[^.]+") for part in self.path.split("."))
        return not self.is_unprobed and re.fullmatch(rf"{r'[.]'.join(parts)}(?:[.].*)?", path) is not None

    @property
    def precision(self) -> tuple[int, int]:
        """How narrow its path is, by the parts that it names: of several that cover a value, the narrowest is meant."""
        parts = self.path.split(".")
        return len(parts) - parts.count("*"), len(parts)
