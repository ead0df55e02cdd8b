"""Report vague words and docstring summaries that open with a question word. Part of ``make lint``; never fails.

It reads docstrings, comments and messages of Python files, and Markdown pages without code. The figures show where
to rewrite prose: a low figure does not prove that a text is clear.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("airflow_provider_sfstream", "pyspark_sfstream", "localorg", "tests", "benchmarks", "live_check", "docs")
LISTED = 10
MOST = 2.0
VAGUE = re.compile(
    r"\b(what(?:ever)?|whoever|nobody|somebody|tells?|told|says?|said|such|thereby|of which|for good|as it is"
    r"|as they are|by itself|by themselves)\b",
    re.IGNORECASE,
)
OPENING = re.compile(r"(What|Whether|How|Who|Whose|Where|When|Which|Those|That|Nobody|Whoever|From)\b")
WORD = re.compile(r"[A-Za-z][A-Za-z'\u2019-]*")
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def python_prose(source: str) -> Iterator[tuple[str, bool]]:
    """Yield the texts of a module of at least four words, and whether each is a docstring."""
    tree = ast.parse(source)
    docstrings = {ast.get_docstring(node, clean=False) for node in ast.walk(tree) if isinstance(node, DOCUMENTED)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            is_docstring = node.value in docstrings
            if is_docstring or len(node.value.split()) > 3:
                yield node.value.strip(), is_docstring
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith(("#!", "# type", "# noqa")):
            yield token.string.lstrip("# "), False


def page_prose(source: str) -> str:
    """Return a Markdown page without code and link targets."""
    return re.sub(r"```.*?```|\]\([^)]*\)|`[^`]*`", " ", source, flags=re.DOTALL)


def main() -> None:
    listed = subprocess.run(["git", "ls-files", "*.py", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    total = dict.fromkeys(FOLDERS, (0, 0, 0, 0))
    pages: list[tuple[float, str]] = []
    for name in listed.stdout.splitlines():
        path = ROOT / name
        folder = "docs" if path.suffix == ".md" else name.partition("/")[0]
        if folder not in total or name.endswith(("_pb2.py", "_pb2_grpc.py")) or not path.is_file():
            continue
        source = path.read_text()
        texts = [(page_prose(source), False)] if path.suffix == ".md" else list(python_prose(source))
        words = sum(len(WORD.findall(text)) for text, _ in texts)
        vague = sum(len(VAGUE.findall(text)) for text, _ in texts)
        docstrings = [text for text, is_docstring in texts if is_docstring]
        found = (words, vague, len(docstrings), sum(bool(OPENING.match(text)) for text in docstrings))
        total[folder] = tuple(map(sum, zip(total[folder], found, strict=True)))  # type: ignore[assignment]
        if vague > 2 and vague * 1000 > MOST * words:
            pages.append((vague * 1000 / words, name))
    print("prose: vague words per 1,000 words, and question words that open a docstring, per 100 docstrings")
    for folder, (words, vague, docstrings, openings) in total.items():
        print(f"  {folder:26} {vague * 1000 / max(words, 1):5.1f} {openings * 100 / max(docstrings, 1):5.1f}")
    for rate, name in sorted(pages, reverse=True)[:LISTED]:
        print(f"  {rate:5.1f} {name}")


if __name__ == "__main__":
    main()
