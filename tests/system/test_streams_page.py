"""The page of streams on an API server under a prefix, with users of several roles: who sees what, and how it looks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import ConsoleMessage, FrameLocator, Page, Route, expect

from airflow_provider_sfstream.monitoring.status import Status
from airflow_provider_sfstream.plugins.page.app import build_app
from tests.support.browser import artifact_folder, browser_page
from tests.support.packages import BROWSER, need
from tests.support.page_server import PageServer, running_page
from tests.support.stream_statuses import BROKEN, HOUR, drained, failed, signed, well

pytestmark = pytest.mark.extended
USERS = {
    "ada": "admin:red",
    "olga": "op:red|black",
    "gail": "op:red",
    "otto": "op:blue",
    "vera": "viewer:red",
    "nobody": ":red",
}
"""An operator may read connections, a viewer may not; ``nobody`` logs in, and may do nothing."""
TAG = "<img src=x onerror=alert(1)>"
VIEW = "plugin/salesforce-streams"


def hostile(now: datetime) -> list[Status]:
    """A stream of which every name that somebody else chooses is markup."""
    found = drained(now, "/event/Hostile__e", subscription=TAG, dag_id=TAG, connection="hostile", ended=HOUR)
    drain = found[0].document
    task = signed(now, TAG, TAG)["task"]
    drain["gaps"] = [{"after": TAG, "since": None, "detected_at": now.isoformat(), "reason": TAG, "task": task}]
    field = {"name": TAG, "type": TAG}
    retyped = [{"name": "Amount__c", "from": "double (Currency)", "to": TAG}]
    change = {"event": TAG, "schema_id": TAG, "before": TAG, "added": [field], "removed": [], "retyped": retyped}
    older = {"event": "Order__e", "added": TAG}  # as nobody but a stranger writes it
    drain["schema_changes"] = [older, {**change, "became_nullable": [field], "at": now.isoformat()}]
    drain["position"] = TAG
    found[1].document["windows"][0] |= {"manifest_url": TAG, "stop_reason": TAG}
    tables = {"tables": {TAG: {"dirty": 1, "flag": TAG}}, "streams": [found[0].subject], "at": now.isoformat()}
    failure = failed(now, found[0].subject, {"What": TAG, TAG: TAG}, TAG)
    failure.document["task"]["dag_id"] = TAG
    return [*found, failure, Status(TAG, "tables", tables), Status(TAG, "replica", signed(now, TAG, TAG))]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    now = datetime.now(UTC)
    new = PageServer(tmp_path_factory.mktemp("page") / "airflow", "/airflow", USERS)
    new.leave([status for state in (well, hostile, *BROKEN.values()) for status in state(now)])
    dags = {"orders": "red", "accounts": "red", "others": "blue", TAG: "black"}
    connections = {"salesforce_default": "red", "hostile": "black"}
    with running_page(new, teams=["red", "blue", "black"], dags=dags, connections=connections):
        yield new


@contextmanager
def browsing(server: PageServer, user: str, **viewport: int) -> Iterator[Page]:
    """A browser in which somebody is logged in, and in which nothing goes wrong unseen."""
    need(BROWSER)
    wrong: list[str] = []

    def told(message: ConsoleMessage) -> None:
        # Chromium says so of each frame that Airflow shows a plugin in.
        if message.type in ("error", "warning") and "allow-same-origin" not in message.text:
            wrong.append(message.text)

    with browser_page(60) as page:
        if viewport:
            page.set_viewport_size({"width": viewport["width"], "height": viewport["height"]})
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        become(page, server, user)
        page.on("console", told)
        yield page
        assert wrong == []


def become(page: Page, server: PageServer, user: str | None) -> None:
    """Log in as somebody else, or log out."""
    page.context.clear_cookies()
    if user is not None:
        page.context.add_cookies([{"name": "_token", "value": server.token(user), "url": server.url}])


def alone(page: Page, server: PageServer, query: str = "") -> Page:
    """Open the page without Airflow's UI around it, and return it when it is shown."""
    page.goto(f"{server.url}/sfstream/{query}")
    expect(page.locator("main")).not_to_have_attribute("aria-busy", "true")
    return page


def opened(page: Page, topic: str) -> Page:
    """Open the view of a stream, and return it when it is shown."""
    page.get_by_role("link", name=topic).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(topic)
    return page


def pictured(page: Page, folder: Path, name: str) -> None:
    picture = folder / f"{name}.png"
    page.screenshot(path=picture, full_page=True)
    print(f"\nscreenshot: {picture}")


