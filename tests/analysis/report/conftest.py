"""A browser without a window, started once per file, and pages that remember their errors."""

import os
import shutil

import pytest

INSTALLED = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
REMEDY = "no Chromium: apt-get install chromium, or .venv/bin/playwright install chromium"
REMEMBER = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => violations.push(event.violatedDirective));
"""


@pytest.fixture(scope="module")  # its event loop would be in the way of tests elsewhere
def chromium():
    """Start a headless Chromium for a test file, the system's or else Playwright's own; skip the tests without one."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    found = next(filter(None, map(shutil.which, INSTALLED)), None)
    # Chromium refuses to start as root unless its sandbox is off.
    words = ["--no-sandbox"] if os.geteuid() == 0 else []
    with playwright.sync_playwright() as driver:
        if found is None and not os.path.exists(driver.chromium.executable_path):
            pytest.skip(REMEDY)
        browser = driver.chromium.launch(executable_path=found, args=words)
        yield browser
        browser.close()


class Tab:
    """A report that is open in the browser.

    Attributes:
        page: Playwright's page.
        errors: errors of its console and scripts, and dialogs, as text.
        requests: the addresses that it has asked for.
    """

    def __init__(self, page, file):
        self.page, self.errors, self.requests = page, [], []
        page.set_default_timeout(20_000)
        page.add_init_script(REMEMBER)
        page.on(
            "console",
            lambda said: self.errors.append(said.text) if said.type == "error" else None,
        )
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on(
            "dialog",
            lambda dialog: (
                self.errors.append(f"dialog: {dialog.message}") or dialog.dismiss()
            ),
        )
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(file.as_uri())
        # Once a row is there, the page's script has run.
        self.rows.first.wait_for()

    @property
    def rows(self):
        """Playwright's locator of the table rows that are in the document."""
        return self.page.locator("#rows .row")

    @property
    def count(self):
        """The text on the page about the number of prompts."""
        return self.page.locator("#count").text_content()

    def ids(self):
        """Return the prompt ids of the rows in the document, from the top."""
        return [
            text.strip() for text in self.page.locator("#rows .cell.id").all_text_contents()
        ]

    def search(self, words):
        """Type words into the search field."""
        self.page.locator("#search").fill(words)

    def choose(self, control, value):
        """Choose the option `value` of the select element with the id `control`."""
        self.page.locator(f"#{control}").select_option(value)

    def sort(self, name):
        """Click on the head of the column `name`, which sorts the rows."""
        self.page.get_by_role("columnheader", name=name, exact=True).get_by_role(
            "button"
        ).click()

    def open(self, number=0):
        """Open row `number` of the document, and wait until its responses are there."""
        self.rows.nth(number).locator(".open").click()
        self.page.locator(".response, .responses .note").first.wait_for()

    def violations(self):
        """Return the directives of the content security policy that the page has violated."""
        return self.page.evaluate("violations")


@pytest.fixture
def open_page(chromium):
    """Return a function that opens a file in a new tab (`Tab`), with Playwright's `settings` for its context."""
    contexts = []

    def opened(file, **settings):
        contexts.append(chromium.new_context(**settings))
        return Tab(contexts[-1].new_page(), file)

    yield opened
    for context in contexts:
        context.close()
