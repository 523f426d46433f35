"""A real Chromium on the real service: granian in front, a Celery worker behind, the test's database between."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings
from django.contrib.sessions.backends.db import SessionStore
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    Response,
    expect,
    sync_playwright,
)

from tenants.models import Membership, User
from tenants.sessions import SIGNED_IN_AT
from tests.browser.turns import house, turn_servers, turn_worker  # noqa: F401  (fixtures)
from tests.replay.lab import Models
from tests.service import ROOT, Service

VIOLATIONS = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective}: ${event.blockedURI} ${event.sample}`);
});
"""


@pytest.fixture(scope="package")
def browser(chromium: str, live_service: Service) -> Iterator[Browser]:
    """After the service: its process must not inherit the variable that lets this one use the database beside
    Playwright's event loop (which runs only while Playwright is called, so nothing is concurrent here)."""
    with sync_playwright() as playwright, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def model_server() -> Iterator[Models]:
    with Models().serving() as models:
        yield models


@pytest.fixture(scope="package")
def worker(live_service: Service, model_server: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runs jobs, not turns, from messages that travel as `make run` without Redis sends them. It may call the model
    server and nobody else. The only one of the package: of two, either might take a job."""
    log = tmp_path_factory.mktemp("worker") / "worker.log"
    env = {name: value for name, value in os.environ.items() if name != "DJANGO_ALLOW_ASYNC_UNSAFE"}
    env |= {"OUTBOUND_ALLOW_CIDRS": "127.0.0.1/32", "OUTBOUND_ALLOW_PORTS": str(model_server.port)}
    command = [sys.executable, "-m", "celery", "-A", "quality.celery:app", "worker", "-Q", "celery", "--pool=threads",
               "--concurrency=2", "--loglevel=INFO", "--without-mingle", "--without-gossip",
               "--without-heartbeat"]  # fmt: skip
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, env=env)
    yield
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Desk:
    """One person's browser window: `page`, and all that went wrong in it."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.url = url
        self.context = context
        self.context.add_init_script(VIOLATIONS)
        self.faults: list[str] = []
        self.requests: list[str] = []
        self.page: Page = context.new_page()
        self.page.set_default_timeout(10_000)
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("requestfailed", self._failed)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("response", self._answered)
        self.expected: set[int] = set()

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not any(
            f"status of {code}" in message.text for code in self.expected
        ):
            self.faults.append(f"console: {message.text}")

    def _failed(self, request: Request) -> None:
        if "ERR_ABORTED" not in str(request.failure):  # a download, or a page that was left
            self.faults.append(f"request failed: {request.url} {request.failure}")

    def _answered(self, response: Response) -> None:
        if response.status >= 400 and response.status not in self.expected:
            self.faults.append(f"{response.status}: {response.url}")

    def open(self, path: str) -> Page:
        self.page.goto(f"{self.url}{path}")
        return self.page

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.wait_for_load_state()  # the words of a page are there before the script that reads its keys
            expect(self.page.locator("[data-settling]")).to_have_count(0)  # what nobody has seen takes no key
            self.page.keyboard.press(key)

    def check(self) -> None:
        """Nothing went wrong, the policy refused nothing, and nobody else was asked for anything."""
        assert self.faults == []
        assert self.page.evaluate("window.violations") == []
        assert [url for url in self.requests if not url.startswith(self.url)] == []


@pytest.fixture
def desk(browser: Browser, live_service: Service, db: None) -> Iterator[Callable[..., Desk]]:
    """`desk(membership)`: a window in which this member is signed in; with nobody, one without a session."""
    contexts: list[BrowserContext] = []

    def make(member: Membership | None = None, **options: Any) -> Desk:
        context = browser.new_context(**options)
        contexts.append(context)
        if member:
            cookie = {"name": settings.SESSION_COOKIE_NAME, "value": _session(member.user), "url": live_service.url}
            context.add_cookies([cookie])
        return Desk(context, live_service.url)

    yield make
    for context in contexts:
        context.close()


def _session(user: User) -> str:
    """The key of a session in which this user is signed in."""
    store = SessionStore()
    store[SIGNED_IN_AT] = int(time.time())
    store["_auth_user_id"] = str(user.pk)
    store["_auth_user_backend"] = settings.AUTHENTICATION_BACKENDS[0]
    store["_auth_user_hash"] = user.get_session_auth_hash()
    store.save()
    return str(store.session_key)
