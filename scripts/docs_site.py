"""Hooks of MkDocs: pages that are elsewhere in the repository, and links from the site to files that are not on it."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
ELSEWHERE = {"index.md": "README.md", "setting-up-an-org.md": "deploy/salesforce/README.md"}
"""The pages of the site that the repository has outside docs/."""
_LINK = re.compile(r"(\]\()(?!https?://|#)([^)#\s]+)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from elsewhere."""
    for page, source in ELSEWHERE.items():
        text = (ROOT / source).read_text()
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Let links lead on from where the page is on the site: to another page of it, or to a file of the repository."""
    place = page.file.src_uri
    folder = PurePosixPath(ELSEWHERE.get(place, f"docs/{place}")).parent
    pages = {source: target for target, source in ELSEWHERE.items()}

    def led(link: re.Match[str]) -> str:
        target = normpath((folder / link[2]).as_posix())
        if target in pages or target.startswith("docs/"):
            return link[1] + _relative(pages.get(target) or target.removeprefix("docs/"), place)
        if not (ROOT / target).exists():
            return link[0]  # MkDocs says that it leads nowhere
        return f"{link[1]}{config.repo_url.rstrip('/')}/blob/main/{target}"

    return _LINK.sub(led, markdown)


def _relative(target: str, place: str) -> str:
    return "../" * place.count("/") + target
