"""How Change Data Capture sends an update of a long text: as the difference to the former one, in unified format. Pure.

Salesforce's guide to Change Data Capture gives the form: a header with the SHA-256 of the whole updated text, then the
changed lines without context, ``"--- \\n+++ 682b...\\n@@ -2,1 +2,1 @@\\n-old line\\n+new line"``; and it says when the
whole text is sent instead. Not evidenced are lines that are only added or only removed: they are numbered here as the
diff utility numbers them.
"""

from __future__ import annotations

import difflib
import hashlib
import re

LONG_TEXTS = frozenset({"StringPlusClob", "HtmlStringPlusClob"})
"""The field types whose values may be sent so."""

_LINE_BREAK = re.compile(r"\r\n|\r|\n")


def text_diff(before: str, after: str) -> str | None:
    """Return how ``before`` becomes ``after``, or ``None`` where the whole text is sent.

    That is where the lengths differ by more than half, where more than a quarter of all lines changed, and where the
    difference would not be shorter.
    """
    old, new = _LINE_BREAK.split(before), _LINE_BREAK.split(after)
    hunks, changed = _hunks(old, new)
    text = "\n".join(("--- ", f"+++ {hashlib.sha256(after.encode()).hexdigest()}", *hunks))
    too_different = 2 * abs(len(after) - len(before)) > len(before) or 4 * changed > len(old) + len(new)
    return None if too_different or len(text) >= len(after) else text


def _hunks(old: list[str], new: list[str]) -> tuple[list[str], int]:
    """Return the lines of the changes, and how many lines of both texts they change."""
    lines: list[str] = []
    changed = 0
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for tag, old_from, old_to, new_from, new_to in matcher.get_opcodes():
        if tag != "equal":
            lines.append(f"@@ -{_range(old_from, old_to)} +{_range(new_from, new_to)} @@")
            lines += [f"-{line}" for line in old[old_from:old_to]]
            lines += [f"+{line}" for line in new[new_from:new_to]]
            changed += old_to - old_from + new_to - new_from
    return lines, changed


def _range(start: int, end: int) -> str:
    """Return a range of lines, counted from 1; one without lines is named by the line before it."""
    return f"{start + (end > start)},{end - start}"
