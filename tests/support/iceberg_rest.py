"""Iceberg REST catalog in front of a SQL catalog: the requests that a writer and readers send."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import TableResponse
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError, NoSuchTableError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, Table
from pyiceberg.table.sorting import SortOrder

ERRORS = {NoSuchTableError: 404, CommitFailedException: 409, NamespaceAlreadyExistsError: 409}


class _Handler(BaseHTTPRequestHandler):
    catalog: Catalog
    token: str

    def do_GET(self) -> None:
        self._respond({})

    def do_POST(self) -> None:
        self._respond(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def log_message(self, *_: Any) -> None:
        pass

    def _respond(self, body: dict[str, Any]) -> None:
        path = [unquote(part) for part in self.path.partition("?")[0].split("/")[2:]]
        try:
            assert self.headers["Authorization"] == f"Bearer {self.token}"
            status, result = 200, self._result(path, body)
        except tuple(ERRORS) as error:
            status = ERRORS[type(error)]
            result = {"error": {"message": str(error), "type": type(error).__name__, "code": status}}
        text = (result if isinstance(result, str) else json.dumps(result)).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _result(self, path: list[str], body: dict[str, Any]) -> Any:
        match path:
            case ["config"]:
                return {"defaults": {}, "overrides": {}}
            case ["namespaces"] if body:
                self.catalog.create_namespace(tuple(body["namespace"]))
                return body
            case ["namespaces", namespace, "tables"] if not body:
                names = self.catalog.list_tables(namespace)
                return {"identifiers": [{"namespace": each[:-1], "name": each[-1]} for each in names]}
            case ["namespaces", namespace, "tables"]:
                return self._staged((namespace, body["name"]), body)
            case ["namespaces", namespace, "tables", name] if not body:
                return _response(self.catalog.load_table((namespace, name)))
            case ["namespaces", namespace, "tables", name]:
                return self._commit((namespace, name), body)
        raise AssertionError(f"unsupported request: {self.command} {self.path}")

    def _staged(self, identifier: tuple[str, str], body: dict[str, Any]) -> str:
        assert body["stage-create"]
        schema = Schema.model_validate(body["schema"])
        spec = PartitionSpec.model_validate(body["partition-spec"] or {"spec-id": 0, "fields": []})
        order = SortOrder.model_validate(body["write-order"])
        arguments = (schema, body["location"], spec, order, body["properties"])
        return _response(self.catalog.create_table_transaction(identifier, *arguments)._table)

    def _commit(self, identifier: tuple[str, str], body: dict[str, Any]) -> str:
        body["identifier"] = {"namespace": [identifier[0]], "name": identifier[1]}
        request = CommitTableRequest.model_validate(body)
        table: Any = SimpleNamespace(name=lambda: identifier)
        self.catalog.commit_table(table, request.requirements, request.updates)
        return _response(self.catalog.load_table(identifier))


def _response(table: Table) -> str:
    document = TableResponse(metadata_location=table.metadata_location, metadata=table.metadata, config={})
    return document.model_dump_json(by_alias=True, exclude_none=True)


@contextmanager
def rest_catalog(catalog: Catalog, token: str) -> Iterator[str]:
    """Serve a catalog to clients with a token; yield its URL."""
    handler = type("Handler", (_Handler,), {"catalog": catalog, "token": token})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
