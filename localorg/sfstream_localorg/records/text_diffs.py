"""Differences of long texts in change events: an update carries a unified diff in place of the text. Pure.

Salesforce's guide to Change Data Capture defines the form: a header with the SHA-256 of the whole updated text, then
the changed lines without context, ``"--- \\n+++ 682b...\\n@@ -2,1 +2,1 @@\\n-old line\\n+new line"``. It also defines
when the whole text is sent instead. Line numbers of pure insertions and deletions are without evidence; they follow the
diff utility.
"""

from __future__ import annotations

import difflib
import hashlib
import re

LONG_TEXTS = frozenset({"StringPlusClob", "HtmlStringPlusClob"})
"""Field types whose values may be sent as a difference."""

_LINE_BREAK = re.compile(r"\r\n|\r|\n")


def text_diff(before: str, after: str) -> str | None:
    """Return the diff from ``before`` to ``after``, or ``None`` if the whole text is sent.

    The whole text is sent if the lengths differ by more than half, if more than a quarter of all lines changed, or if
    the diff is not shorter than the text.
    """
    old, new = _LINE_BREAK.split(before), _LINE_BREAK.split(after)
    hunks, changed = _hunks(old, new)
    text = "\n".join(("--- ", f"+++ {hashlib.sha256(after.encode()).hexdigest()}", *hunks))
    too_different = 2 * abs(len(after) - len(before)) > len(before) or 4 * changed > len(old) + len(new)
    return None if too_different or len(text) >= len(after) else text


def _hunks(old: list[str], new: list[str]) -> tuple[list[str], int]:
    """Return the lines of the hunks, and the number of changed lines in both texts."""
    lines: list[str] = []
    changed = 0
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for tag, old_from, old_to, new_from, new_to in matcher.get_opcodes():
        if tag != "equal":
            lines.append(f"@@ -{_line_range(old_from, old_to)} +{_line_range(new_from, new_to)} @@")
            lines += [f"-{line}" for line in old[old_from:old_to]]
            lines += [f"+{line}" for line in new[new_from:new_to]]
            changed += old_to - old_from + new_to - new_from
    return lines, changed


def _line_range(start: int, end: int) -> str:
    """Format a range of lines, counted from 1; an empty range has the number of the line before it."""
    return f"{start + (end > start)},{end - start}"
