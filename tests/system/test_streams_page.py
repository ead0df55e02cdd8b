"""The streams page on an API server under a path prefix: visibility for users of several roles, and appearance."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import ConsoleMessage, FrameLocator, Page, Route, expect

from airflow_provider_sfstream.monitoring.status import Status
from airflow_provider_sfstream.plugins.page.app import build_app
from tests.support.browser import artifact_folder, browser_page
from tests.support.packages import BROWSER, need
from tests.support.page_server import PageServer, running_page
from tests.support.stream_statuses import (
    HOUR,
    UNHEALTHY,
    drain_statuses,
    failure_status,
    healthy,
    never_confirmed,
    task_fields,
)

pytestmark = pytest.mark.extended
USERS = {
    "ada": "admin:red",
    "olga": "op:red|black",
    "gail": "op:red",
    "otto": "op:blue",
    "vera": "viewer:red",
    "nobody": ":red",
}
"""An operator may read connections, a viewer may not. ``nobody`` can log in and has no permission."""
TAG = "<img src=x onerror=alert(1)>"
VIEW = "plugin/salesforce-streams"


def hostile(now: datetime) -> list[Status]:
    """Return a stream in which all names from outside contain markup."""
    found = drain_statuses(now, "/event/Hostile__e", subscription=TAG, dag_id=TAG, connection="hostile", ended=HOUR)
    drain = found[0].document
    task = task_fields(now, TAG, TAG)["task"]
    drain["gaps"] = [{"after": TAG, "since": None, "detected_at": now.isoformat(), "reason": TAG, "task": task}]
    field = {"name": TAG, "type": TAG}
    retyped = [{"name": "Amount__c", "from": "double (Currency)", "to": TAG}]
    change = {"event": TAG, "schema_id": TAG, "before": TAG, "added": [field], "removed": [], "retyped": retyped}
    older = {"event": "Order__e", "added": TAG}  # the package itself never writes a text here
    drain["schema_changes"] = [older, {**change, "became_nullable": [field], "at": now.isoformat()}]
    drain["position"] = TAG
    found[1].document["windows"][0] |= {"manifest_url": TAG, "stop_reason": TAG}
    tables = {"tables": {TAG: {"dirty": 1, "flag": TAG}}, "streams": [found[0].subject], "at": now.isoformat()}
    failure = failure_status(now, found[0].subject, {"Error": TAG, TAG: TAG}, TAG)
    failure.document["task"]["dag_id"] = TAG
    return [*found, failure, Status(TAG, "tables", tables), Status(TAG, "replica", task_fields(now, TAG, TAG))]


def deleted(now: datetime) -> list[Status]:
    """Return a stream whose DAG does not exist."""
    return drain_statuses(now, "/event/Deleted__e", dag_id="deleted", ended=71 * HOUR)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    now = datetime.now(UTC)
    new = PageServer(tmp_path_factory.mktemp("page") / "airflow", "/airflow", USERS)
    states = (healthy, hostile, never_confirmed, deleted, *UNHEALTHY.values())
    new.store_statuses([status for state in states for status in state(now)])
    dags = {"orders": "red", "accounts": "red", "others": "blue", TAG: "black"}
    connections = {"salesforce_default": "red", "hostile": "black"}
    with running_page(new, teams=["red", "blue", "black"], dags=dags, connections=connections):
        yield new


@contextmanager
def browsing(server: PageServer, user: str, **viewport: int) -> Iterator[Page]:
    """Open a browser page as a logged-in user; fail on console errors, page errors and dialogs."""
    need(BROWSER)
    wrong: list[str] = []

    def collect(message: ConsoleMessage) -> None:
        url = message.location["url"]
        # Chromium logs this warning for each frame in which Airflow shows a plugin.
        is_warning_of_frames = "allow-same-origin" in message.text
        # Airflow's own page of a task: the statuses name DAGs and runs that this Airflow does not have.
        is_missing_dag = "404" in message.text and url.startswith((f"{server.url}/api/", f"{server.url}/ui/"))
        if message.type in ("error", "warning") and not is_warning_of_frames and not is_missing_dag:
            wrong.append(f"{message.text} ({url})")

    with browser_page(60) as page:
        if viewport:
            page.set_viewport_size({"width": viewport["width"], "height": viewport["height"]})
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        log_in(page, server, user)
        page.on("console", collect)
        yield page
        assert wrong == []


def log_in(page: Page, server: PageServer, user: str | None) -> None:
    """Log in as another user, or log out."""
    page.context.clear_cookies()
    if user is not None:
        page.context.add_cookies([{"name": "_token", "value": server.token(user), "url": server.url}])


def open_page(page: Page, server: PageServer, query: str = "") -> Page:
    """Open the streams page without Airflow's UI around it, and wait until it has loaded."""
    page.goto(f"{server.url}/sfstream/{query}")
    expect(page.locator("main")).not_to_have_attribute("aria-busy", "true")
    return page


