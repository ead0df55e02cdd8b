from __future__ import annotations

from typing import Any

import pytest

from sfstream_localorg.errors import ApiError
from sfstream_localorg.records.entities import STANDARD_ENTITIES
from sfstream_localorg.records.sobjects import Operation
from sfstream_localorg.rest.bulk_rows import RowReader

ACCOUNT = next(entity for entity in STANDARD_ENTITIES if entity.name == "Account")
RECORD_ID = "001000000000001AAA"
NO_RECORDS: Any = None
"""In place of records, which only upserts read."""


def operation_of(operation: str, header: list[str], row: list[str]) -> Operation | ApiError:
    (found,) = RowReader(ACCOUNT, operation, None, header).operations(NO_RECORDS, [row])
    return found


def values(header: list[str], row: list[str]) -> dict[str, Any]:
    operation = operation_of("insert", header, row)
    assert isinstance(operation, Operation)
    return dict(operation.values)


def test_empty_cell_is_omitted_and_the_null_marker_is_null() -> None:
    assert values(["Name", "Phone", "Fax"], ["a", "", "#N/A"]) == {"Name": "a", "Fax": None}


@pytest.mark.parametrize(("cell", "value"), [("TRUE", True), ("1", True), ("y", True), ("Off", False), ("#N/A", None)])
def test_checkbox_cells_become_booleans(cell: str, value: bool | None) -> None:
    assert values(["Some_Check_Box__c"], [cell]) == {"Some_Check_Box__c": value}


@pytest.mark.parametrize(
    ("column", "cell"), [("Some_Check_Box__c", "maybe"), ("AnnualRevenue", "much"), ("Some_Date__c", "x")]
)
def test_cells_of_a_wrong_type_are_errors(column: str, cell: str) -> None:
    error = operation_of("insert", [column], [cell])
    assert isinstance(error, ApiError)
    assert (error.code, error.fields) == ("INVALID_TYPE_ON_FIELD_IN_RECORD", (column,))


def test_update_and_delete_rows_require_an_id() -> None:
    update = operation_of("update", ["Name", "id"], ["a", RECORD_ID[:15]])
    assert update == Operation("UPDATE", ACCOUNT, RECORD_ID, {"Name": "a"})
    assert operation_of("delete", ["ID"], [RECORD_ID]) == Operation("DELETE", ACCOUNT, RECORD_ID, {})
    codes = [operation_of(*one) for one in (("update", ["Id", "Name"], ["", "a"]), ("delete", ["Id"], ["x"]))]
    assert [code.code for code in codes if isinstance(code, ApiError)] == ["MISSING_ARGUMENT", "MALFORMED_ID"]


@pytest.mark.parametrize(
    ("operation", "external_id", "header", "error"),
    [
        ("delete", None, ["Id", "Name"], "The 'delete' batch must contain only ids."),
        ("insert", None, ["Name", "Nothing"], "InvalidBatch : Field name not found : Nothing"),
        ("insert", None, ["Name", "Parent.GUID__c"], "relationships are not modelled"),
        ("insert", None, ["Name", "name"], "named twice"),
        ("update", None, ["Name"], "InvalidBatch : Field name not found : Id"),
        ("upsert", "GUID__c", ["Name"], "InvalidBatch : Field name not found : GUID__c"),
    ],
)
def test_invalid_csv_headers_are_refused(
    operation: str, external_id: str | None, header: list[str], error: str
) -> None:
    with pytest.raises(ValueError) as caught:
        RowReader(ACCOUNT, operation, external_id, header)
    assert error in str(caught.value)
