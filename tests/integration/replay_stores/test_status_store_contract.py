"""Contract of status stores, tested with every store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_provider_sfstream.exceptions import ReplayStoreError
from airflow_provider_sfstream.monitoring.status_store import StatusStore, VariableStatusStore, variable_key
from airflow_provider_sfstream.monitoring.table_status import TableStatusStore
from tests.integration.replay_stores.conftest import ON_SERVERS
from tests.support.replay_stores import DictVariables

SUBJECT = "sfstream://salesforce_default/event/Order__e?subscription=airflow"
OTHER = "s3://lake/replica"


@pytest.fixture(params=["variables", "sqlite", *ON_SERVERS])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], StatusStore]]:
    """Return a function that opens the same store each time it is called."""
    if request.param == "variables":
        variables = DictVariables()
        yield lambda: VariableStatusStore(variables)
        return
    database = f"sqlite:///{tmp_path}/status.db"
    if request.param != "sqlite":
        database = request.getfixturevalue(f"{request.param}_server").new_database()
    stores: list[TableStatusStore] = []

    def open_again() -> StatusStore:
        stores.append(TableStatusStore(database))
        return stores[-1]

    yield open_again
    for store in stores:
        store.close()


def seen(store: StatusStore, subject: str, section: str) -> object:
    """Return the stored section, read by a change that changes nothing."""
    found: list[object] = []

    def look(before: object) -> dict[str, object]:
        found.append(before)
        return dict(before) if isinstance(before, dict) else {}

    store.change(subject, section, look)
    return found[0]


def test_change_receives_and_replaces_the_stored_section(opened: Callable[[], StatusStore]) -> None:
    opened().change(SUBJECT, "drain", lambda before: {"runs": [1], "before": before})
    opened().change(SUBJECT, "drain", lambda before: {"runs": [*(before or {})["runs"], 2]})
    assert seen(opened(), SUBJECT, "drain") == {"runs": [1, 2]}


def test_sections_of_different_subjects_are_separate(opened: Callable[[], StatusStore]) -> None:
    for subject, section in ((SUBJECT, "drain"), (SUBJECT, "windows"), (OTHER, "drain")):
        opened().change(subject, section, lambda _, name=f"{subject} {section}": {"name": name})
    assert seen(opened(), SUBJECT, "drain") == {"name": f"{SUBJECT} drain"}
    assert seen(opened(), OTHER, "drain") == {"name": f"{OTHER} drain"}


def test_large_documents_in_any_script_are_stored_unchanged(opened: Callable[[], StatusStore]) -> None:
    document = {"windows": [{"name": "注文-🚚" * 40} for _ in range(1_000)]}
    opened().change(SUBJECT, "windows", lambda _: document)
    assert seen(opened(), SUBJECT, "windows") == document


def test_a_forgotten_subject_has_no_sections(opened: Callable[[], StatusStore]) -> None:
    assert opened().forget(SUBJECT) == 0
    for subject, section in ((SUBJECT, "drain"), (SUBJECT, "windows"), (OTHER, "drain")):
        opened().change(subject, section, lambda _: {"n": 1})
    assert opened().forget(SUBJECT) == 2
    assert [status.subject for status in opened().statuses()] == [OTHER]
    assert seen(opened(), SUBJECT, "windows") is None


def test_table_lists_all_sections_except_windows(tmp_path: Path) -> None:
    store = TableStatusStore(f"sqlite:///{tmp_path}/status.db")
    assert store.statuses() == [], "the table does not exist yet"
    for subject, section in ((SUBJECT, "drain"), (SUBJECT, "windows"), (OTHER, "replica")):
        store.change(subject, section, lambda _: {"n": 1})
    assert {(each.subject, each.section) for each in store.statuses()} == {(SUBJECT, "drain"), (OTHER, "replica")}
    assert {each.section for each in store.statuses(subject=SUBJECT)} == {"drain", "windows"}
    assert [each.subject for each in store.statuses(section="windows")] == [SUBJECT]
    store.close()


def test_variable_with_an_unsupported_status_format_is_named() -> None:
    variables = DictVariables()
    variables.values[variable_key(SUBJECT, "drain")] = '{"format": "sfstream-status", "version": 99}'
    with pytest.raises(ReplayStoreError, match=r"version 99.*Delete it"):
        VariableStatusStore(variables).change(SUBJECT, "drain", lambda _: {})
