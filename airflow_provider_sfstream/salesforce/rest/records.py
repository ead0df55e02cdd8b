"""Client for complete current records of an org: REST API or Bulk API 2.0, with simple-salesforce.

Its client is a part of the hook's interface, as in Airflow's own hook. Calls that need no extra use ``RestClient``.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import requests
from simple_salesforce.api import Salesforce
from simple_salesforce.exceptions import SalesforceError, SalesforceOperationError

from airflow_provider_sfstream.exceptions import ServiceUnavailableError
from airflow_provider_sfstream.salesforce import soql
from airflow_provider_sfstream.salesforce.api_versions import api_version_from
from airflow_provider_sfstream.salesforce.auth.tokens import Session, TokenProvider
from airflow_provider_sfstream.salesforce.closing import ClosedOnExit
from airflow_provider_sfstream.salesforce.errors.rest import job_error, query_error
from airflow_provider_sfstream.salesforce.network.settings import DEFAULT_NETWORK, NetworkSettings
from airflow_provider_sfstream.salesforce.rest.record_session import record_session

FIRST_API_VERSION = 47
"""The first API version with query jobs (Bulk API 2.0 guide, "Create a Query Job")."""

Record = dict[str, str | None]
"""A record's values by field name, each as text in Salesforce's CSV form; ``None`` is null."""

_LONGEST_FIELD = 2**24
"""Characters of one value of a CSV file. Python's default, 2^17, is the length of Salesforce's long text areas."""


_MOST_EMPTY_PAGES = 10
"""Maximum of consecutive empty pages. Salesforce was not observed to send any."""


class RecordClient(ClosedOnExit):
    """Reader of records, including deleted ones in the recycle bin. A context manager that closes its connections.

    Renews its login once for each request with a refused token. Not thread-safe.

    :param job_wait: seconds before the first and between two polls of a query job.
    """

    def __init__(
        self,
        token_provider: TokenProvider,
        *,
        api_version: str,
        network: NetworkSettings = DEFAULT_NETWORK,
        job_wait: float = 2.0,
    ) -> None:
        version = api_version_from(api_version, first=FIRST_API_VERSION, what="query jobs require")
        tokens = Session(token_provider)
        self.org_id = tokens.token().org_id
        self._session = record_session(tokens, network)
        self._job_wait = job_wait
        self._reported_count: int | None = None
        self._locator: str | None = None
        self._session.hooks["response"].append(self._store_page_headers)
        self.salesforce = Salesforce(
            session_id="of the session",  # which authenticates each request, see record_session
            instance_url=tokens.token().instance_url,
            version=version,
            session=self._session,
            parse_float=str,
            object_pairs_hook=dict,
        )

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def describe(self, entity: str) -> dict[str, str]:
        """Return the describe type of each field of ``entity`` that the user may see, by field name."""
        with self._errors(f"{entity}: its fields"):
            described = getattr(self.salesforce, entity).describe()
            return {str(field["name"]): str(field["type"]) for field in described["fields"]}

    def count(self, entity: str) -> int:
        """Return the number of records."""
        with self._errors(f"{entity}: its number of records"):
            return int(self.salesforce.query(soql.count(entity), include_deleted=True)["totalSize"])

    def query(self, entity: str, columns: Sequence[str], ids: Sequence[str] = ()) -> Iterator[Record]:
        """Yield columns of all records, or of those with these ids, page by page through the REST API.

        :param ids: at most :func:`~airflow_provider_sfstream.salesforce.soql.ids_in_url`.
        """
        fetched = 0
        progress = _Progress()
        text = soql.select(entity, columns, ids)
        with self._errors(f"{entity}: its records by the REST API"):
            page = self.salesforce.query(text, include_deleted=True)
        while True:
            with self._errors(f"{entity}: its records by the REST API, after {fetched}"):
                records = [_of_json(record, columns) for record in page["records"]]
            yield from records
            fetched += len(records)
            with self._errors(f"{entity}: its records by the REST API, after {fetched}"):
                if page["done"]:
                    _check_complete(entity, fetched, page["totalSize"])
                    return
                progress.check(len(records))
                progress.follow(page["nextRecordsUrl"])
                page = self.salesforce.query_more(page["nextRecordsUrl"], identifier_is_url=True)

    def bulk_query(
        self, entity: str, columns: Sequence[str], ids: Sequence[str] = (), *, page_records: int
    ) -> Iterator[Record]:
        """Yield columns of all records, or of those with these ids, through a query job of Bulk API 2.0.

        :param ids: at most :func:`~airflow_provider_sfstream.salesforce.soql.ids_in_body`.
        :param page_records: records of one page, which is in memory.
        """
        fetched = 0
        progress = _Progress()
        text = soql.select(entity, columns, ids)
        pages = getattr(self.salesforce.bulk2, entity).query_all(text, max_records=page_records, wait=self._job_wait)
        csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))
        while True:
            with self._errors(f"{entity}: its records by the Bulk API, after {fetched}"):
                page = next(pages, None)
                if page is None:
                    return
                rows = csv.DictReader(io.StringIO(page, newline=""), strict=True)
                records = [_of_csv(row, columns) for row in rows]
                if len(records) != self._reported_count:
                    raise ValueError(
                        f"a page has {len(records)} records, but Salesforce reported {self._reported_count}"
                    )
                if not self._locator:
                    raise ValueError("a page without Sforce-Locator does not show whether another one follows")
                progress.check(len(records))
            yield from records
            fetched += len(records)

    def _store_page_headers(self, response: requests.Response, **_: Any) -> None:
        """Store the headers of a page of a query job, which the library drops: its number of records, its locator."""
        number = response.headers.get("Sforce-NumberOfRecords")
        self._reported_count = int(number) if number and number.isdigit() else None
        self._locator = response.headers.get("Sforce-Locator")

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Convert errors of the libraries to errors of this package, without causes, which contain the request."""
        try:
            yield
        except SalesforceError as fault:
            code, message = _first_error(fault.content)
            raise query_error(fault.status, code, message, what=what) from None
        except SalesforceOperationError as fault:
            raise job_error(str(fault), what=what) from None
        except (requests.exceptions.JSONDecodeError, requests.TooManyRedirects) as fault:
            raise query_error(200, None, type(fault).__name__, what=what) from None
        except requests.RequestException as fault:
            raise query_error(None, None, f"{type(fault).__name__}: {fault}", what=what) from None
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, csv.Error) as fault:
            raise query_error(
                200, None, f"the response is not as documented: {type(fault).__name__}: {fault}", what=what
            ) from None


