"""The live check as a user runs it; a second local org stands for the real org."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from live_check.__main__ import main
from live_check.local import local_org
from live_check.login import VARIABLE
from live_check.redaction import hashed
from live_check.run import MANAGED_SUBSCRIPTION
from sfstream_localorg.process import LocalOrg
from tests.support.localorg import wait_until
from tests.support.rest_proxy import RestProxy
from tests.support.secret_sweep import forms, secrets_of

ROOT = Path(__file__).parents[3]
REPORTS = sorted((ROOT / "tests/live_reports").glob("*.json"))
FAST = {
    "keepalive_seconds": 0.5,
    "client_idle_seconds": 1.5,
    "publish_idle_seconds": 1.5,
    "cometd_connect_seconds": 1.0,
}
"""Knobs of both orgs that shorten Salesforce's waits of minutes to seconds."""
WAITING = ["empty_responses", "idle_stream", "idle_publish_stream", "cometd_hold", "managed_visibility", "pings_1_s"]
BACKLOG = 300
LOCAL = [*(f"--local-knob={name}={value}" for name, value in FAST.items()), f"--backlog={BACKLOG}"]


@dataclass
class Checked:
    """Output and exit status of a run."""

    status: int
    out: str
    error: str

    def differences(self) -> list[str]:
        """Return the paths of the rows that are marked as different."""
        return [line.split()[1] for line in self.out.splitlines() if line.startswith("≠")]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    """Start the org that stands for a real one: a second process with its own org ID and ports."""
    with local_org(tmp_path_factory.mktemp("other"), FAST) as org:
        yield org


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def check(
    other: LocalOrg, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., Checked]]:
    """Run a check of the other org."""
    monkeypatch.setenv(VARIABLE, json.dumps(other.airflow_connection()))

    def check(*options: str) -> Checked:
        files = ["--report", str(folder / "report.json"), "--state", str(folder / "state.json")]
        status = main([*files, *LOCAL, *options])
        out, error = capsys.readouterr()
        return Checked(status, out, error)

    yield check
    other.knobs(**FAST)


def report(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "report.json").read_text()))


def channels(org: LocalOrg) -> list[str]:
    answer = org.rest("GET", "/tooling/query?q=SELECT+DeveloperName+FROM+PlatformEventChannel")
    return [record["DeveloperName"] for record in answer["records"]]


def test_identical_org_has_no_differences(check: Callable[..., Checked], other: LocalOrg, folder: Path) -> None:
    before = other.admin("GET", "/org")
    checked = check("--quick")
    assert checked.differences() == [], checked.out
    assert "not answered" not in checked.out, checked.out
    assert checked.status == 0, checked.error
    announced = int(checked.out.partition("at most ")[2].split()[0])
    after = other.admin("GET", "/org")
    used = {name: after[name] - before[name] for name in after if name.startswith(("delivered", "published"))}
    assert f"; {BACKLOG} more events that are published and not delivered;" in checked.out
    assert 20 < sum(used.values()) - BACKLOG <= announced <= 200, used

    # The check removed everything that it created.
    assert other.rest("GET", "/query?q=SELECT+Id+FROM+Account")["records"] == []
    assert list(other.managed_subscriptions()) == [MANAGED_SUBSCRIPTION]
    assert channels(other) == ["Airflow_Sales"]
    assert other.streams() == []

    # The report has all results and nothing that identifies the org.
    text = (folder / "report.json").read_bytes()
    secrets = {
        **secrets_of(other),
        "org id": other.org_id[:15],
        "user": other.username,
        "url": other.https_instance_url,
    }
    assert [name for name, secret in secrets.items() if any(form in text for form in forms(secret))] == []
    results = report(folder)["results"]
    assert results["replay_ids"]["answer"]["bytes"] == 10
    assert results["change_events"]["answer"]["topics"]["channel"]["events"] == ["CREATE", "UPDATE", "DELETE"]
    assert results["topic_refusals"]["answer"]["unknown_topic"]["error_code"] == "topic.not.found"

    # A submitted report is compared with the org, and a changed value is found.
    assert check("--quick", "--compare", str(folder / "report.json")).status == 0
    document = report(folder)
    document["results"]["replay_ids"]["answer"]["bytes"] = 12
    (folder / "sent.json").write_text(json.dumps(document))
    compared = check("--compare", str(folder / "sent.json"), "--probe", "replay_ids")
    assert (compared.status, compared.differences()) == (1, ["replay_ids.bytes"])


