"""Parsing and evaluation of queries on records in memory, without an org."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from sfstream_localorg.errors import ApiError
from sfstream_localorg.records.entities import STANDARD_ENTITIES
from sfstream_localorg.records.entity import Entity
from sfstream_localorg.records.record_store import StoredRecord
from sfstream_localorg.records.soql import Query, parse, parse_conditions

ENTITIES = {entity.name.lower(): entity for entity in STANDARD_ENTITIES}
NOW = datetime(2026, 1, 14, 15, tzinfo=UTC)
DAY = 86_400_000


class Lookup:
    def get(self, name: str) -> Entity | None:
        return ENTITIES.get(name.lower())


def ms(*moment: int) -> int:
    return int(datetime(*moment, tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc]


def account(number: int, **content: Any) -> StoredRecord:
    return StoredRecord(f"00100000000000{number}AAA", "Account", {"Name": f"n{number}", **content}, 0)


ACCOUNTS = [
    account(0, Industry="Energy", AnnualRevenue=10.0, Some_Date__c=ms(2026, 1, 14), CreatedDate=ms(2026, 1, 14, 23)),
    account(1, Industry="energy 100%", AnnualRevenue=20.0, Some_Date__c=ms(2026, 1, 13), CreatedDate=ms(2026, 1, 1)),
    account(2, Industry="Media_x", ParentId="001000000000000AAA", CreatedDate=ms(2025, 12, 31)),
    account(3, AnnualRevenue=30.0, Industry="back\\slash", ParentId="001000000000001AAA", CreatedDate=ms(2025, 1, 1)),
    account(4, CreatedDate=ms(2024, 1, 1), ParentId="001000000000009AAA"),
]
PARENTS = {"001000000000000AAA": ACCOUNTS[0], "001000000000001AAA": ACCOUNTS[1]}


def parent(entity: Entity, record_id: str) -> StoredRecord | None:
    assert entity.name == "Account"
    return PARENTS.get(record_id)


def query(text: str) -> Query:
    return parse(text, Lookup(), now=NOW.timestamp())


def found(where: str) -> list[int]:
    selected = query(f"SELECT Id FROM Account WHERE {where}").select(ACCOUNTS, parent)
    return [ACCOUNTS.index(record) for record in selected]


@pytest.mark.parametrize(
    ("where", "numbers"),
    [
        ("Name = 'n0' OR Name = 'n2' OR Name = 'N4'", [0, 2, 4]),
        ("(Name = 'n0' OR Name = 'n1') AND AnnualRevenue > 10", [1]),
        ("Name = 'n4' OR (AnnualRevenue > 10 AND Industry = 'back\\\\slash')", [3, 4]),
        ("((Name = 'n4'))", [4]),
        ("NOT Name = 'n0'", [1, 2, 3, 4]),
        ("NOT (Name = 'n0' OR AnnualRevenue = null)", [1, 3]),
        ("AnnualRevenue > 5 AND (NOT Industry LIKE 'energy%')", [3]),
        ("Industry LIKE 'ENERGY%'", [0, 1]),
        ("Industry LIKE 'Energy'", [0]),
        ("Industry LIKE '%e%'", [0, 1, 2]),
        ("Industry LIKE '%100\\%'", [1]),
        ("Industry LIKE 'e%\\%'", [1]),
        ("Industry LIKE 'Media_x'", [2]),
        ("Industry LIKE 'Media\\_x'", [2]),
        ("Industry LIKE 'Medi\\_\\_x'", []),
        ("Industry LIKE 'back\\\\%'", [3]),
        ("Industry LIKE 'En.rgy'", []),
        ("Industry LIKE 'e%gy%0%'", [1]),
        ("Industry LIKE '%gy%gy%'", []),
        ("Industry LIKE 'energy%energy'", []),
        ("Industry LIKE '%%'", [0, 1, 2, 3]),
        ("Industry LIKE ''", []),
        ("Some_Date__c = TODAY", [0]),
        ("Some_Date__c != TODAY", [1, 2, 3, 4]),
        ("Some_Date__c < TODAY", [1]),
        ("Some_Date__c >= YESTERDAY", [0, 1]),
        ("Some_Date__c IN (TOMORROW, YESTERDAY)", [1]),
        ("CreatedDate = TODAY", [0]),
        ("CreatedDate = THIS_MONTH", [0, 1]),
        ("CreatedDate > LAST_MONTH", [0, 1]),
        ("CreatedDate >= last_month", [0, 1, 2]),
        ("CreatedDate <= LAST_MONTH", [2, 3, 4]),
        ("CreatedDate < LAST_MONTH", [3, 4]),
        ("CreatedDate = LAST_N_DAYS:13", [0, 1]),
        ("CreatedDate = LAST_N_YEARS:1 OR CreatedDate = TODAY", [0, 2, 3]),
        ("Parent.Industry = 'energy'", [2]),
        ("parent.industry LIKE 'ENERGY%' AND Parent.Name != 'n0'", [3]),
        ("Parent.Name = null", [0, 1, 4]),
        ("Account.Name = 'n1'", [1]),
    ],
)
def test_conditions(where: str, numbers: list[int]) -> None:
    assert found(where) == numbers


@pytest.mark.parametrize(
    "where",
    [
        "Name = 'a' AND Name = 'b' OR Name = 'c'",
        "Name = 'a' OR Name = 'b' AND Name = 'c'",
        "NOT Name = 'a' AND Name = 'b'",
        "Name = 'a' AND NOT Name = 'b'",
        "(Name = 'a'",
        "Name = 'a')",
        "()",
        "Name LIKE x",
        "Name NOT LIKE 'x'",
        "CreatedDate = SOMEDAY",
        "CreatedDate = LAST_N_DAYS:x",
        "CreatedDate = LAST_N_DAYS:99999999999",
        "CreatedDate = THIS_FISCAL_YEAR",
        "Id IN (SELECT ParentId FROM Account)",
        "Name > null",
        "(" * 1000 + "Name = 'a'" + ")" * 1000,
        "Name = 'a' LIMIT 1.5",
        "Name = 'a' LIMIT -1",
    ],
)
def test_malformed_conditions_are_refused(where: str) -> None:
    with pytest.raises(ApiError) as caught:
        query(f"SELECT Id FROM Account WHERE {where}")
    assert caught.value.code == "MALFORMED_QUERY"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT Nobody.Name FROM Account",
        "SELECT Parent.Nothing FROM Account",
        "SELECT Parent.Parent.Name FROM Account",
        "SELECT Owner.Name FROM Account",  # this lookup has no User
        "SELECT Id FROM Account WHERE AnnualRevenue LIKE '1%'",
        "SELECT Id FROM Account WHERE Id LIKE '001%'",
        "SELECT Id FROM Account WHERE Name = TODAY",
    ],
)
def test_unknown_fields_and_invalid_operators_are_refused(text: str) -> None:
    with pytest.raises(ApiError) as caught:
        query(text)
    assert caught.value.code == "INVALID_FIELD"


@pytest.mark.parametrize(
    ("select", "code"),
    [
        ("COUNT(Id), Name FROM Account", "MALFORMED_QUERY"),
        ("COUNT(), COUNT(Id) FROM Account", "MALFORMED_QUERY"),
        ("COUNT(Id) FROM Account LIMIT 1", "MALFORMED_QUERY"),
        ("COUNT(Id) FROM Account ORDER BY Name", "MALFORMED_QUERY"),
        ("SUM(AnnualRevenue) FROM Account", "MALFORMED_QUERY"),
        ("Industry FROM Account GROUP BY Industry", "MALFORMED_QUERY"),
        ("(SELECT Id FROM Contacts) FROM Account", "MALFORMED_QUERY"),
        ("COUNT(Nothing) FROM Account", "INVALID_FIELD"),
    ],
)
def test_unsupported_selections_are_refused(select: str, code: str) -> None:
    with pytest.raises(ApiError) as caught:
        query(f"SELECT {select}")
    assert caught.value.code == code


def test_like_pattern_without_a_match_is_fast() -> None:
    found = query(f"SELECT Id FROM Account WHERE Name LIKE '{'%a' * 40}b'")
    assert found.select([account(0, Name="a" * 5000)]) == []


def test_name_of_a_person_is_compared_as_one_text() -> None:
    person = StoredRecord("003000000000001AAA", "Contact", {"FirstName": "Ada", "LastName": "Lovelace"}, 0)
    assert query("SELECT Id FROM Contact WHERE Name LIKE 'ada l%' AND Name = 'Ada Lovelace'").select([person])


def test_error_of_unsupported_syntax_names_the_local_org() -> None:
    with pytest.raises(ApiError, match="GROUP is not modelled by the local org"):
        query("SELECT Industry FROM Account GROUP BY Industry")


def test_counts_of_fields_ignore_nulls() -> None:
    soql = query("SELECT COUNT(Id), COUNT(AnnualRevenue) revenues, count(Parent.Name) FROM Account WHERE Name != 'n3'")
    assert soql.columns == ()
    assert soql.counted(soql.select(ACCOUNTS, parent), parent) == {"expr0": 4, "revenues": 2, "expr2": 1}


def test_records_are_sorted_by_a_field_of_their_parent() -> None:
    soql = query("SELECT Id FROM Account WHERE ParentId != null ORDER BY Parent.Industry DESC, Name")
    assert [ACCOUNTS.index(record) for record in soql.select(ACCOUNTS, parent)] == [3, 2, 4]


def test_field_names_are_case_insensitive_and_normalised() -> None:
    soql = query("SELECT name, PARENT.INDUSTRY, account.id FROM account WHERE parent.name = 'x' AND (NOT Phone = '1')")
    assert soql.columns == ("Name", "Parent.Industry", "Id")
    assert soql.compared == {"Parent.Name", "Phone"}
    assert [entity.name for entity in soql.parents] == ["Account"]


def test_query_without_a_clock_refuses_date_literals() -> None:
    with pytest.raises(ApiError, match="not modelled here by the local org"):
        parse("SELECT Id FROM Account WHERE CreatedDate = TODAY", Lookup())


@pytest.mark.parametrize("text", ["Name = 'a' OR Name = 'b'", "NOT Name = 'a'", "Name LIKE 'a'", "Parent.Name = 'a'"])
def test_parse_conditions_accepts_only_comparisons_joined_by_and(text: str) -> None:
    condition, compared = parse_conditions("Name = 'n0' AND AnnualRevenue > 1", ENTITIES["account"])
    assert compared == {"Name", "AnnualRevenue"}
    assert condition.matches(ACCOUNTS[0], parent)
    assert not condition.matches(ACCOUNTS[1], parent)
    with pytest.raises(ApiError):
        parse_conditions(text, ENTITIES["account"])
