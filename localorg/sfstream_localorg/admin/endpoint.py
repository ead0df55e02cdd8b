"""HTTP endpoints under ``/admin``: topics, events, knobs, faults, sessions and the request log.

Not part of Salesforce. The endpoints need no authentication, because the org listens on loopback by default. Request
and response bodies are JSON. A request that cannot be carried out changes nothing; its response is 400 with
``{"error": ...}``.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from aiohttp import web

from sfstream_localorg.admin import faults as admin_faults
from sfstream_localorg.admin.events import EventControls
from sfstream_localorg.admin.knobs import Knobs
from sfstream_localorg.admin.managed import ManagedControls
from sfstream_localorg.bus.event_bus import ReplayIdCorruptedError
from sfstream_localorg.bus.topics import TopicDefinition
from sfstream_localorg.org import Org

PREFIX = "/admin"

Body = dict[str, Any]


def routes(org: Org) -> list[web.RouteDef]:
    """Return the routes under ``/admin``."""
    admin = _Admin(org)
    events = EventControls(org)
    faults = admin_faults.FaultControls(org)
    managed = ManagedControls(org)
    table: list[tuple[str, str, Callable[[web.Request, Body], Awaitable[Any]]]] = [
        ("GET", "/org", admin.describe),
        ("GET", "/topics", admin.list_topics),
        ("PUT", "/topics", admin.load_topics),
        ("PUT", "/topics/{name}", admin.put_topic),
        ("PUT", "/channels/{name}", admin.put_channel),
        ("PUT", "/push_topics/{name}", admin.put_push_topic),
        ("PUT", "/generic_channels", admin.put_generic_channel),
        ("GET", "/managed_subscriptions", managed.show),
        ("PUT", "/managed_subscriptions/{name}", managed.put),
        ("PATCH", "/managed_subscriptions/{name}", managed.change),
        ("DELETE", "/managed_subscriptions/{name}", managed.delete),
        ("POST", "/managed_subscriptions/{name}/recreate", managed.recreate),
        ("POST", "/managed_subscriptions/{name}/commit", managed.commit),
        ("POST", "/events", events.publish),
        ("GET", "/events", events.record),
        ("GET", "/knobs", admin.get_knobs),
        ("PATCH", "/knobs", admin.turn_knobs),
        ("DELETE", "/knobs", admin.reset_knobs),
        ("GET", "/requests", admin.get_requests),
        ("DELETE", "/requests", admin.clear_requests),
        ("POST", "/sessions", admin.issue_session),
        ("POST", "/sessions/revoke", admin.revoke_sessions),
        ("GET", "/faults", faults.show),
        ("DELETE", "/faults", faults.clear),
        ("POST", "/faults/{fault}", faults.set),
    ]
    return [web.route(method, PREFIX + path, _json_handler(handler)) for method, path, handler in table]


def _json_handler(
    handler: Callable[[web.Request, Body], Awaitable[Any]],
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        try:
            text = await request.text()
            body = json.loads(text) if text else {}
            if not isinstance(body, dict):
                raise ValueError("the body must be a JSON object")
            return web.json_response(await handler(request, body))
        except KeyError as error:
            return web.json_response({"error": f"{error.args[0]!r} is missing or unknown"}, status=400)
        except ReplayIdCorruptedError:
            return web.json_response({"error": "the replay ID is not one that can be resumed from"}, status=400)
        except (ValueError, TypeError) as error:
            return web.json_response({"error": str(error)}, status=400)

    return handle


class _Admin:
    def __init__(self, org: Org) -> None:
        self._org = org

    async def describe(self, request: web.Request, body: Body) -> Any:
        return {
            "org_id": self._org.org_id,
            "user_id": self._org.user_id,
            "now": self._org.now(),
            "delivered": self._org.deliveries.used,
            "published": self._org.publications.used,
            "streams": [{"topic": s.topic, "events": s.delivered} for s in self._org.subscriptions],
            "cometd_sessions": [
                {"client_id": s.client_id, "subscriptions": list(s.subscriptions), "events": s.delivered}
                for s in self._org.cometd
            ],
        }

    async def list_topics(self, request: web.Request, body: Body) -> Any:
        return {
            "topics": [self._topic_as_dict(topic) for topic in self._org.topics.all()],
            "streaming_channels": list(self._org.streaming_channels),
        }

    async def load_topics(self, request: web.Request, body: Body) -> Any:
        self._org.load_topics(body)
        return await self.list_topics(request, {})

    async def put_topic(self, request: web.Request, body: Body) -> Any:
        name, fields, volume = request.match_info["name"], body["fields"], body.get("volume")
        return self._topic_as_dict(self._org.topics.define_platform_event(name, fields, volume))

    async def put_channel(self, request: web.Request, body: Body) -> Any:
        return self._topic_as_dict(self._org.topics.define_channel(request.match_info["name"], body["members"]))

    async def put_push_topic(self, request: web.Request, body: Body) -> Any:
        return self._org.define_push_topic({**body, "Name": request.match_info["name"]})

    async def put_generic_channel(self, request: web.Request, body: Body) -> Any:
        return self._org.define_generic_channel(str(body["Name"]))

    async def get_knobs(self, request: web.Request, body: Body) -> Any:
        return self._org.knobs.as_dict()

    async def turn_knobs(self, request: web.Request, body: Body) -> Any:
        self._org.knobs.update(body)
        self._org.wake_streams()
        return self._org.knobs.as_dict()

    async def reset_knobs(self, request: web.Request, body: Body) -> Any:
        return await self.turn_knobs(request, Knobs().as_dict())

    async def get_requests(self, request: web.Request, body: Body) -> Any:
        return {"requests": self._org.request_log.entries()}

    async def clear_requests(self, request: web.Request, body: Body) -> Any:
        self._org.request_log.clear()
        return {}

    async def issue_session(self, request: web.Request, body: Body) -> Any:
        return {"access_token": self._org.sessions.issue(self._org.username)}

    async def revoke_sessions(self, request: web.Request, body: Body) -> Any:
        """Revoke one token (``{"token": ...}``) or all (``{}``), and end the streams opened with them."""
        if "token" in body:
            revoked = int(self._org.sessions.revoke(body["token"]))
        else:
            revoked = self._org.sessions.revoke_all(refresh_tokens=bool(body.get("refresh_tokens", False)))
        self._org.wake_streams()
        return {"revoked": revoked}

    def _topic_as_dict(self, topic: TopicDefinition) -> Body:
        return {**asdict(topic), "schema_id": self._org.topics.schema_id(topic)}
