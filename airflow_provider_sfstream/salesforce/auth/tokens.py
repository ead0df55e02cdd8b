"""The access token, and where clients get it from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from airflow_provider_sfstream.exceptions import AuthenticationError
from airflow_provider_sfstream.redaction import remember_secrets


@dataclass(frozen=True)
class AccessToken:
    """What a login gave: enough to call any Salesforce API. Neither its repr nor an error shows the token.

    :param value: the access token (or session id) itself.
    :param instance_url: scheme and host of the org, without a path.
    :param org_id: 15 or 18 characters.
    :param user_id: of the user that logged in, where known.
    :raises AuthenticationError: if the token is empty or cannot be sent in a header.
    """

    value: str = field(repr=False)
    instance_url: str
    org_id: str
    user_id: str | None = None

    def __post_init__(self) -> None:
        remember_secrets(self.value)
        # Checked here, because libraries quote a header that they refuse, and with it the token.
        if not self.value or not self.value.isascii() or not self.value.isprintable() or " " in self.value:
            raise AuthenticationError(
                "The access token is empty or not one line of printable ASCII. Check where it comes from."
            )


class TokenProvider(Protocol):
    """Gives the current access token, and logs in when there is none. Safe for many threads and tasks at once."""

    def token(self) -> AccessToken:
        """Return the current token, logging in if needed.

        :raises AuthenticationError: if the login failed.
        """
        ...

    async def atoken(self) -> AccessToken:
        """Do what :meth:`token` does, without blocking the event loop."""
        ...

    def invalidate(self, token: AccessToken) -> None:
        """Forget ``token``, which Salesforce refused. Does nothing if another one has taken its place."""
        ...
