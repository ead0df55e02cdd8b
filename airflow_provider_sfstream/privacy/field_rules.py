"""Field protection: rules for fields that must not be stored as received: exclude, hash with a key, or mask. Pure.

A rule is a field's name, in any case: ``Phone``, a part of a compound field as ``Name.FirstName``, or a field of only
one table as ``Contact.Phone``. A compound field's name includes all its parts, and the SOQL name of a part
(``BillingStreet``) is an alias of ``BillingAddress.Street``:

====================================== ================================ ==================================
compound field                         a part, nested                   the same part, flat
====================================== ================================ ==================================
address: ``MailingAddress``            ``MailingAddress.Street``        ``MailingStreet``
custom address: ``Home__c``            ``Home__c.Street``               ``Home__Street__s``
geolocation: ``Place__c``              ``Place__c.Latitude``            ``Place__Latitude__s``
name of a person: ``Name``             ``Name.FirstName``               ``FirstName``
====================================== ================================ ==================================

Parts are nested in change events, flat in SOQL and PushTopics. Only names are used, no schema: an event may lack a
schema, and a refresh fetches fields that no event carries. Names of parts of a compound field that does not exist are
harmless: no field has them.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from airflow_provider_sfstream.exceptions import ConfigurationError

Treatment = Literal["exclude", "mask", "hash"]
"""Protection of a field, the strictest first: if several rules match a field, the first treatment applies."""

MASK = "***"
"""Value of a masked text."""
HASH_KEY_VARIABLE = "SFSTREAM_HASH_KEY"
"""Environment variable with the key on a Spark driver. The key is never an argument, because ``ps`` shows arguments."""
SHORTEST_KEY = 16
"""Minimum characters of a key: a shorter one could be found by trial with access to a table."""

_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)
_NEEDED = ("id", "changeeventheader")
"""Fields that identify and order rows."""


@dataclass(frozen=True)
class FieldRules:
    """Field protection rules of a job, or of a stored table.

    :param exclude: fields that get no column; ``mask``: texts become :data:`MASK`, other values null; ``hash``: texts
        become their HMAC-SHA-256 as hex, other values null. Null stays null.
    :param key_id: identifier of the key of the hashes, which does not reveal it; for a job, derived from ``key``.
    :param key: key of the hashes. It is in no document, and no ``repr``.
    """

    exclude: tuple[str, ...] = ()
    mask: tuple[str, ...] = ()
    hash: tuple[str, ...] = ()
    key_id: str = ""
    key: bytes = field(default=b"", repr=False)

    @classmethod
    def from_arguments(cls, exclude: Any, mask: Any, hashed: Any, key: str | None = None) -> FieldRules:
        """Return the rules of arguments, validated except for a key that is set later."""
        rules = cls(_names("exclude_fields", exclude), _names("mask_fields", mask), _names("hash_fields", hashed))
        treatments: dict[str, str] = {}
        for name, treatment in rules.items():
            if (first := treatments.setdefault(name.lower(), treatment)) != treatment:
                raise ConfigurationError(
                    f"The field {name} is listed in both {first}_fields and {treatment}_fields. Nothing was written. "
                    "List it in only one of them."
                )
        return rules if key is None else rules.with_key(key)

    def with_key(self, key: str | None) -> FieldRules:
        """Return the rules with the key of their hashes, if they have any."""
        if not self.hash:
            return self
        if not key or len(key) < SHORTEST_KEY:
            problem = f"has fewer than {SHORTEST_KEY} characters" if key else "is missing"
            raise ConfigurationError(
                f"The key for the hash of {', '.join(self.hash)} {problem}. Nothing was written. Set it as the "
                "password of the Airflow connection hash_conn_id or, for a driver on a cluster, as the environment "
                f"variable {HASH_KEY_VARIABLE}. Use 32 random characters, and never change them."
            )
        secret = key.encode()
        return replace(self, key=secret, key_id=_digest(secret, b"sfstream key")[:16])

    def __bool__(self) -> bool:
        return any(True for _ in self.items())

    def items(self) -> Iterator[tuple[str, Treatment]]:
        """Yield each name, and the treatment of its field."""
        for how in get_args(Treatment):
            yield from ((name, how) for name in getattr(self, how))

    def text(self, value: str, how: Treatment) -> str | None:
        """Return the stored form of a text; ``None`` if it is excluded."""
        if how == "hash":
            return _digest(self.key, value.encode())
        return MASK if how == "mask" else None

    def recorded(self) -> FieldRules:
        """Return the rules without their key, for storage with a table."""
        return replace(self, key=b"")

    def check_keep(self, recorded: FieldRules, where: str) -> None:
        """Check that these rules treat each field of ``recorded`` in the same way.

        :param where: table with the recorded rules, for the error.
        """
        treatments = {name.lower(): treatment for name, treatment in self.items()}
        for name, how in recorded.items():
            if (treatment := treatments.get(name.lower())) != how:
                rule = "the field has no rule" if treatment is None else f"the field is listed in {treatment}_fields"
                raise ConfigurationError(
                    f"{where} is written with {how}_fields={[name]!r}, but in this job {rule}. Nothing was written. "
                    f"List {name} in {how}_fields, or set another output_url for a new table."
                )
        if recorded.hash and self.key_id != recorded.key_id:
            raise ConfigurationError(
                f"{where} has hashes of {', '.join(recorded.hash)} from another key: one value would have two hashes. "
                "Nothing was written. Use the previous key, or set another output_url for a new table."
            )


NO_RULES = FieldRules()

NO_SUCH_FIELD = "No table of these events has a field %s: its rules protect no value."
"""Log message, with the names."""


class Coverage:
    """Field protection rules applied to the fields of one table.

    :param names: names of the table that a rule may begin with: ``Account``, ``AccountChangeEvent``.
    :param aliases: other dotted names of fields, by dotted name, in addition to the names of the parts of a compound
        field.
    """

    def __init__(
        self, rules: FieldRules, names: Iterable[str], aliases: Mapping[str, Collection[str]] | None = None
    ) -> None:
        self.rules, self._aliases = rules, aliases or {}
        self._rules: dict[str, tuple[str, Treatment]] = {}
        self.met: set[str] = set()
        """Names that matched a field."""
        prefixes = [f"{name.lower()}." for name in names]
        for name, how in rules.items():
            lower = name.lower()
            own = [lower.removeprefix(prefix) for prefix in prefixes if lower.startswith(prefix)]
            for alias in (lower, *own, *(other for part in (lower, *own) for other in other_names(part))):
                if alias not in self._rules or _rank(how) < _rank(self._rules[alias][1]):
                    self._rules[alias] = (name, how)

    def treatment_of(self, path: Sequence[str], *, is_opaque: bool = False) -> Treatment | None:
        """Return the treatment of a field, or of a part of it; ``None`` if it is stored unchanged.

        :param path: name of the field, and names of the parts that lead to the value.
        :param is_opaque: whether it may contain parts that cannot be separated here, so that a rule for one part
            applies to all.
        """
        dotted = ".".join(path).lower()
        names = (dotted, *self._aliases.get(dotted, ()))
        matching = [self._rules[prefix] for name in names for prefix in _prefixes(name) if prefix in self._rules]
        if is_opaque:
            matching += [rule for name, rule in self._rules.items() if name.startswith(f"{dotted}.")]
        self.met.update(name for name, _ in matching)
        return strictest(how for _, how in matching)


def strictest(treatments: Iterable[Treatment | None]) -> Treatment | None:
    """Return the strictest treatment; ``None`` if there is none."""
    return min((how for how in treatments if how is not None), key=_rank, default=None)


def unmet(rules: FieldRules, coverages: Iterable[Coverage]) -> list[str]:
    """Return the names of rules that match no field of the tables."""
    met = {name for coverage in coverages for name in coverage.met}
    return [name for name, _ in rules.items() if name not in met]


def _names(argument: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not all(isinstance(name, str) for name in value or ()):
        raise ConfigurationError(f"{argument}={value!r} must be a list of field names. Nothing was written.")
    for name in value or ():
        if not _NAME.fullmatch(name):
            raise ConfigurationError(
                f"{argument}: {name[:80]!r} is not a field name such as Phone, Name.FirstName or Contact.Phone. "
                "Nothing was written."
            )
        if name.lower() in _NEEDED:
            raise ConfigurationError(f"{argument}: {name} identifies rows; omit it. Nothing was written.")
    return tuple(dict.fromkeys(value or ()))


def _prefixes(name: str) -> Iterator[str]:
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        yield ".".join(parts[:end])


def _rank(how: Treatment) -> int:
    return get_args(Treatment).index(how)


def _digest(key: bytes, value: bytes) -> str:
    return hmac.new(key, value, hashlib.sha256).hexdigest()


_NAME_PARTS = ("salutation", "firstname", "middlename", "lastname", "suffix", "informalname")
_ADDRESS_PARTS = (
    *("street", "city", "state", "statecode", "postalcode", "country", "countrycode"),
    *("latitude", "longitude", "geocodeaccuracy"),
)
_ANY_PART = "|".join(_ADDRESS_PARTS)
_ADDRESS = re.compile(r"(?P<stem>\w*)address(?:\.(?P<part>\w+))?", re.ASCII)
_ADDRESS_PART = re.compile(rf"(?P<stem>\w*?)(?P<part>{_ANY_PART})", re.ASCII)
_CUSTOM = re.compile(r"(?P<stem>\w+)__(?P<kind>p?c)(?:\.(?P<part>\w+))?", re.ASCII)
_CUSTOM_PART = re.compile(rf"(?P<stem>\w+)__(?P<part>{_ANY_PART})__(?P<kind>s|ps|pc)", re.ASCII)
_KINDS = {"c": ("s",), "pc": ("ps", "pc")}
"""Suffixes of parts of a custom field: of an object's own field, and of a contact's field in a person account."""


def other_names(name: str) -> Iterator[str]:
    """Yield the other names of a compound field or of its part, nested or flat, and of its parts; in lower case."""
    if name == "name":
        yield from _NAME_PARTS
    elif name.removeprefix("name.") in _NAME_PARTS:
        yield name.removeprefix("name.") if name.startswith("name.") else f"name.{name}"
    if match := _ADDRESS.fullmatch(name):
        yield from (f"{match['stem']}{part}" for part in _parts_of(match["part"]))
    elif match := _ADDRESS_PART.fullmatch(name):
        yield f"{match['stem']}address.{match['part']}"
    if match := _CUSTOM_PART.fullmatch(name):
        yield f"{match['stem']}__{'c' if match['kind'] == 's' else 'pc'}.{match['part']}"
    elif match := _CUSTOM.fullmatch(name):
        kinds = _KINDS[match["kind"]]
        yield from (f"{match['stem']}__{part}__{kind}" for part in _parts_of(match["part"]) for kind in kinds)


def _parts_of(part: str | None) -> tuple[str, ...]:
    return _ADDRESS_PARTS if part is None else (part,)
