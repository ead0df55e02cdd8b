"""CSV of Bulk API 2.0 for uploads and results. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

DELIMITERS = {"COMMA": ",", "PIPE": "|", "SEMICOLON": ";", "TAB": "\t", "CARET": "^", "BACKQUOTE": "`"}
LINE_ENDINGS = {"LF": "\n", "CRLF": "\r\n"}


@dataclass(frozen=True)
class CsvFormat:
    """CSV format of a job.

    :param delimiter: name of the delimiter, a key of ``DELIMITERS``.
    :param line_ending: name of the line ending, a key of ``LINE_ENDINGS``.
    """

    delimiter: str = "COMMA"
    line_ending: str = "LF"

    def write(self, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
        """Return the CSV of a header and rows. All values are quoted; null is an empty value."""
        text = io.StringIO()
        writer = csv.writer(
            text,
            delimiter=DELIMITERS[self.delimiter],
            lineterminator=LINE_ENDINGS[self.line_ending],
            quoting=csv.QUOTE_ALL,
        )
        writer.writerow(header)
        writer.writerows([_cell(value) for value in row] for row in rows)
        return text.getvalue()

    def read(self, text: str) -> tuple[list[str], list[list[str]]]:
        """Parse CSV; return the header and the rows. Empty lines are ignored.

        :raises ValueError: if the line ending differs from the format, the header is missing, or a row and the header
            differ in length. The text is Salesforce's, if it is known.
        """
        first = text.partition("\n")[0]
        if text and "\n" in text and first.endswith("\r") is not (self.line_ending == "CRLF"):
            setting = f"Current LineEnding setting is {self.line_ending}"
            raise ValueError(f"ClientInputError : LineEnding is invalid on user data. {setting}")
        try:
            lines = list(csv.reader(io.StringIO(text, newline=""), delimiter=DELIMITERS[self.delimiter], strict=True))
        except csv.Error as error:
            raise ValueError(f"InvalidBatch : Failed to parse CSV: {error}") from None
        header, *rows = [line for line in lines if line] or [[]]
        if not header:
            raise ValueError("InvalidBatch : Failed to parse CSV: there is no line of field names")
        for number, row in enumerate(rows, 1):
            if len(row) != len(header):
                problem = f"row {number} has {len(row)} values for {len(header)} fields"
                raise ValueError(f"InvalidBatch : Failed to parse CSV: {problem}")
        return header, rows


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
