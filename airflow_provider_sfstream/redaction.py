"""Redaction of texts: secrets of this process, and control characters in received texts.

Code that reads a secret calls :func:`remember_secrets`; every error of this package then omits it, in every form. So
code that builds a text needs no special care for secrets.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from urllib.parse import quote, quote_plus, unquote

HIDDEN = "***"
_MOST_SECRETS = 1_024
"""Maximum number of remembered secrets, each line of a key counted as one; the least recently registered are removed.
A process that runs for months has a new access token every hour, and each login registers its secrets again."""
_SHORTEST = 4
"""Characters. A shorter secret occurs in many texts by chance."""
_WORD = 12
"""Characters up to which a secret is redacted only as a whole word, because it may be a part of other words."""
_LONGEST_TEXT = 16_384
_LONGEST_QUOTE = 500
_LONGEST_SETTING = 255

_PEM = re.compile(r"-----BEGIN .*?(?:-----END[^-]*-----|\Z)", re.DOTALL)
# Repetitions are bounded, or exclude their end: the time is proportional to the length of a text.
_USER_INFO = re.compile(
    r"(?<=:)([/\\]{0,8})(?:[^\s/\\:@'\"]{0,256}:(?!\d{1,5}/)[^\s@'\"]{0,256}"
    # Without a colon: only with characters that neither a connection id nor a container of Azure can have.
    r"|[\w.~$!(){}-]{0,256}[^\s/\\:@'\"\w.~$!(){}-][^\s/@'\"]{0,256})@"
)
_BEFORE_USER_INFO = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]{0,30}:)?[/\\]+|")
_HOST_AND_PORT = re.compile(r"[^:]*:\d{1,5}/")
_TEMPLATE = re.compile(r"\{\{[^}]*\}\}")
_PLAIN_USER = re.compile(r"[\w.~$!(){}-]*")
_SIGNATURE = re.compile(
    r"([?&;](?:sig|[\w-]{0,40}(?:signature|token|secret|password|credential))=)[^&\s'\"]+", re.IGNORECASE
)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

_lock = threading.RLock()
_forms: dict[str, frozenset[str]] = {}
_longest_first: list[str] = []


def remember_secrets(*secrets: str | None) -> None:
    """Redact secrets in every later text, unchanged and in their forms in URLs, JSON, base64 and reprs.

    Each line of PEM text is a secret. Secrets of fewer than four characters are ignored.
    """
    parts = [part for secret in secrets if secret for part in _parts(secret.encode(errors="replace").decode())]
    with _lock:
        is_new = any(secret not in _forms for secret in parts)
        for secret in parts:
            # at the end, so that secrets in use are not removed
            _forms[secret] = _forms.pop(secret) if secret in _forms else _forms_of(secret)
        if is_new:
            while len(_forms) > _MOST_SECRETS:
                del _forms[next(iter(_forms))]
            _longest_first[:] = sorted({form for forms in _forms.values() for form in forms}, key=len, reverse=True)


def remember_user_info(url: str) -> None:
    """Redact the password of a URL in every later text, also if the URL is malformed or its password has characters
    that end user information."""
    _, user_info, _ = _split_user_info(url)
    password = user_info.partition(":")[2]
    remember_secrets(password, unquote(password), user_info if _is_secret(user_info) else None)


def without_user_info(url: str) -> str:
    """Return a URL, also a malformed one, without user name and password."""
    prefix, user_info, suffix = _split_user_info(url)
    return f"{prefix}{HIDDEN}@{suffix}" if user_info or url.startswith(f"{prefix}@") else url


def has_credentials(url: str) -> bool:
    """Return whether a URL, also a malformed one, has a password, or a signature with the same effect."""
    return bool(_USER_INFO.search(url) or _SIGNATURE.search(url) or _is_secret(_split_user_info(url)[1]))


def _split_user_info(url: str) -> tuple[str, str, str]:
    """Return the parts of a URL before, in and after its user information, which ends with the last ``@``."""
    match = _BEFORE_USER_INFO.match(url)
    prefix = match[0] if match else ""
    user_info, at, suffix = url[len(prefix) :].rpartition("@")
    return (prefix, user_info, suffix) if at else (url, "", "")


def _is_secret(user_info: str) -> bool:
    """Return whether user information has a password; it may also be a connection id, a host or a bucket."""
    user_info = _TEMPLATE.sub("", user_info)
    first = re.split(r"[/\\]", user_info, maxsplit=1)[0]
    if ":" in first:
        return not _HOST_AND_PORT.match(user_info)
    return first == user_info and not _PLAIN_USER.fullmatch(user_info)


def redacted(text: str) -> str:
    """Return ``text`` on one line, without secrets, PEM text, the user information and signatures of URLs. Control
    characters are shown as escapes, and at most 16,384 characters."""
    if len(text) > _LONGEST_TEXT:
        text = f"{text[:_LONGEST_TEXT]} (and {len(text) - _LONGEST_TEXT} characters more)"
    shown = _USER_INFO.sub(rf"\1{HIDDEN}@", _PEM.sub(HIDDEN, text))
    shown = _SIGNATURE.sub(rf"\1{HIDDEN}", shown)
    for form in tuple(_longest_first):  # without the lock: a signal handler may create an error
        if form in shown:
            is_word = len(form) <= _WORD and form.isidentifier()
            word = rf"(?<![A-Za-z0-9_]){form}(?![A-Za-z0-9_])"
            shown = re.sub(word, HIDDEN, shown) if is_word else shown.replace(form, HIDDEN)
    return _CONTROL.sub(_escaped, shown)


def quoted(text: str) -> str:
    """Return a received text for an error: redacted, at most 500 characters, in quotes."""
    return repr(redacted(text.strip())[:_LONGEST_QUOTE])


def quoted_setting(value: object) -> str:
    """Return a configured value for an error: redacted and in quotes.

    Only the length of a value of several lines, or of more than 255 characters, is shown: it may be a key that was
    configured in place of the name of its file.
    """
    text = str(value)
    if len(text) > _LONGEST_SETTING or "\n" in text or "\\n" in text or _PEM.search(text):
        return f"(a text of {len(text)} characters, which is not shown)"
    return redacted(repr(value))


def _parts(secret: str) -> list[str]:
    lines = [line.strip() for line in secret.replace("\\n", "\n").splitlines()]
    if len(lines) < 2:
        return [secret] if len(secret) >= _SHORTEST else []
    return [line for line in lines if len(line) >= _SHORTEST and not line.startswith("-----")]


def _forms_of(secret: str) -> frozenset[str]:
    encoded = [quote(secret, safe=""), quote(secret), quote_plus(secret)]
    encoded += [re.sub("%..", lambda match: match[0].lower(), text) for text in encoded]
    forms = {
        secret,
        *encoded,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
    }
    data = secret.encode("utf-8", "surrogatepass")
    # In base64 of a longer text, such as "user:password", the secret begins at one of three offsets in a group of
    # bytes; its first and last character may also depend on the neighbouring bytes, and are cut off.
    for offset in range(3):
        text = base64.b64encode(bytes(offset) + data).decode()
        interior = text[(offset * 8 + 5) // 6 : (offset + len(data)) * 8 // 6]
        if len(interior) >= 2 * _SHORTEST or not offset:
            forms |= {interior, interior.replace("+", "-").replace("/", "_")}
    return frozenset(form for form in forms if len(form) >= _SHORTEST)


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "surrogatepass").decode("ascii")
