"""Which fields may not be stored as they come: left out, hashed with a key, or masked. Pure.

A rule is a field's name, in any case: ``Phone``, a part of a compound field as ``Name.FirstName``, or a field of one
table alone as ``Contact.Phone``. A compound field's name stands for all its parts, and the name that SOQL has for a
part (``BillingStreet``) is another one for ``BillingAddress.Street``.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.privacy.compound_fields import other_names

Treatment = Literal["exclude", "mask", "hash"]
"""What becomes of a field, that of which least is left first: where several rules are for a field, the first holds."""

MASK = "***"
"""What a masked text is."""
HASH_KEY_VARIABLE = "SFSTREAM_HASH_KEY"
"""The environment variable in which a Spark driver is given the key: never an argument, which ``ps`` shows."""
SHORTEST_KEY = 16
"""Characters of a key: with a shorter one, whoever has a table could find it by trying."""

_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)
_NEEDED = ("id", "changeeventheader")
"""What rows are told apart and ordered by."""


@dataclass(frozen=True)
class FieldRules:
    """The rules of a job, or those that a table is kept by.

    :param exclude: fields that get no column; ``mask``: texts become :data:`MASK`, other values null; ``hash``: texts
        become their HMAC-SHA-256 as hex, other values null. Null stays null.
    :param key_id: which key hashes are made with, without telling it; of a job, it follows from ``key``.
    :param key: of hashes. It is in no document, and no ``repr``.
    """

    exclude: tuple[str, ...] = ()
    mask: tuple[str, ...] = ()
    hash: tuple[str, ...] = ()
    key_id: str = ""
    key: bytes = field(default=b"", repr=False)

    @classmethod
    def of(cls, exclude: Any, mask: Any, hashed: Any, key: str | None = None) -> FieldRules:
        """Return the rules that arguments say, checked but for a key that is yet to come.

        :raises ConfigurationError: naming the argument or the field that cannot be used. Nothing was written.
        """
        rules = cls(_names("exclude_fields", exclude), _names("mask_fields", mask), _names("hash_fields", hashed))
        seen: dict[str, str] = {}
        for name, how in rules.items():
            if (other := seen.setdefault(name.lower(), how)) != how:
                raise ConfigurationError(
                    f"The field {name} is named in both {other}_fields and {how}_fields. Leave it in one of them; "
                    "nothing was written."
                )
        return rules if key is None else rules.with_key(key)

    def with_key(self, key: str | None) -> FieldRules:
        """Return the rules with the key of their hashes, where they have any.

        :raises ConfigurationError: if there is no key, or it is too short.
        """
        if not self.hash:
            return self
        if not key or len(key) < SHORTEST_KEY:
            what = f"has fewer than {SHORTEST_KEY} characters" if key else "is missing"
            raise ConfigurationError(
                f"The key for the hash of {', '.join(self.hash)} {what}. Make it the password of the Airflow "
                f"connection hash_conn_id, or of a driver on a cluster the environment variable {HASH_KEY_VARIABLE}: "
                "32 random characters, which never change. Nothing was written."
            )
        secret = key.encode()
        return replace(self, key=secret, key_id=_digest(secret, b"sfstream key")[:16])

    def __bool__(self) -> bool:
        return any(True for _ in self.items())

    def items(self) -> Iterator[tuple[str, Treatment]]:
        """Yield each name, and what becomes of its field."""
        for how in get_args(Treatment):
            yield from ((name, how) for name in getattr(self, how))

    def text(self, value: str, how: Treatment) -> str | None:
        """Return what a text becomes; ``None`` if it is left out."""
        if how == "hash":
            return _digest(self.key, value.encode())
        return MASK if how == "mask" else None

    def recorded(self) -> FieldRules:
        """Return the rules without their key, as a table keeps them."""
        return replace(self, key=b"")

    def check_keep(self, recorded: FieldRules, where: str) -> None:
        """Make sure that whoever is given these rules treats each field as ``recorded``.

        :param where: which table keeps those.
        :raises ConfigurationError: naming a field that would be written otherwise. Nothing was written.
        """
        given = {name.lower(): how for name, how in self.items()}
        for name, how in recorded.items():
            if (now := given.get(name.lower())) != how:
                told = "nothing is said of it" if now is None else f"it is named in {now}_fields"
                raise ConfigurationError(
                    f"{where} is written with {how}_fields={[name]!r}, and for this job {told}. Nothing was written. "
                    f"Name {name} in {how}_fields, or give another output_url for a table made anew."
                )
        if recorded.hash and self.key_id != recorded.key_id:
            raise ConfigurationError(
                f"{where} has hashes of {', '.join(recorded.hash)} made with another key, so that one value would have "
                "two. Nothing was written. Give the key from before, or another output_url for a table made anew."
            )

    def to_document(self) -> dict[str, Any]:
        """Return the rules as JSON has them, without the key."""
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self) if each.name != "key"}

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> FieldRules:
        """Return what :meth:`to_document` gave; no rules for an empty one.

        :raises TypeError: if it is something else.
        """
        exclude, mask, hashed = (tuple(document.get(how, ())) for how in ("exclude", "mask", "hash"))
        return cls(exclude, mask, hashed, document.get("key_id", ""))


NO_RULES = FieldRules()

NO_SUCH_FIELD = "No table of these events has a field %s: the rules for it hide nothing."
"""Logged with the names."""


class Coverage:
    """Tells of each field of one table what the rules say.

    :param names: those of the table that a rule may begin with: ``Account``, ``AccountChangeEvent``.
    :param aliases: other dotted names of fields, by dotted name, beside those that the parts of a compound field have
        anyway.
    """

    def __init__(
        self, rules: FieldRules, names: Iterable[str], aliases: Mapping[str, Collection[str]] | None = None
    ) -> None:
        self.rules, self._aliases = rules, aliases or {}
        self._hows: dict[str, tuple[str, Treatment]] = {}
        self.met: set[str] = set()
        """The names that were of use."""
        prefixes = [f"{name.lower()}." for name in names]
        for name, how in rules.items():
            lower = name.lower()
            own = [lower.removeprefix(prefix) for prefix in prefixes if lower.startswith(prefix)]
            for each in (lower, *own, *(other for given in (lower, *own) for other in other_names(given))):
                if each not in self._hows or _rank(how) < _rank(self._hows[each][1]):
                    self._hows[each] = (name, how)

    def of(self, path: Sequence[str], *, is_opaque: bool = False) -> Treatment | None:
        """Return what becomes of a field, or of a part of it; ``None`` if it stays as it is.

        :param path: its name, and those of the parts that lead to it.
        :param is_opaque: whether it may hold parts that cannot be told apart here, so that a rule for one of these is
            a rule for all.
        """
        dotted = ".".join(path).lower()
        known = (dotted, *self._aliases.get(dotted, ()))
        found = [self._hows[each] for name in known for each in _prefixes(name) if each in self._hows]
        if is_opaque:
            found += [each for name, each in self._hows.items() if name.startswith(f"{dotted}.")]
        self.met.update(name for name, _ in found)
        return strictest(how for _, how in found)


def strictest(treatments: Iterable[Treatment | None]) -> Treatment | None:
    """Return the treatment that leaves the least of a value; ``None`` if there is none."""
    return min((how for how in treatments if how is not None), key=_rank, default=None)


def unmet(rules: FieldRules, coverages: Iterable[Coverage]) -> list[str]:
    """Return the names of fields that none of some tables has."""
    met = {name for coverage in coverages for name in coverage.met}
    return [name for name, _ in rules.items() if name not in met]


def _names(argument: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not all(isinstance(name, str) for name in value or ()):
        raise ConfigurationError(f"{argument}={value!r} must be a list of the names of fields. Nothing was written.")
    for name in value or ():
        if not _NAME.fullmatch(name):
            raise ConfigurationError(
                f"{argument}: {name[:80]!r} is no name of a field, such as Phone, Name.FirstName or Contact.Phone. "
                "Nothing was written."
            )
        if name.lower() in _NEEDED:
            raise ConfigurationError(f"{argument}: rows are told apart by {name}; leave it out. Nothing was written.")
    return tuple(dict.fromkeys(value or ()))


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _prefixes(name: str) -> Iterator[str]:
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        yield ".".join(parts[:end])


def _rank(how: Treatment) -> int:
    return get_args(Treatment).index(how)


def _digest(key: bytes, value: bytes) -> str:
    return hmac.new(key, value, hashlib.sha256).hexdigest()
