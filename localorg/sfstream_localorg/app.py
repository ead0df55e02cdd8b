"""HTTP server of the local org: one aiohttp application, served over HTTP and HTTPS."""

from __future__ import annotations

from email.utils import formatdate

from aiohttp import web
from aiohttp.typedefs import Handler

from sfstream_localorg.admin import endpoint as admin
from sfstream_localorg.cometd import endpoint
from sfstream_localorg.cometd.responses import close
from sfstream_localorg.login import oauth, soap
from sfstream_localorg.org import Org
from sfstream_localorg.rest import endpoint as rest

_LARGEST_BODY = 64 * 1024 * 1024


def make_app(org: Org) -> web.Application:
    """Return the application with the routes of all interfaces; it writes each call to the org's request log."""

    @web.middleware
    async def log_request(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path.startswith(admin.PREFIX):
            return await handler(request)
        entry = org.request_log.begin("http", f"{request.method} {request.path}")
        try:
            response = await handler(request)
        except web.HTTPException as error:
            entry.outcome = str(error.status)
            raise
        except ConnectionError:  # the client closed the connection before the end of the response
            entry.outcome = "CANCELLED"
            return close(request)
        except Exception:
            entry.outcome = "500"
            raise
        entry.outcome = str(response.status)
        if request.path == "/services/oauth2/revoke":
            org.wake_streams()
        return response

    async def set_date(request: web.Request, response: web.StreamResponse) -> None:
        """Set the header ``Date`` by the org's clock; aiohttp has set it by the machine's clock."""
        if org.knobs.http_date:
            response.headers["Date"] = formatdate(org.now(), usegmt=True)
        else:
            response.headers.popall("Date", None)

    app = web.Application(middlewares=[log_request], client_max_size=_LARGEST_BODY)
    app.on_response_prepare.append(set_date)
    for routes in (admin.routes, oauth.routes, soap.routes, endpoint.routes, rest.routes):
        app.add_routes(routes(org))
    return app