def open_stream(page: Page, topic: str) -> Page:
    """Open the view of a stream and wait until it has loaded."""
    page.get_by_role("link", name=topic).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(topic)
    return page


def save_screenshot(page: Page, folder: Path, name: str) -> None:
    picture = folder / f"{name}.png"
    page.screenshot(path=picture, full_page=True)
    print(f"\nscreenshot: {picture}")


def test_every_route_asks_for_login_and_permission(server: PageServer) -> None:
    """The test reads the routes from the application, so that it covers new routes too."""
    routes = build_app().routes
    assert {type(route).__name__ for route in routes} == {"APIRoute"}, "mounted applications do not check permissions"
    paths = [route.path.replace("{name}", "main.js") for route in routes]  # type: ignore[attr-defined]
    assert len(paths) >= 4
    subject = healthy(datetime.now(UTC))[0].subject
    for path in paths:
        answers = {user: server.get(path.lstrip("/"), user, uri=subject) for user in (None, "nobody", "vera", "ada")}
        statuses = {user: answer.status_code for user, answer in answers.items()}
        # A viewer may open the page and sees no stream, because a viewer may not read the connection.
        assert statuses == {None: 401, "nobody": 403, "vera": 404 if path == "/api/stream" else 200, "ada": 200}, path
        assert all("SPA" not in answer.text and "<base" not in answer.text for answer in answers.values()), path
        for answer in answers.values():
            policy = answer.headers["content-security-policy"]
            assert "frame-ancestors 'self'" in policy
            assert "unsafe" not in policy


def test_unknown_paths_are_not_found(server: PageServer) -> None:
    for path in ("docs", "redoc", "openapi.json", "files/..%2fapp.py", "files/../app.py", "files/app.py", "files/"):
        assert server.get(path, "ada").status_code == 404, path


def test_a_file_that_the_browser_has_is_not_sent_again(server: PageServer) -> None:
    first = server.get("files/page.css", "ada")
    again = server.get("files/page.css", "ada", etag=first.headers["etag"])
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")


@pytest.mark.parametrize(("user", "count"), [("ada", 9), ("olga", 9), ("gail", 8), ("otto", 0), ("vera", 0)])
def test_streams_are_hidden_from_users_who_may_not_read_dag_and_connection(
    server: PageServer, user: str, count: int
) -> None:
    found = server.get("api/streams", user).json()
    assert (len(found["streams"]), found["hidden"], found["unreadable"]) == (count, count < 9, 0)
    assert server.get("api/streams", user, dag="others").json()["streams"] == []


def test_worst_stream_is_listed_first_in_airflows_ui(server: PageServer, tmp_path: Path) -> None:
    folder = artifact_folder(tmp_path)
    with browsing(server, "gail", width=1250, height=690) as page:
        page.goto(f"{server.url}/")
        page.get_by_role("button", name="Browse").click()
        page.get_by_role("menuitem", name="Salesforce streams").click()
        frame = page.frame_locator("iframe")
        expect(frame.get_by_role("heading", level=1)).to_have_text("Salesforce streams")
        expect(frame.get_by_role("rowheader")).to_have_count(8)
        expect(frame.locator(".banner")).to_contain_text("1 stream loses events within 8 hours")
        first = frame.get_by_role("row").nth(1)
        expect(first).to_contain_text("/event/Expiring__e")
        expect(first).to_contain_text("Unread events are lost soon")
        good = frame.get_by_role("row").filter(has_text="/event/Busy__e")
        expect(good).to_contain_text("Good")
        expect(good).to_contain_text("End of stream never confirmed")
        expect(good.get_by_role("img", name=re.compile("Time left: 7[12] h of 72 h, estimated"))).to_be_visible()
        expect(frame.get_by_role("row").last).to_contain_text("Its DAG no longer exists.")
        save_screenshot(page, folder, "streams_page")
        follow_the_theme(page, frame)
        save_screenshot(page, folder, "streams_page_dark")
        open_task_of_a_window(page, frame, server)