def test_slow_probes_of_an_identical_org_have_no_differences(check: Callable[..., Checked]) -> None:
    checked = check(*(f"--probe={name}" for name in WAITING))
    assert (checked.status, checked.differences()) == (0, []), checked.out
    assert "never seen" not in checked.out


@pytest.mark.parametrize(
    ("knob", "value", "probe", "differs"),
    [
        ("credit_cap", 50, "replay_ids", "replay_ids.owed_of_500_asked"),
        ("client_idle_end", "reset", "idle_stream", "idle_stream.end.status"),
        pytest.param("keepalive_seconds", 3.0, "empty_responses", "empty_responses.first", marks=pytest.mark.extended),
        pytest.param(
            "managed_visibility_seconds",
            12.0,
            "managed_visibility",
            "managed_visibility.visible",
            marks=pytest.mark.extended,
        ),
    ],
)
def test_org_with_different_behaviour_is_reported(
    check: Callable[..., Checked], other: LocalOrg, knob: str, value: object, probe: str, differs: str
) -> None:
    other.knobs(**{knob: value})
    checked = check("--probe", probe, "--differences")
    assert checked.status == 1
    assert differs in checked.differences(), checked.out
    other.reset_knobs()


def test_org_that_seeks_through_a_backlog_is_reported(
    check: Callable[..., Checked], other: LocalOrg, folder: Path
) -> None:
    same = check("--probe", "filtered_backlog")
    assert (same.status, same.differences()) == (0, []), same.out
    answer = report(folder)["results"]["filtered_backlog"]["answer"]
    assert (answer["first_event"], answer["empty_responses_before_it"]) == ("the one that matches", [])
    other.fault("seek", responses=3, seconds=0.05)
    checked = check("--probe", "filtered_backlog")
    other.clear_faults()
    assert checked.status == 1
    assert checked.differences() == [
        "filtered_backlog.empty_responses_before_it",
        "filtered_backlog.resumed_from_the_last_of_them",
    ]
    result = report(folder)["results"]["filtered_backlog"]
    assert result["answer"]["empty_responses_before_it"][:2] == ["within the backlog"] * 2
    assert len(result["answer"]["empty_responses_before_it"]) == 3
    assert result["answer"]["resumed_from_the_last_of_them"] == "the event"
    # The org sends the event directly after the last empty response, within the reported millisecond.
    measured = result["measured"]
    assert measured["empty_response_1"] < measured["empty_response_3"] <= measured["event"]
    assert channels(other) == ["Airflow_Sales"]


def test_user_without_the_right_to_create_channels_skips_the_probe(
    check: Callable[..., Checked], proxy: RestProxy
) -> None:
    proxy.error("POST", "/tooling/sobjects/PlatformEventChannel", 403, "INSUFFICIENT_ACCESS")
    checked = check("--probe", "filtered_backlog")
    assert (checked.status, checked.differences()) == (0, []), checked.out
    assert (
        "not answered by the org: filtered_backlog: POST /tooling/sobjects/PlatformEventChannel: HTTP 403"
        in checked.out
    )


def test_expired_replay_id_is_probed_three_days_later(
    check: Callable[..., Checked], other: LocalOrg, folder: Path
) -> None:
    early = check("--after", "73h")
    assert (early.status, "no state file" in early.error) == (2, True)
    (replay_id,) = other.publish("/event/Airflow_Order__e", [{"Amount__c": 1.0}])
    stored_at = datetime.now(UTC) - timedelta(hours=74)
    state = {"org": hashed(other.org_id), "left_at": stored_at.isoformat(), "replay_id": replay_id.hex()}
    (folder / "state.json").write_text(json.dumps(state))
    unexpired = check("--after", "73h")
    assert unexpired.status == 1, "the other org still has the event"
    assert "expired_replay_id.status" in unexpired.differences()
    other.knobs(clock_offset_seconds=74 * 3600.0)
    expired = check("--after", "73h")
    assert (expired.status, expired.differences()) == (0, []), expired.out
    codes = report(folder)["results"]["expired_replay_id"]["answer"]["error_code"]
    assert codes == "subscription.fetch.replayid.corrupted"
    other.reset_knobs()