def test_every_route_asks_for_login_and_permission(server: PageServer) -> None:
    """Every one that the application has: those that are made later too."""
    routes = build_app().routes
    assert {type(route).__name__ for route in routes} == {"APIRoute"}, "what is mounted asks for nothing"
    paths = [route.path.replace("{name}", "main.js") for route in routes]  # type: ignore[attr-defined]
    assert len(paths) >= 4
    subject = well(datetime.now(UTC))[0].subject
    for path in paths:
        answers = {user: server.get(path.lstrip("/"), user, uri=subject) for user in (None, "nobody", "vera", "ada")}
        statuses = {user: answer.status_code for user, answer in answers.items()}
        # A viewer sees the page, and on it no stream, since they may not read the connection.
        assert statuses == {None: 401, "nobody": 403, "vera": 404 if path == "/api/stream" else 200, "ada": 200}, path
        assert all("SPA" not in answer.text and "<base" not in answer.text for answer in answers.values()), path
        for answer in answers.values():
            policy = answer.headers["content-security-policy"]
            assert "frame-ancestors 'self'" in policy
            assert "unsafe" not in policy


def test_nothing_else_is_answered(server: PageServer) -> None:
    for path in ("docs", "redoc", "openapi.json", "files/..%2fapp.py", "files/../app.py", "files/app.py", "files/"):
        assert server.get(path, "ada").status_code == 404, path


def test_a_file_that_the_browser_has_is_not_sent_again(server: PageServer) -> None:
    first = server.get("files/page.css", "ada")
    again = server.get("files/page.css", "ada", etag=first.headers["etag"])
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")


@pytest.mark.parametrize(("user", "count"), [("ada", 8), ("olga", 8), ("gail", 7), ("otto", 0), ("vera", 0)])
def test_who_may_not_read_dag_and_connection_sees_no_stream(server: PageServer, user: str, count: int) -> None:
    found = server.get("api/streams", user).json()
    assert (len(found["streams"]), found["hidden"], found["unreadable"]) == (count, count < 8, 0)
    assert server.get("api/streams", user, dag="others").json()["streams"] == []


def test_the_worst_comes_first_in_airflows_ui(server: PageServer, tmp_path: Path) -> None:
    folder = artifact_folder(tmp_path)
    with browsing(server, "gail", width=1250, height=690) as page:
        page.goto(f"{server.url}/")
        page.get_by_role("button", name="Browse").click()
        page.get_by_role("menuitem", name="Salesforce streams").click()
        frame = page.frame_locator("iframe")
        expect(frame.get_by_role("heading", level=1)).to_have_text("Salesforce streams")
        expect(frame.get_by_role("rowheader")).to_have_count(7)
        first = frame.get_by_role("row").nth(1)
        expect(first).to_contain_text("/event/Expiring__e")
        expect(first).to_contain_text("Unread events are lost soon")
        expect(frame.get_by_role("row").last).to_contain_text("Good")
        expect(frame.get_by_role("img", name=re.compile("Time left: none known, 71 h assumed of 72 h"))).to_be_visible()
        pictured(page, folder, "streams_page")
        follow_the_theme(page, frame)
        pictured(page, folder, "streams_page_dark")
        leave_for_the_task(page, frame, server)


def follow_the_theme(page: Page, frame: FrameLocator) -> None:
    """Change the colours of Airflow's UI as its menu does: the page follows at once."""
    html = frame.locator("html")
    expect(html).to_have_attribute("data-theme", "light")
    light = html.evaluate("(element) => getComputedStyle(element).getPropertyValue('--text')")
    page.get_by_role("button", name="User").click()
    page.get_by_role("menuitem", name="Appearance").click()
    page.get_by_role("menuitemradio", name="Dark").or_(page.get_by_role("menuitem", name="Dark")).first.click()
    expect(html).to_have_attribute("data-theme", "dark")
    assert html.evaluate("(element) => getComputedStyle(element).getPropertyValue('--text')") != light
    page.keyboard.press("Escape")


def leave_for_the_task(page: Page, frame: FrameLocator, server: PageServer) -> None:
    """Go on to a stream, back by its address, and to the task of a window: out of the frame, which is sandboxed."""
    frame.get_by_role("link", name="/event/Order__e").click()
    expect(frame.get_by_role("heading", level=1)).to_have_text("/event/Order__e")
    expect(page).to_have_url(re.compile(re.escape(f"{server.url}/{VIEW}/") + ".*stream=sfstream"))
    page.reload()
    expect(frame.get_by_role("heading", level=1)).to_have_text("/event/Order__e")
    expect(frame.locator("html")).to_have_attribute("data-theme", "dark")
    frame.locator("a .window").last.click()
    expect(page).to_have_url(re.compile(f"^{re.escape(server.url)}/dags/orders/runs/scheduled__[^/]*/tasks/drain"))


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_stream_says_what_is_wrong(server: PageServer, tmp_path: Path, name: str) -> None:
    says = {
        "expiring": ("Unread events are lost soon", "64 h ago"),
        "gap": ("Events were lost", "accepted by ada"),
        "failed_login": ("the login was refused", "Check consumer_key and consumer_secret."),
        "quarantine": ("Rows are in quarantine", "15, 1 h"),
        "dirty_replica": ("Dirty rows wait for a refresh", "s3://lake/replica"),
        "never_confirmed": ("Its end was never confirmed", "covers no time"),
    }[name]
    topic = BROKEN[name](datetime.now(UTC))[0].document["stream"]["topic"]
    with browsing(server, "olga") as page:
        page.set_viewport_size({"width": 1250, "height": 850})
        opened(alone(page, server), topic)
        for text in says:
            expect(page.locator("main")).to_contain_text(text)
        pictured(page, artifact_folder(tmp_path), f"streams_page_{name}")


