"""A query in words, texts, numbers and signs. Pure."""

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
    """A part of a query. ``kind``: ``text``, ``moment``, ``number``, ``period``, ``word``, ``sign`` or ``end``."""

    kind: str
    text: str

    @property
    def keyword(self) -> str:
        """The token as keywords are compared; a text is never one."""
        return self.text.upper()


def malformed(message: str) -> ApiError:
    """Return the error of a query that cannot be understood."""
    return ApiError("MALFORMED_QUERY", message)


def unexpected(token: Token) -> ApiError:
    """Return the error of a token that cannot stand where it does."""
    if token.kind == "end":
        return malformed("unexpected end of the query")
    hint = f" ({token.keyword} is not modelled by the local org)" if token.keyword in _NOT_MODELLED else ""
    return malformed(f"unexpected token: '{token.text}'{hint}")


class Tokens:
    """The tokens of a query, taken one after the other.

    :raises ApiError: ``MALFORMED_QUERY``, as all methods do that are not given what they want.
    """

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0

    def peek(self) -> str:
        """Return the next token as a keyword, without taking it; empty at the end."""
        return self._tokens[self._at].keyword

    def next(self) -> Token:
        """Take the next token."""
        token = self._tokens[self._at]
        if token.kind == "end":
            raise unexpected(token)
        self._at += 1
        return token

    def accept(self, keyword: str) -> bool:
        """Take the next token if it is this one; return whether it was."""
        found = self.peek() == keyword
        self._at += found
        return found

    def expect(self, keyword: str) -> None:
        """Take the next token, which has to be this one."""
        if not self.accept(keyword):
            raise unexpected(self._tokens[self._at])

    def take(self, kind: str) -> str:
        """Take the next token, which has to be of this kind; return its text."""
        token = self.next()
        if token.kind != kind:
            raise unexpected(token)
        return token.text

    def end(self) -> None:
        """Check that nothing is left."""
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
