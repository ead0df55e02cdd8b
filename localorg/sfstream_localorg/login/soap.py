"""SOAP ``login()`` for older clients: ``POST /services/Soap/u/{version}`` (§4.1 and §7.3).

The children of ``result`` and ``userInfo`` have Salesforce's order, because Salesforce's Python sample reads them by
position. As announced by Salesforce, versions from 65.0 on do not have ``login()``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from aiohttp import web

from sfstream_localorg.identifiers import derived
from sfstream_localorg.login.grants import password_is_right
from sfstream_localorg.login.oauth import base_url

if TYPE_CHECKING:
    from sfstream_localorg.org import Org

_PARTNER = "urn:partner.soap.sforce.com"
_FIRST_VERSION_WITHOUT_LOGIN = 65
_SESSION_SECONDS = 7200


class SoapFaultError(Exception):
    """Refusal of ``login()``: status 500 with an exception code and a message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


def routes(org: Org) -> list[web.RouteDef]:
    """Return the routes of ``login()``; the path may end with the org id, as in ``serverUrl``."""

    async def login(request: web.Request) -> web.Response:
        try:
            answer, status = _login(org, request, await request.text()), 200
        except SoapFaultError as fault:
            answer, status = _fault(fault), 500
        return web.Response(status=status, text=answer, content_type="text/xml")

    return [web.post(f"/services/Soap/u/{{version}}{rest}", login) for rest in ("", "/", "/{org_id}")]


def _login(org: Org, request: web.Request, envelope: str) -> str:
    version = request.match_info["version"]
    match = re.fullmatch(r"([0-9]{2,3})\.0", version)
    if match is None or int(match[1]) >= _FIRST_VERSION_WITHOUT_LOGIN:
        raise SoapFaultError("UNSUPPORTED_API_VERSION", f"SOAP API login() is not available in version {version}")
    username, password = _credentials(envelope)
    if not password_is_right(org, username, password):
        raise SoapFaultError("INVALID_LOGIN", "Invalid username, password, security token; or user locked out.")
    token = org.sessions.issue(org.username, client_id="SOAP")
    return _result(org, base_url(org, request), version, token)


def _credentials(envelope: str) -> tuple[str, str]:
    try:
        # Safe for untrusted XML: Expat limits entity expansion since 2.4.1, and the server limits the body size.
        root = ElementTree.fromstring(envelope)  # noqa: S314
    except ElementTree.ParseError:
        raise SoapFaultError("UNKNOWN_EXCEPTION", "The request is not well-formed XML") from None
    login = root.find(f".//{{{_PARTNER}}}login")
    if login is None:
        raise SoapFaultError("UNKNOWN_EXCEPTION", "No operation available for request")
    username = login.findtext(f"{{{_PARTNER}}}username", "")
    return username.strip(), login.findtext(f"{{{_PARTNER}}}password", "")


def _result(org: Org, base: str, version: str, token: str) -> str:
    org_id, user_id = org.sessions.org_id, org.sessions.user_id(org.username)
    user_info = {
        "accessibilityMode": "false",
        "chatterExternal": "false",
        "currencySymbol": "$",
        "orgAttachmentFileSizeLimit": "5242880",
        "orgDefaultCurrencyIsoCode": "USD",
        "orgDefaultCurrencyLocale": "en_US",
        "orgDisallowHtmlAttachments": "false",
        "orgHasPersonAccounts": "true",
        "organizationId": org_id,
        "organizationMultiCurrency": "false",
        "organizationName": "Local org",
        "profileId": derived("00e", org_id),
        "roleId": "",
        "sessionSecondsValid": str(_SESSION_SECONDS),
        "userDefaultCurrencyIsoCode": "",
        "userEmail": org.username,
        "userFullName": org.username.partition("@")[0],
        "userId": user_id,
        "userLanguage": "en_US",
        "userLocale": "en_US",
        "userName": org.username,
        "userTimeZone": "GMT",
        "userType": "Standard",
        "userUiSkin": "Theme3",
    }
    result = {
        "metadataServerUrl": f"{base}/services/Soap/m/{version}/{org_id[:15]}",
        "passwordExpired": "false",
        "sandbox": "false",
        "serverUrl": f"{base}/services/Soap/u/{version}/{org_id[:15]}",
        "sessionId": token,
        "userId": user_id,
    }
    return (
        '<?xml version="1.0" encoding="UTF-8"?>'
        '<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" '
        f'xmlns="{_PARTNER}" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><soapenv:Body>'
        f"<loginResponse><result>{_elements(result)}<userInfo>{_elements(user_info)}</userInfo></result>"
        "</loginResponse></soapenv:Body></soapenv:Envelope>"
    )


def _elements(texts: dict[str, str]) -> str:
    return "".join(
        f"<{name}>{escape(text)}</{name}>" if text else f'<{name} xsi:nil="true"/>' for name, text in texts.items()
    )


def _fault(fault: SoapFaultError) -> str:
    code, message = escape(fault.code), escape(fault.message)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>'
        '<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" '
        'xmlns:sf="urn:fault.partner.soap.sforce.com" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">'
        f"<soapenv:Body><soapenv:Fault><faultcode>sf:{code}</faultcode><faultstring>{code}: {message}</faultstring>"
        f'<detail><sf:LoginFault xsi:type="sf:LoginFault"><sf:exceptionCode>{code}</sf:exceptionCode>'
        f"<sf:exceptionMessage>{message}</sf:exceptionMessage></sf:LoginFault></detail></soapenv:Fault>"
        "</soapenv:Body></soapenv:Envelope>"
    )
