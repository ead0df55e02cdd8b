"""Compare the local org with a real org: ``python -m live_check``, or ``make live-check``.

Exit status: 0 equal answers, 1 different answers, 2 the check did not run, 3 a record that the check created could not
be deleted, 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow_provider_sfstream.exceptions import SalesforceStreamError
from live_check import comparison, report, state
from live_check.asking import Results, ask_all, ask_side_by_side
from live_check.local import probed_local_org
from live_check.login import Login, NotRunError, check_not_production, log_in_from_environment
from live_check.probe import AFTER, BACKLOG, FIRST, MOST_EVENTS, Probe
from live_check.probes import PROBES
from live_check.run import ProbedOrg, SkippedError
from sfstream_localorg.evidence import BEHAVIOURS

SAME, DIFFERENT, NOT_RUN, LEFT_BEHIND = range(4)
INTERRUPTED = 130
FOLDER = Path("build/live-check")


def say(text: str) -> None:
    """Print a line and flush the output."""
    print(text, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the check and return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        if options.compare is not None:
            return _compare(options)
        return _check(options)
    except (NotRunError, SalesforceStreamError, report.ReportError) as error:
        print(error, file=sys.stderr)
        return NOT_RUN
    except KeyboardInterrupt:
        print("Interrupted. All records that the check created are deleted, except those above.", file=sys.stderr)
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m live_check", description=__doc__)
    parser.add_argument("--production-org", metavar="ORG_ID", help="allow this production org")
    parser.add_argument("--quick", action="store_true", help="skip probes that wait for minutes")
    parser.add_argument("--long", action="store_true", help="include probes that wait for half an hour")
    parser.add_argument(
        "--probe", action="append", default=[], metavar="NAME", help="run only this probe; may be repeated"
    )
    parser.add_argument(
        "--backlog", type=_at_least_one, default=BACKLOG, metavar="N", help="number of events that a filter drops"
    )
    parser.add_argument("--after", metavar="73h", help="run the second part, when the first event has expired")
    parser.add_argument("--report", type=Path, help=f"where to (default: {FOLDER}/report.json)")
    parser.add_argument("--state", type=Path, default=FOLDER / "state.json", help="state file of the first part")
    parser.add_argument("--compare", type=Path, metavar="REPORT", help="compare a report instead of an org")
    parser.add_argument(
        "--local-knob", action="append", default=[], metavar="NAME=VALUE", help="set a knob of the local org"
    )
    parser.add_argument("--differences", action="store_true", help="print only the rows that differ")
    return parser


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def chosen(options: argparse.Namespace, part: str) -> list[Probe]:
    """Return the probes that the options select.

    :raises NotRunError: if there is no probe with a name in the options.
    """
    of_part = [probe for probe in PROBES if probe.part == part]
    if unknown := set(options.probe) - {probe.name for probe in of_part}:
        raise NotRunError(
            f"There is no probe {', '.join(sorted(unknown))}. Probes: {', '.join(p.name for p in of_part)}. "
            "Nothing was contacted."
        )
    if options.probe:
        return [probe for probe in of_part if probe.name in options.probe]
    return [probe for probe in of_part if (options.long or not probe.is_long) and not (options.quick and probe.waits)]


def _check(options: argparse.Namespace) -> int:
    part = AFTER if options.after else FIRST
    probes = chosen(options, part)
    after = _after(options)
    login = log_in_from_environment()
    org = ProbedOrg(login)
    org.backlog = options.backlog
    left: list[str] = []
    try:
        organization = org.organization()
        check_not_production(organization, login.org_id, options.production_org)
        if after is not None:
            org.left_replay_id = state.read_left(options.state, after, org_id=login.org_id, now=datetime.now(UTC))
        _say_budget(login, probes, options.backlog)
        results, ours = _ask_both(org, probes, options)
        if part == FIRST and not options.probe:
            _leave(org, options.state)
    finally:
        left = org.clean_up()
        org.close()
        for each in left:
            print(f"NOT DELETED, delete it manually: {each}", file=sys.stderr)
    found = _show(results, ours, options)
    # The report of a few probes must not overwrite a report of all probes.
    name = "report-some.json" if options.probe else "report.json" if part == FIRST else "report-after.json"
    path = options.report or FOLDER / name
    report.write(report.report(org, organization, part, results), path, org)
    say(f"\nReport, redacted: {path}. docs/reference/live-check.md describes where to send it.")
    return LEFT_BEHIND if left else DIFFERENT if found else SAME


def _leave(org: ProbedOrg, path: Path) -> None:
    try:
        state.leave(org, path)
        say(f"  In three days, run: make live-check OPTIONS='--after 73h'. Keep {path} unchanged.")
    except SkippedError as missing:
        say(f"  The second part cannot run: {org.redact(str(missing))}")


def _after(options: argparse.Namespace) -> Any:
    try:
        return state.duration(options.after) if options.after else None
    except ValueError as error:
        raise NotRunError(f"--after: {error}. Nothing was contacted.") from None


def _say_budget(login: Login, probes: Sequence[Probe], backlog: int) -> None:
    events = sum(probe.events for probe in probes) + 1
    waits = max((probe.waits for probe in probes), default=0.0) + sum(probe.lasts for probe in probes)
    dropped = backlog if any(probe.has_backlog for probe in probes) else 0
    if events > MOST_EVENTS:
        raise NotRunError(f"These probes would use {events} events, more than {MOST_EVENTS}. Nothing was published.")
    say(
        f"Org {login.org_id}. Budget: at most {events} events published and delivered together (limit of all checks: "
        f"{MOST_EVENTS}); {dropped} more events that are published and not delivered; at most {60 + waits:.0f} s; "
        "a few hundred API requests. The check deletes the records that it creates."
    )


def _ask_both(org: ProbedOrg, probes: Sequence[Probe], options: argparse.Namespace) -> tuple[Results, Results]:
    with probed_local_org(_knobs(options), expired=bool(options.after), backlog=options.backlog) as ours:
        return ask_side_by_side(org, ours, probes, lambda text: say(f"  {text}"))


def _compare(options: argparse.Namespace) -> int:
    document = report.read(options.compare)
    answered = [name for name, result in document["results"].items() if "answer" in result]
    wanted = options.probe or answered
    probes = [
        probe
        for probe in PROBES
        if probe.name in answered and probe.name in wanted and not (options.quick and probe.waits)
    ]
    with probed_local_org(_knobs(options), expired=document["part"] == AFTER) as ours:
        results = ask_all(ours, probes, lambda text: say(f"  {text}"))
    asked = {probe.name: document["results"][probe.name] for probe in probes}
    return DIFFERENT if _show(asked, results, options) else SAME


def _knobs(options: argparse.Namespace) -> dict[str, Any]:
    try:
        return {name: json.loads(value) for name, _, value in (each.partition("=") for each in options.local_knob)}
    except ValueError:
        raise NotRunError("--local-knob must be NAME=VALUE with a JSON value. Nothing was contacted.") from None


def _show(observed: Mapping[str, Any], ours: Mapping[str, Any], options: argparse.Namespace) -> bool:
    """Print the table, the unanswered probes and the unprobed behaviours; return whether there are differences."""
    found = comparison.rows(observed, ours)
    say("")
    say(comparison.table(found, only_differences=options.differences))
    for whose, results in (("the org", observed), ("the local org", ours)):
        for probe, why in comparison.unanswered(results).items():
            say(f"not answered by {whose}: {probe}: {why}")
    differences = sum(row.differs for row in found)
    inferred = sum(row.evidence == "inferred" for row in found)
    say(f"\n{len(found)} values, {differences} differ; {inferred} were only inferred until now.")
    if not options.probe:
        unasked = [each.statement for each in BEHAVIOURS if each.is_unprobed and each.evidence == "inferred"]
        say("\n  - ".join(["Inferred, and not covered by a probe:", *unasked]))
    failed = [probe for probe in ours if "failed" in ours[probe] or "failed" in observed[probe]]
    return bool(differences or failed)


if __name__ == "__main__":
    logging.getLogger("airflow_provider_sfstream").setLevel(logging.ERROR)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # runs the cleanup
    sys.exit(main())
