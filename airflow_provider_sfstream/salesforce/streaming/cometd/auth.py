"""aiosfstream's authenticator on this package's logins."""

from __future__ import annotations

from typing import Any

from aiosfstream.auth import AuthenticatorBase
from aiosfstream.exceptions import AuthenticationError

from airflow_provider_sfstream.exceptions import SalesforceStreamError
from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken, Session, TokenProvider


class SessionAuthenticator(AuthenticatorBase):  # type: ignore[misc]
    """Gives aiosfstream the access token of a :class:`Session`, and a new one when Salesforce refused it.

    Its repr shows no secret. A login that fails raises aiosfstream's ``AuthenticationError``, whose ``__cause__`` is
    the error of :mod:`airflow_provider_sfstream.exceptions`.

    :param session: the session, which other clients may share, or where its tokens come from.
    """

    def __init__(self, session: Session | TokenProvider) -> None:
        super().__init__()
        self._session = session if isinstance(session, Session) else Session(session)
        self._token: AccessToken | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(instance_url={self.instance_url!r})"

    @property
    def token(self) -> AccessToken | None:
        """The token in use, ``None`` before the first login."""
        return self._token

    async def renew(self) -> None:
        """Forget the token in use, which Salesforce refused, and log in again unless another client has done so.

        :raises AuthenticationError: if the login failed.
        """
        if self._token is not None:
            self._session.refused(self._token)
            self._session.renew()
        await self.authenticate()

    async def _authenticate(self) -> tuple[int, dict[str, Any]]:
        try:
            self._token = token = await self._session.atoken()
        except SalesforceStreamError as error:
            raise AuthenticationError(str(error)) from error
        return 200, {"access_token": token.value, "token_type": "Bearer", "instance_url": token.instance_url}
