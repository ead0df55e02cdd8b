"""A real browser without a screen, for tests of the Airflow UI."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def installed_browser() -> str:
    """Return the path of a Chromium, skip the test without one; fail where SFSTREAM_REQUIRE_BROWSER is set."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        reason = f"no browser is installed: one of {', '.join(BROWSERS)} is needed to drive the Airflow UI"
        if os.environ.get("SFSTREAM_REQUIRE_BROWSER"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@contextmanager
def browser_page(seconds: float = 60) -> Iterator[Page]:
    """Yield a page whose clock shows UTC; what is waited for on it has to come within ``seconds``."""
    with sync_playwright() as playwright:
        # Chromium's sandbox needs privileges that CI containers do not have; it shows our own pages only.
        browser = playwright.chromium.launch(executable_path=installed_browser(), args=["--no-sandbox"])
        try:
            page = browser.new_page(viewport={"width": 1400, "height": 1000}, timezone_id="UTC", locale="en-US")
            page.set_default_timeout(seconds * 1000)
            yield page
        finally:
            browser.close()


def artifact_folder(tmp_path: Path) -> Path:
    """Return the folder for what a test leaves to be looked at: $SFSTREAM_TEST_ARTIFACTS, else the test's own."""
    folder = Path(os.environ.get("SFSTREAM_TEST_ARTIFACTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