def test_a_name_from_salesforce_is_text(server: PageServer, tmp_path: Path) -> None:
    with browsing(server, "olga") as page:
        row = alone(page, server).get_by_role("row").filter(has_text="/event/Hostile__e")
        expect(row).to_contain_text(TAG)
        opened(page, "/event/Hostile__e")
        page.locator("summary").last.click()
        main = page.locator("main")
        for section in ("State", "Where it stands", "Windows", "Gaps", "Schema changes", "Replica"):
            shown = main.locator("section").filter(has=page.get_by_role("heading", name=section, exact=True))
            expect(shown).to_contain_text(TAG)
        changes = main.get_by_role("table", name="Changes of schemas, newest first")
        for text in (
            f"Added: {TAG}, {TAG}",
            f"Retyped: Amount__c, double (Currency) before, {TAG} now",
            f"May be null now: {TAG}, {TAG}",
        ):
            expect(changes).to_contain_text(text)
        expect(page.locator("img")).to_have_count(0)
        pictured(page, artifact_folder(tmp_path), "streams_page_hostile")


@pytest.mark.parametrize("width", [390, 768])
def test_nothing_is_cut_off_in_a_narrow_window(server: PageServer, tmp_path: Path, width: int) -> None:
    fits = "document.documentElement.scrollWidth <= window.innerWidth"
    with browsing(server, "olga", width=width, height=844) as page:
        assert alone(page, server).evaluate(fits)
        pictured(page, artifact_folder(tmp_path), f"streams_page_{width}")
        opened(page, "/event/Lost__e")
        page.locator("summary").last.click()
        assert page.evaluate(fits)


def test_it_is_used_by_the_keyboard_and_read_aloud(server: PageServer) -> None:
    with browsing(server, "olga") as page:
        alone(page, server)
        names = []
        for _ in range(3):
            page.keyboard.press("Tab")
            names.append(
                page.evaluate("document.activeElement.labels?.[0]?.textContent ?? document.activeElement.textContent")
            )
        assert names == ["Refresh", "Filter", "/event/Expiring__e"], "the order of what is seen"
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("/event/Expiring__e")
        drawings = page.locator("svg:not([aria-hidden])")
        assert drawings.count() >= 3
        for label in drawings.evaluate_all(
            "(all) => all.map((svg) => [svg.getAttribute('role'), svg.getAttribute('aria-label')])"
        ):
            assert label[0] == "img"
            assert label[1]
        expect(
            page.get_by_role("img", name=re.compile("^24 windows from .* 24 live, 0 backfill, 6 empty"))
        ).to_be_visible()
        page.locator("summary", has_text="24 windows").press("Enter")
        links = page.get_by_role("table", name="Windows, newest first").get_by_role("link")
        expect(links).to_have_count(24)
        assert "/dags/orders/runs/" in (links.first.get_attribute("href") or "")


def test_streams_are_found_by_their_name(server: PageServer) -> None:
    with browsing(server, "olga") as page:
        alone(page, server).get_by_label("Filter").fill("quarantine")
        expect(page.get_by_role("rowheader")).to_have_count(1)
        expect(page.get_by_role("rowheader")).to_contain_text("/event/Odd__e")
        expect(page.get_by_text("1 of 8 streams")).to_be_visible()


def test_it_says_that_it_loads_and_why_nothing_is_shown(server: PageServer) -> None:
    held: list[Route] = []
    with browser_page(60) as page:
        become(page, server, "olga")
        page.route("**/api/streams", lambda route: held.append(route))
        page.goto(f"{server.url}/sfstream/")
        state, main = page.get_by_role("status").first, page.locator("main")
        expect(state).to_have_text("Loading…")
        expect(main).to_have_attribute("aria-busy", "true")
        refresh = page.get_by_role("button", name="Refresh")
        with server.status_damaged():
            held.pop().continue_()
            expect(state).to_contain_text("The streams cannot be shown. Their status cannot be read")
        page.unroute("**/api/streams")
        refresh.click()
        expect(page.get_by_role("rowheader")).to_have_count(8)
        become(page, server, "otto")
        refresh.click()
        expect(state).to_have_text("There are streams, but you may not read their DAGs or their connections.")
        become(page, server, "nobody")
        refresh.click()
        expect(state).to_contain_text("You may not see this page")
        expect(page.get_by_role("rowheader")).to_have_count(0)
        become(page, server, None)
        refresh.click()
        expect(state).to_contain_text("You are not logged in to Airflow any more")
        assert page.get_by_role("link", name="Log in").get_attribute("href") == f"{server.url}/"
        become(page, server, "olga")
        alone(page, server, "?dag=others")
        expect(state).to_have_text("No task of this DAG has told of a stream yet.")
        alone(page, server, "?stream=sfstream%3A%2F%2Fx%2Fevent%2FNone__e")
        expect(state).to_contain_text("There is no such stream, or you may not read it")
