"""The connection form in the real UI with a real browser, up to the Test button."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from scripts.airflow_stack import AirflowStack
from tests.support.browser import artifact_folder, browser_page
from tests.support.localorg import LocalOrg
from tests.support.packages import BROWSER, need

pytestmark = pytest.mark.extended
CONNECTION_ID = "salesforce_by_form"
HEADINGS = [
    "Standard Fields",
    "Extra Fields",
    "Login with a JWT",
    "Other Logins",
    "Org and Network",
    "Timers",
    "Extra Fields JSON",
]


@pytest.fixture
def new_connection(airflow: AirflowStack) -> Iterator[str]:
    """Return the ID of a connection that does not exist yet, and delete the connection after the test."""
    yield CONNECTION_ID
    with suppress(RuntimeError):  # the test failed before it created the connection
        airflow.api("DELETE", f"/connections/{CONNECTION_ID}")


def new_form(page: Page, connection_id: str) -> Locator:
    """Open the form for a new connection of type Salesforce."""
    page.get_by_role("button", name="Add Connection").click()
    form = page.get_by_role("dialog")
    form.get_by_label("Connection ID").fill(connection_id)
    form.get_by_role("combobox", name="Connection Type").fill("Salesforce")
    page.get_by_role("option", name="Salesforce", exact=True).click()
    return form


def open_section(form: Locator, heading: str) -> Locator:
    """Open a section of the form, which closes the other sections, and return its content."""
    button = form.get_by_role("button", name=heading, exact=True)
    button.click()
    expect(button).to_have_attribute("aria-expanded", "true")
    section = form.get_by_role("region").filter(visible=True)
    expect(section).to_have_count(1)
    return section


def fill_in(section: Locator, **fields: str) -> None:
    """Fill in fields of the connection's Extra by name."""
    for name, value in fields.items():
        section.locator(f"#element_{name}").fill(value)


def test_connection_is_created_and_tested_with_the_form(
    airflow: AirflowStack, system_org: LocalOrg, new_connection: str, tmp_path: Path
) -> None:
    need(BROWSER)
    extra = system_org.airflow_connection()["extra"]
    with browser_page() as page:
        page.goto(f"{airflow.url}/connections")
        form = new_form(page, new_connection)
        expect(form.locator("button[aria-expanded]")).to_have_text(HEADINGS)
        port = form.get_by_label("Port")
        expect(port).to_have_attribute("placeholder", "0, or the Test button of Airflow 3.3 fails")
        port.fill("0")

        first = open_section(form, "Extra Fields")
        expect(first.locator("label")).to_have_text(["Domain", "Consumer Key", "Consumer Secret", "Login Flow"])
        expect(first.get_by_text("The login whose fields are filled in")).to_be_visible()
        first.get_by_role("combobox", name="Login Flow").click()
        expect(page.get_by_role("option")).to_have_text(
            [
                "The login whose fields are filled in",
                "Client credentials",
                "JWT",
                "Refresh token",
                "Username and password",
                "Access token",
            ]
        )
        page.get_by_role("option").first.click()
        fill_in(first, consumer_key=extra["consumer_key"], consumer_secret=extra["consumer_secret"])
        screenshot = artifact_folder(tmp_path) / "connection_form.png"
        page.screenshot(path=screenshot)
        print(f"\nscreenshot: {screenshot}")

        network = open_section(form, "Org and Network")
        expect(network.get_by_text("Allow Plaintext")).to_be_visible()
        expect(network.get_by_text("*")).to_have_count(0)  # the mark of a required field
        fill_in(network, **{name: extra[name] for name in ("login_url", "pubsub_endpoint", "tls_ca")})
        form.get_by_role("button", name="Save").click()
        expect(form).to_be_hidden()

        button = page.get_by_role("row").filter(has_text=new_connection).get_by_role("button", name="Test Connection")
        with page.expect_response(lambda response: response.url.endswith("/connections/test")) as answered:
            button.click()
        assert answered.value.ok, answered.value.text()
        answer = answered.value.json()
        assert answer["status"] is True, answer["message"]
        assert answer["message"].startswith(f"Logged in to org {system_org.org_id}; Pub/Sub API reached at ")
        expect(button.locator("svg[color=green]")).to_be_visible()
