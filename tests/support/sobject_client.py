"""REST client of the local org's sObjects, and helpers that read change events."""

from __future__ import annotations

import json
from typing import Any

import httpx

from live_check.bitmap_names import field_names
from tests.support.localorg import LocalOrg


class SObjectClient:
    """Client of one API version, with its own session."""

    def __init__(self, org: LocalOrg, *, version: str = "59.0", client_name: str = "") -> None:
        headers = {"Authorization": f"Bearer {org.token()}"}
        if client_name:
            headers["Sforce-Call-Options"] = f"client={client_name}"
        self.org = org
        self.base = f"{org.instance_url}/services/data/v{version}"
        self.http = httpx.Client(headers=headers, timeout=30, trust_env=False, verify=False)

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        return self.http.request(method, self.base + path, json=body, **options)

    def create(self, entity: str, **values: Any) -> str:
        response = self.call("POST", f"/sobjects/{entity}", values)
        assert response.status_code == 201, response.text
        return str(response.json()["id"])

    def update(self, entity: str, record_id: str, **values: Any) -> None:
        response = self.call("PATCH", f"/sobjects/{entity}/{record_id}", values)
        assert response.status_code == 204, response.text

    def delete(self, entity: str, record_id: str) -> None:
        response = self.call("DELETE", f"/sobjects/{entity}/{record_id}")
        assert response.status_code == 204, response.text

    def undelete(self, entity: str, record_id: str) -> None:
        response = self.call("POST", f"/sobjects/{entity}/{record_id}/undelete")
        assert response.status_code == 200, response.text

    def query(self, soql: str, *, deleted: bool = False) -> list[dict[str, Any]]:
        response = self.call("GET", "/queryAll" if deleted else "/query", params={"q": soql})
        assert response.status_code == 200, response.text
        page = response.json()
        records = page["records"]
        while not page["done"]:
            page = self.http.get(self.org.instance_url + page["nextRecordsUrl"]).json()
            records += page["records"]
        assert len(records) == page["totalSize"]
        return list(records)

    def schema(self, schema_id: str) -> dict[str, Any]:
        response = self.call("GET", f"/event/eventSchema/{schema_id}", params={"payloadFormat": "COMPACT"})
        assert response.status_code == 200, response.text
        return dict(response.json())

    def close(self) -> None:
        self.http.close()


def error_of(response: httpx.Response) -> tuple[int, str]:
    """Return the status and the errorCode of an error response in Salesforce's format."""
    (error,) = json.loads(response.text)
    assert error["message"]
    return response.status_code, error["errorCode"]


def names(event: dict[str, Any], bitmap: str, schema: dict[str, Any]) -> list[str]:
    """Return the field names encoded in a bitmap of the event header."""
    return field_names(event["ChangeEventHeader"][bitmap], schema)


def not_null(event: dict[str, Any]) -> dict[str, Any]:
    """Return the non-null fields of a change event, without the header; compound fields as ``Parent.Child``."""
    flat: dict[str, Any] = {}
    for name, value in event.items():
        if name == "ChangeEventHeader" or value is None:
            continue
        inside = value.items() if isinstance(value, dict) else [(None, value)]
        flat |= {f"{name}.{child}" if child else name: v for child, v in inside if v is not None}
    return flat
