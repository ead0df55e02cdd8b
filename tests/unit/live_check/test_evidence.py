"""The evidence table: it lists each behaviour of the local org, and each row belongs to a probe."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

import sfstream_localorg
from live_check.probes import PROBES
from sfstream_localorg.evidence import BEHAVIOURS, evidence_of

SOURCES = [path for path in Path(sfstream_localorg.__path__[0]).rglob("*.py") if "evidence" not in path.parts]


def error_codes() -> Iterator[str]:
    """Yield every error code of the Pub/Sub API that the local org's code names in a refusal."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("refused", "invalid") and node.args:
                first = node.args[0]
                if isinstance(first, ast.Constant) and re.fullmatch(r"[a-z]+(\.[a-z]+)+", str(first.value)):
                    yield str(first.value)


def test_evidence_lists_every_error_code_of_the_local_org() -> None:
    codes = set(error_codes())
    assert {"topic.validation.empty", "id.or.developer.name.empty", "publish.topic.mismatch"} <= codes
    statements = " ".join(behaviour.statement for behaviour in BEHAVIOURS)
    assert [code for code in sorted(codes) if code.removeprefix("managed.subscription.") not in statements] == []


def test_evidence_has_a_source_unless_it_is_inferred() -> None:
    assert [each for each in BEHAVIOURS if bool(each.source) is (each.evidence == "inferred")] == []


def test_each_evidence_path_belongs_to_a_probe() -> None:
    probes = [probe.name for probe in PROBES]
    asked = {each.path.partition(".")[0] for each in BEHAVIOURS if not each.is_unprobed}
    assert [path for path in asked if not any(fnmatch(name, path) for name in probes)] == []
    paths = [each.path for each in BEHAVIOURS if not each.is_unprobed]
    assert len(paths) == len(set(paths))


@pytest.mark.parametrize(
    ("path", "evidence"),
    [
        ("topic_refusals.unknown_topic.status", "observed"),
        ("topic_refusals.unknown_topic.error_code", "documented"),
        ("topic_refusals.other_case.error_code", "inferred"),
        ("schemas.fields.Amount__c.doc", "inferred"),
    ],
)
def test_most_specific_evidence_row_applies(path: str, evidence: str) -> None:
    assert evidence_of(path).evidence == evidence


def test_every_probe_has_evidence_for_unexpected_answers() -> None:
    for probe in PROBES:
        evidence_of(f"{probe.name}.what_nobody_thought_of")


def test_evidence_of_an_unknown_probe_is_an_error() -> None:
    with pytest.raises(LookupError, match="nothing_of_the_kind"):
        evidence_of("nothing_of_the_kind.answer")
