"""Tokens of a query: words, texts, numbers and signs. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sfstream_localorg.errors import ApiError

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:\\.|[^'\\])*')|(?P<moment>\d{4}-\d\d-\d\d(?:T[\d:.]+(?:Z|[+-]\d\d:?\d\d))?)"
    r"|(?P<number>-?\d+(?:\.\d+)?)|(?P<period>[A-Za-z_]+:\d+)|(?P<word>[A-Za-z]\w*(?:\.\w+)*)"
    r"|(?P<sign><=|>=|!=|<>|[=<>(),]))",
    re.ASCII | re.DOTALL,
)
_NOT_MODELLED = frozenset(
    {
        *("GROUP", "HAVING", "TYPEOF", "WITH", "USING", "FOR", "ALL", "NULLS", "INCLUDES", "EXCLUDES", "SELECT"),
        *("SUM", "AVG", "MIN", "MAX", "COUNT_DISTINCT"),
    }
)


@dataclass(frozen=True)
class Token:
    """A token. ``kind`` is ``text``, ``moment``, ``number``, ``period``, ``word``, ``sign`` or ``end``."""

    kind: str
    text: str

    @property
    def keyword(self) -> str:
        """The token in upper case, for comparison with keywords. A quoted text never equals a keyword."""
        return self.text.upper()


def malformed(message: str) -> ApiError:
    """Return the error of a query with invalid syntax."""
    return ApiError("MALFORMED_QUERY", message)


def unexpected(token: Token) -> ApiError:
    """Return the error of an unexpected token."""
    if token.kind == "end":
        return malformed("unexpected end of the query")
    hint = f" ({token.keyword} is not modelled by the local org)" if token.keyword in _NOT_MODELLED else ""
    return malformed(f"unexpected token: '{token.text}'{hint}")


class Tokens:
    """Reader of the tokens of a query.

    :raises ApiError: ``MALFORMED_QUERY``. All methods raise it for an unexpected token.
    """

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0

    def peek(self) -> str:
        """Return the next token as a keyword without consuming it; empty at the end."""
        return self._tokens[self._at].keyword

    def next(self) -> Token:
        """Consume and return the next token."""
        token = self._tokens[self._at]
        if token.kind == "end":
            raise unexpected(token)
        self._at += 1
        return token

    def accept(self, keyword: str) -> bool:
        """Consume the next token if it is ``keyword``; return whether it was."""
        found = self.peek() == keyword
        self._at += found
        return found

    def expect(self, keyword: str) -> None:
        """Consume the next token, which must be ``keyword``."""
        if not self.accept(keyword):
            raise unexpected(self._tokens[self._at])

    def take(self, kind: str) -> str:
        """Consume the next token, which must be of this kind; return its text."""
        token = self.next()
        if token.kind != kind:
            raise unexpected(token)
        return token.text

    def end(self) -> None:
        """Check that all tokens are consumed."""
        if self._tokens[self._at].kind != "end":
            raise unexpected(self._tokens[self._at])


def _tokens(text: str) -> list[Token]:
    tokens, at, text = [], 0, text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise malformed(f"unexpected token at position {at + 1}")
        tokens.append(Token(match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return [*tokens, Token("end", "")]
