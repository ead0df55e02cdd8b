"""Python code blocks of the guides."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def snippets() -> Iterator[tuple[str, str]]:
    """Yield each Python block of the guides, preceded by the name of its page and its number on the page."""
    for page in sorted(DOCS.rglob("*.md")):
        for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL), start=1):
            yield f"{page.relative_to(DOCS).with_suffix('')}-{number}", code


SNIPPETS = dict(snippets())
LIVE = [
    name
    for name, code in SNIPPETS.items()
    if re.search(
        r"^[^@]*(Hook\(|\(spark|spark\.(read|sparkContext|createDataFrame)|LocalOrg|DeltaTable|manifest_urls\()", code
    )
]
"""Names of the blocks that call Salesforce, Spark or a storage."""