def follow_the_theme(page: Page, frame: FrameLocator) -> None:
    """Select the dark theme in Airflow's menu and check that the page changes too."""
    html = frame.locator("html")
    expect(html).to_have_attribute("data-theme", "light")
    light = html.evaluate("(element) => getComputedStyle(element).getPropertyValue('--text')")
    page.get_by_role("button", name="User").click()
    page.get_by_role("menuitem", name="Appearance").click()
    page.get_by_role("menuitemradio", name="Dark").or_(page.get_by_role("menuitem", name="Dark")).first.click()
    expect(html).to_have_attribute("data-theme", "dark")
    assert html.evaluate("(element) => getComputedStyle(element).getPropertyValue('--text')") != light
    page.keyboard.press("Escape")


def open_task_of_a_window(page: Page, frame: FrameLocator, server: PageServer) -> None:
    """Open a stream, reload its URL, and open the task of a window, which leaves the sandboxed frame."""
    frame.get_by_role("link", name="/event/Order__e").click()
    expect(frame.get_by_role("heading", level=1)).to_have_text("/event/Order__e")
    expect(page).to_have_url(re.compile(re.escape(f"{server.url}/{VIEW}/") + ".*stream=sfstream"))
    page.reload()
    expect(frame.get_by_role("heading", level=1)).to_have_text("/event/Order__e")
    expect(frame.locator("html")).to_have_attribute("data-theme", "dark")
    frame.locator("a .window").last.click()
    expect(page).to_have_url(re.compile(f"^{re.escape(server.url)}/dags/orders/runs/scheduled__[^/]*/tasks/drain"))


def test_a_stream_of_a_deleted_dag_has_instructions_to_forget_it(server: PageServer, tmp_path: Path) -> None:
    with browsing(server, "gail", width=1250, height=850) as page:
        row = open_page(page, server).get_by_role("row").filter(has_text="/event/Deleted__e")
        row.get_by_role("link", name="Forget").click()
        uri = deleted(datetime.now(UTC))[0].subject
        expect(page.locator("#forget")).to_contain_text(f"sfstream forget '{uri}'")
        expect(page.get_by_role("navigation")).to_have_count(0)
        save_screenshot(page, artifact_folder(tmp_path), "streams_page_deleted")


def test_a_link_of_a_task_opens_its_stream_in_airflows_ui(server: PageServer) -> None:
    uri = healthy(datetime.now(UTC))[0].subject
    with browsing(server, "gail") as page:
        page.goto(f"{server.url}/{VIEW}?{urlencode({'stream': uri})}")
        frame = page.frame_locator("iframe")
        expect(frame.get_by_role("heading", level=1)).to_have_text("/event/Order__e")
        expect(page.get_by_role("button", name="Browse")).to_be_visible()
        frame.get_by_role("link", name="All streams").click()
        expect(frame.get_by_role("heading", level=1)).to_have_text("Salesforce streams")
        expect(frame.get_by_role("rowheader")).to_have_count(8)


def test_the_guide_of_a_failure_is_a_link_to_another_tab(server: PageServer) -> None:
    with browsing(server, "gail") as page:
        page.goto(f"{server.url}/{VIEW}")
        frame = page.frame_locator("iframe")
        frame.get_by_role("link", name="/event/Login__e").click()
        guide = frame.get_by_role("link", name="https://docs.example.com/errors.md#logging-in")
        page.context.route("https://docs.example.com/**", lambda route: route.fulfill(body="the guide"))
        with page.context.expect_page() as opened:
            guide.click()
        expect(opened.value.get_by_text("the guide")).to_be_visible()
        expect(page).to_have_url(re.compile(VIEW))