class _Progress:
    """Check that stops a query with endless pages."""

    def __init__(self) -> None:
        self._empty = 0
        self._paths: set[str] = set()

    def check(self, records: int) -> None:
        """Record a page."""
        self._empty = 0 if records else self._empty + 1
        if self._empty > _MOST_EMPTY_PAGES:
            raise ValueError(f"{self._empty} consecutive empty pages")

    def follow(self, path: Any) -> None:
        """Record the path of the next page; one on another host would receive the token."""
        if not isinstance(path, str) or not path.startswith("/services/") or path in self._paths:
            raise ValueError(f"the path of the next page is invalid or repeated: {path!r}")
        self._paths.add(path)


def _check_complete(entity: str, fetched: int, total: int) -> None:
    """Check that all records of a query were received: a missing one would count as deleted."""
    if fetched < total:
        raise ServiceUnavailableError(
            f"{entity}: its records by the REST API: Salesforce returned {fetched} of {total} records and no further "
            "page. Run the task again: it starts from the beginning. The replica is unchanged."
        )


def _of_json(record: Mapping[str, Any], columns: Sequence[str]) -> Record:
    return {column: _text(record[column]) for column in columns}


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        raise TypeError("a value is a list or an object")
    return None if value is None else str(value)


def _of_csv(row: Mapping[str | None, Any], columns: Sequence[str]) -> Record:
    if None in row or None in row.values():
        raise ValueError("a row has more or fewer values than columns: it is incomplete, or not quoted")
    return {column: row[column] or None for column in columns}


def _first_error(content: Any) -> tuple[str | None, str]:
    """Return code and message of the first error of a response; no code and its text if it is not a list of errors."""
    first = content[0] if isinstance(content, list) and content else content
    if isinstance(first, dict):
        code = first.get("errorCode")
        return (str(code) if code else None), str(first.get("message") or "")
    return None, str(first)
