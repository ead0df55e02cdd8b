"""MkDocs hooks: pages outside of docs/, and links from the site to other files of the repository."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
ELSEWHERE = {"index.md": "README.md", "setting-up-an-org.md": "deploy/salesforce/README.md"}
"""Pages of the site whose source files are outside docs/."""
_LINK = re.compile(r"(\]\()(?!https?://|#)([^)#\s]+)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages whose source files are outside docs/."""
    for page, source in ELSEWHERE.items():
        text = (ROOT / source).read_text()
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Rewrite the links of a page: to another page of the site, or to a file of the repository on GitHub."""
    place = page.file.src_uri
    folder = PurePosixPath(ELSEWHERE.get(place, f"docs/{place}")).parent
    pages = {source: target for target, source in ELSEWHERE.items()}

    def rewritten(link: re.Match[str]) -> str:
        target = normpath((folder / link[2]).as_posix())
        if target in pages or target.startswith("docs/"):
            return link[1] + _relative(pages.get(target) or target.removeprefix("docs/"), place)
        if not (ROOT / target).exists():
            return link[0]  # MkDocs reports the broken link
        return f"{link[1]}{config.repo_url.rstrip('/')}/blob/main/{target}"

    return _LINK.sub(rewritten, markdown)


def _relative(target: str, place: str) -> str:
    return "../" * place.count("/") + target
