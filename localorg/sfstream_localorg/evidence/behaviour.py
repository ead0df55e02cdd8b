"""A behaviour of the local org, and the evidence that Salesforce behaves the same."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Evidence = Literal["documented", "observed", "inferred"]

UNPROBED = "-"
"""Path of behaviours without a probe."""


@dataclass(frozen=True)
class Behaviour:
    """A row of the table.

    :param path: path of the values in a live check's answers that show the behaviour. ``*`` matches one part, and a
        path includes the values below it. :data:`UNPROBED` if no probe shows it.
    :param evidence: ``documented`` by Salesforce (or in the proto), ``observed`` at an org in a public report,
        ``inferred`` by this project without a source.
    :param statement: the behaviour of the local org.
    :param source: the documentation or the report; empty for inferred behaviours.
    """

    path: str
    evidence: Evidence
    statement: str
    source: str = ""

    @property
    def is_unprobed(self) -> bool:
        """True if no probe shows the behaviour."""
        return self.path == UNPROBED

    def covers(self, path: str) -> bool:
        """Return whether the value at ``path`` shows the behaviour."""
        parts = (re.escape(part).replace(r"\*", r"[^.]+") for part in self.path.split("."))
        return not self.is_unprobed and re.fullmatch(rf"{r'[.]'.join(parts)}(?:[.].*)?", path) is not None

    @property
    def precision(self) -> tuple[int, int]:
        """Precision of the path by its named parts. The most precise behaviour that covers a value applies."""
        parts = self.path.split(".")
        return len(parts) - parts.count("*"), len(parts)
