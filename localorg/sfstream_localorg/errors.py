"""Errors of the REST API with Salesforce's codes and texts."""

from __future__ import annotations

from typing import Any


class ApiError(Exception):
    """Refusal of a request, or of one of its records, with an HTTP status and Salesforce's ``errorCode``."""

    def __init__(self, code: str, message: str, *, status: int = 400, fields: tuple[str, ...] = ()) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status
        self.fields = fields

    def as_error(self) -> dict[str, Any]:
        """Return the error as an entry of the array in the response to a refused request."""
        entry: dict[str, Any] = {"message": self.message, "errorCode": self.code}
        return entry | {"fields": list(self.fields)} if self.fields else entry

    def as_result(self) -> dict[str, Any]:
        """Return the error as the result of one record of a collection."""
        error = {"statusCode": self.code, "message": self.message, "fields": list(self.fields)}
        return {"success": False, "errors": [error]}


def not_found(what: str = "The requested resource does not exist") -> ApiError:
    """Return the error for a path, an object type or a record that does not exist."""
    return ApiError("NOT_FOUND", what, status=404)
