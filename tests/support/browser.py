"""Headless browser for tests of the Airflow UI."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from tests.support.packages import BROWSER, need


@contextmanager
def browser_page(seconds: float = 180) -> Iterator[Page]:
    """Yield a page in the UTC time zone. Each wait on it fails after ``seconds``."""
    with sync_playwright() as playwright:
        # Chromium's sandbox needs privileges that CI containers do not have. This browser only opens our own pages.
        program, options = str(need(BROWSER)), ["--no-sandbox"]
        browser = playwright.chromium.launch(executable_path=program, args=options, timeout=seconds * 1000)
        try:
            page = browser.new_page(viewport={"width": 1400, "height": 1000}, timezone_id="UTC", locale="en-US")
            page.set_default_timeout(seconds * 1000)
            expect.set_options(timeout=seconds * 1000)  # the page's timeout does not apply to it; its default is 5 s
            yield page
        finally:
            browser.close()


def artifact_folder(tmp_path: Path) -> Path:
    """Return the folder for files that a person inspects after a test: $SFSTREAM_TEST_ARTIFACTS or ``tmp_path``."""
    folder = Path(os.environ.get("SFSTREAM_TEST_ARTIFACTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
