"""Errors of the REST API in Salesforce's own words."""

from __future__ import annotations

from typing import Any


class ApiError(Exception):
    """A request, or one record of it, is refused. Answered with ``status`` and Salesforce's ``errorCode``."""

    def __init__(self, code: str, message: str, *, status: int = 400, fields: tuple[str, ...] = ()) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status
        self.fields = fields

    def as_error(self) -> dict[str, Any]:
        """Return the entry of the array that a refused request is answered with."""
        entry: dict[str, Any] = {"message": self.message, "errorCode": self.code}
        return entry | {"fields": list(self.fields)} if self.fields else entry

    def as_result(self) -> dict[str, Any]:
        """Return the result of one record of a collection."""
        error = {"statusCode": self.code, "message": self.message, "fields": list(self.fields)}
        return {"success": False, "errors": [error]}


def not_found(what: str = "The requested resource does not exist") -> ApiError:
    """Return the error for a path, an object type or a record that is not there."""
    return ApiError("NOT_FOUND", what, status=404)