@pytest.mark.parametrize("name", UNHEALTHY)
def test_broken_stream_shows_its_finding(server: PageServer, tmp_path: Path, name: str) -> None:
    says = {
        "expiring": ("Unread events are lost soon", "64 h ago"),
        "gap": ("Events were lost", "accepted by ada"),
        "failed_login": ("the login was refused", "Check consumer_key and consumer_secret."),
        "quarantine": ("Rows are in quarantine", "15, 1 h"),
        "dirty_replica": ("Dirty rows need a refresh", "s3://lake/replica"),
    }[name]
    topic = UNHEALTHY[name](datetime.now(UTC))[0].document["stream"]["topic"]
    with browsing(server, "olga") as page:
        page.set_viewport_size({"width": 1250, "height": 850})
        open_stream(open_page(page, server), topic)
        for text in says:
            expect(page.locator("main")).to_contain_text(text)
        save_screenshot(page, artifact_folder(tmp_path), f"streams_page_{name}")


def test_names_from_salesforce_are_shown_as_text_not_markup(server: PageServer, tmp_path: Path) -> None:
    with browsing(server, "olga") as page:
        row = open_page(page, server).get_by_role("row").filter(has_text="/event/Hostile__e")
        expect(row).to_contain_text(TAG)
        open_stream(page, "/event/Hostile__e")
        page.locator("summary").last.click()
        main = page.locator("main")
        for section in ("State", "Status", "Windows", "Gaps", "Schema changes", "Replica"):
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
        save_screenshot(page, artifact_folder(tmp_path), "streams_page_hostile")


@pytest.mark.parametrize("width", [390, 768])
def test_nothing_is_cut_off_in_a_narrow_window(server: PageServer, tmp_path: Path, width: int) -> None:
    fits = "document.documentElement.scrollWidth <= window.innerWidth"
    with browsing(server, "olga", width=width, height=844) as page:
        assert open_page(page, server).evaluate(fits)
        save_screenshot(page, artifact_folder(tmp_path), f"streams_page_{width}")
        open_stream(page, "/event/Lost__e")
        page.locator("summary").last.click()
        assert page.evaluate(fits)


def test_page_works_with_keyboard_and_screen_reader(server: PageServer) -> None:
    with browsing(server, "olga") as page:
        open_page(page, server)
        names = []
        for _ in range(3):
            page.keyboard.press("Tab")
            names.append(
                page.evaluate("document.activeElement.labels?.[0]?.textContent ?? document.activeElement.textContent")
            )
        assert names == ["Refresh", "Filter", "/event/Expiring__e"], "the Tab key must follow the visible order"
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
        open_page(page, server).get_by_label("Filter").fill("quarantine")
        expect(page.get_by_role("rowheader")).to_have_count(1)
        expect(page.get_by_role("rowheader")).to_contain_text("/event/Odd__e")
        expect(page.get_by_text("1 of 9 streams")).to_be_visible()


def test_page_shows_loading_state_and_reason_for_an_empty_list(server: PageServer) -> None:
    held: list[Route] = []
    with browser_page(60) as page:
        log_in(page, server, "olga")
        page.route("**/api/streams", lambda route: held.append(route))
        page.goto(f"{server.url}/sfstream/")
        state, main = page.get_by_role("status").first, page.locator("main")
        expect(state).to_have_text("Loading…")
        expect(main).to_have_attribute("aria-busy", "true")
        refresh = page.get_by_role("button", name="Refresh")
        with server.corrupt_status_database():
            held.pop().continue_()
            expect(state).to_contain_text("The streams cannot be shown. The status of the streams cannot be read")
        page.unroute("**/api/streams")
        refresh.click()
        expect(page.get_by_role("rowheader")).to_have_count(9)
        log_in(page, server, "otto")
        refresh.click()
        expect(state).to_have_text("There are streams, but you may not read their DAGs or their connections.")
        log_in(page, server, "nobody")
        refresh.click()
        expect(state).to_contain_text("You may not see this page")
        expect(page.get_by_role("rowheader")).to_have_count(0)
        log_in(page, server, None)
        refresh.click()
        expect(state).to_contain_text("You are no longer logged in to Airflow")
        assert page.get_by_role("link", name="Log in").get_attribute("href") == f"{server.url}/"
        log_in(page, server, "olga")
        open_page(page, server, "?dag=others")
        expect(state).to_have_text("No task of this DAG has reported a stream yet.")
        open_page(page, server, "?stream=sfstream%3A%2F%2Fx%2Fevent%2FNone__e")
        expect(state).to_contain_text("The stream does not exist, or you may not read it")