@pytest.fixture
def proxy(other: LocalOrg, monkeypatch: pytest.MonkeyPatch) -> Iterator[RestProxy]:
    """Start a proxy before the REST API of the other org, for checks that log in with an access token."""
    with RestProxy.running(other.instance_url) as proxy:
        extra = {"access_token": other.token(), "instance_url": proxy.url, "organization_id": other.org_id}
        endpoint = {"pubsub_endpoint": f"http://127.0.0.1:{other.grpc_port}"}
        monkeypatch.setenv(VARIABLE, json.dumps({"conn_type": "salesforce", "extra": extra | endpoint}))
        yield proxy


def test_production_org_is_probed_only_if_it_is_named(
    check: Callable[..., Checked], other: LocalOrg, proxy: RestProxy
) -> None:
    record = {"IsSandbox": False, "OrganizationType": "Enterprise Edition"}
    proxy.answer("GET", "/query?q=SELECT+IsSandbox", 200, {"records": [record]}, times=2)
    other.admin("DELETE", "/requests")
    refused = check("--quick")
    assert refused.status == 2
    assert f"--production-org {other.org_id}" in refused.error
    assert other.requests("grpc") == []
    named = check("--probe", "topics", "--production-org", other.org_id)
    assert named.status == 0, named.out + named.error
    assert other.requests("grpc") != []


def test_records_that_cannot_be_removed_are_named(
    check: Callable[..., Checked], other: LocalOrg, proxy: RestProxy
) -> None:
    proxy.error("DELETE", "/sobjects/Account", 403, "INSUFFICIENT_ACCESS", times=3)
    checked = check("--probe", "change_events")
    remaining = [record["Id"] for record in other.rest("GET", "/query?q=SELECT+Id+FROM+Account")["records"]]
    assert (checked.status, len(remaining)) == (3, 2)
    for record_id in remaining:
        assert f"NOT DELETED, delete it manually: /sobjects/Account/{record_id}: HTTP 403" in checked.error
        other.rest("DELETE", f"/sobjects/Account/{record_id}")


def test_interrupted_check_removes_its_managed_subscription(
    check: Callable[..., Checked], other: LocalOrg, folder: Path
) -> None:
    other.knobs(managed_visibility_seconds=60)
    command = [sys.executable, "-m", "live_check", "--probe", "managed_visibility", *LOCAL]
    # A shell makes background programs ignore SIGINT, and their child processes inherit that.
    interruptible = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with (
        (folder / "out").open("w") as out,
        subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out, preexec_fn=interruptible) as run,
    ):
        wait_until(lambda: len(other.managed_subscriptions()) == 2, what="the managed subscription of the check")
        run.send_signal(signal.SIGINT)
        assert run.wait(60) == 130, (folder / "out").read_text()
    assert list(other.managed_subscriptions()) == [MANAGED_SUBSCRIPTION]
    other.reset_knobs()


@pytest.mark.extended
def test_org_without_the_sample_metadata_skips_probes_that_need_it(
    check: Callable[..., Checked], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalOrg.running(tmp_path / "bare") as bare:
        bare.knobs(**FAST)
        monkeypatch.setenv(VARIABLE, json.dumps(bare.airflow_connection()))
        checked = check("--quick")
    assert (checked.status, checked.differences()) == (0, []), checked.out
    assert "not answered by the org: topics.channel: /data/Airflow_Sales__chn: NOT_FOUND" in checked.out
    assert "not answered by the org: managed_commits: managed event subscription Airflow_Orders" in checked.out
    assert "The second part cannot run" in checked.out


def test_missing_connection_names_the_variable_to_set() -> None:
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    command = [sys.executable, "-m", "live_check"]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == 2
    assert f"export {VARIABLE}=" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_local_org_matches_reports_of_real_orgs_in_quick_probes(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the probes that wait for minutes; the next test runs them too."""
    assert main(["--quick", "--differences", "--compare", str(path)]) == 0, capsys.readouterr().out


@pytest.mark.extended
@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_local_org_matches_reports_of_real_orgs_in_all_probes(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--differences", "--compare", str(path)]) == 0, capsys.readouterr().out
