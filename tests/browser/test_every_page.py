"""Every page that the URL configuration knows, as a browser shows it: legible, named, and no wider than the window, in
both themes and in each language. A page is loaded once and asked all of it: loading is what takes the time."""

import io
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from django.core.management import call_command
from playwright.sync_api import Page, expect

from tenants import access
from tenants.models import Membership, Role
from tenants.scope import tenant_scope
from tests.browser.look import ASTRAY, BROKEN, LONGER, OVER, serious
from tests.pages.routes import pages
from tests.pages.world import ARABIC, make_world

pytestmark = pytest.mark.browser

WIDTHS = (1440, 1024, 390, 360)
NARROW = (1024, 360)  # longer words need room most where there is least
HEIGHT = 900
PARTS = 2  # workers share the pages: each takes every second one

# Pages again, in states that their bare addresses do not show.
STATES = (
    "calls/?error=perhaps", "calls/?tool=none", "review/?done=1", "review/?call={call}&correct=bad_args",
    "review/?call={call}&correct=missing_tool", "guidelines/?edit", "agreement/?tool=nobody", "export/?kind=feedback",
    "replays/trends/?case=REG-1234", "nothing/",
)  # fmt: skip

OPEN = "for (const fold of document.querySelectorAll('main details:not(.act, .confirm)')) fold.open = true"


@pytest.fixture
def world(db: None) -> Membership:
    return make_world(word=f"{ARABIC} ")


def paths(member: Membership, part: int) -> Iterator[str]:
    found = pages("acme", member.tenant_id)
    call = found["call-detail"].rstrip("/").rpartition("/")[2]
    every = [*found.values(), *(f"/t/acme/{state.format(call=call)}" for state in STATES)]
    yield from every[part::PARTS]


def too_wide(page: Page, widths: tuple[int, ...] = WIDTHS) -> Iterator[str]:
    for width in widths:
        page.set_viewport_size({"width": width, "height": HEIGHT})
        if (over := page.evaluate(OVER)) > 0:
            yield f"{over} px wider than {width}"
        yield from (f"at {width}: {fault}" for fault in page.evaluate(BROKEN))


@pytest.mark.parametrize("part", range(PARTS))
def test_every_page_is_legible_named_and_in_the_windows_width(desk, world, part):
    ada = desk(world)
    faults: dict[str, list[str]] = {}
    for path in paths(world, part):
        ada.expected = {404} if path.endswith("nothing/") else set()
        page = ada.open(path)
        page.evaluate(OPEN)
        page.set_viewport_size({"width": WIDTHS[0], "height": HEIGHT})
        found = serious(page)
        found += [f"not set apart: {text}" for text in page.evaluate(ASTRAY)]
        page.evaluate(LONGER)
        found += too_wide(page)
        if found:
            faults[path] = found
        ada.check()
    assert faults == {}


@pytest.mark.parametrize("language", ["it", "es", "ru"])
def test_no_page_is_wider_than_the_window_in_any_language(desk, world, language):
    ada = desk(world)
    ada.context.add_cookies([{"name": "language", "value": language, "url": ada.url}])
    faults: dict[str, list[str]] = {}
    for path in pages("acme", world.tenant_id).values():
        page = ada.open(path)
        page.evaluate(OPEN)
        assert page.locator("html").get_attribute("lang") == language, path
        if found := list(too_wide(page, NARROW)):
            faults[path] = found
    assert faults == {}
    ada.check()


def test_pages_of_who_is_not_signed_in(desk, world):
    with tenant_scope(world.tenant_id):
        _, secret = access.invite(role=Role.VIEWER, created_by=world.user)
    link = io.StringIO()
    call_command("signin_link", email=world.user.email, stdout=link)
    visitor = desk()
    for path in ("/signin/", f"/invitations/{secret}/", urlsplit(link.getvalue().split()[-1]).path):
        page = visitor.open(path)
        assert serious(page) == [], path
        page.evaluate(LONGER)
        assert list(too_wide(page)) == [], path
    visitor.check()


def test_what_opens_over_a_page_closes_by_escape_and_gives_the_focus_back(desk, world):
    found = pages("acme", world.tenant_id)
    ada = desk(world)
    for name, opener, opened in (
        ("schedule-detail", "details.confirm > summary", ".confirm-step"),
        ("call-list", ".view-menu > summary", ".view-menu form"),
        ("review", "[data-opens=keys]", "#keys"),
        ("review", "[data-opens=guidelines]:not(#guidelines *)", "#guidelines"),
    ):
        page = ada.open(found[name])
        button, sheet = page.locator(opener).first, page.locator(opened).first
        button.focus()
        ada.press("Enter")
        expect(sheet).to_be_visible()
        ada.press("Escape")
        expect(sheet).to_be_hidden()
        expect(button).to_be_focused()
    ada.check()


def test_a_case_is_read_from_the_side_that_its_words_begin_on(desk, world):
    page = desk(world).open("/t/acme/cases/REG-1234/")
    behavior = page.locator("#id_behavior")
    assert behavior.input_value().startswith(ARABIC)
    assert behavior.evaluate("one => getComputedStyle(one).unicodeBidi") == "plaintext"
    assert page.locator("#e-step-0-tool").evaluate("one => getComputedStyle(one).unicodeBidi") != "plaintext"
