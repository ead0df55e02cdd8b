"""SOQL queries for whole records: validation of names and IDs, and maximum lengths."""

from __future__ import annotations

from urllib.parse import quote_plus

import pytest

from airflow_provider_sfstream.salesforce.soql import chunks, count, fits_in_url, ids_in_body, ids_in_url, select

A, B = "001000000000001AAA", "001000000000002AAA"
COLUMNS = ["Id", "Name", "Some_Text__c"]


def test_text_of_a_query() -> None:
    assert select("Account", COLUMNS) == "SELECT Id,Name,Some_Text__c FROM Account"
    assert select("My__c", ["Id"], [A, B]) == f"SELECT Id FROM My__c WHERE Id IN ('{A}','{B}')"
    assert count("Account") == "SELECT COUNT() FROM Account"


@pytest.mark.parametrize(
    ("entity", "columns", "ids"),
    [
        ("Account; x", ["Id"], []),
        ("", ["Id"], []),
        ("Account", ["Id FROM Contact"], []),
        ("Account", ["Na-me"], []),
        ("Account", ["Id"], ["001') OR Id != ('"]),
        ("Account", ["Id"], [A[:14]]),
        ("Account", ["Id"], ["001*"]),
        ("Account", ["Id"], [A + "\n"]),
    ],
)
def test_invalid_names_and_ids_of_a_query_are_refused(entity: str, columns: list[str], ids: list[str]) -> None:
    with pytest.raises(ValueError, match="is not"):
        select(entity, columns, ids)


@pytest.mark.parametrize("columns", [["Id"], COLUMNS, [f"Some_Quite_Long_Field_{number}__c" for number in range(100)]])
def test_number_of_ids_that_fit_into_a_query(columns: list[str]) -> None:
    in_url, in_body = ids_in_url("Account", columns), ids_in_body("Account", columns)
    assert len(quote_plus(select("Account", columns, [A] * in_url))) <= 12_288
    assert len(quote_plus(select("Account", columns, [A] * (in_url + 1)))) > 12_288
    assert len(select("Account", columns, [A] * in_body)) <= 100_000
    assert len(select("Account", columns, [A] * (in_body + 1))) > 100_000
    assert 250 < in_url < in_body < 4_762


def test_columns_that_leave_no_room_for_ids_in_a_url() -> None:
    columns = [f"Some_Quite_Long_Field_{number}__c" for number in range(500)]
    assert ids_in_url("Account", columns) == 0
    assert ids_in_body("Account", columns) > 3_000
    assert not fits_in_url("Account", columns)
    assert fits_in_url("Account", columns[:300])


def test_chunks_of_a_sequence() -> None:
    assert list(chunks(range(5), 2)) == [[0, 1], [2, 3], [4]]
    assert list(chunks([], 2)) == []
