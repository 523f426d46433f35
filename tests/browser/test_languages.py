"""Four languages as a browser shows them: chosen without a script, driven by any keyboard, in the window's width."""

import pytest
from playwright.sync_api import expect

from tenants.models import Membership, Role
from tests.pages.world import make_world

pytestmark = pytest.mark.browser

LANGUAGES = ("en", "it", "es", "ru")
PAGES = (
    "", "review/", "calls/", "turns/", "pending/", "run/", "queues/", "proposals/", "cases/", "cases/REG-1234/",
    "replays/", "replays/new/", "replays/schedules/", "replays/schedules/new/", "replays/trends/", "coach/",
    "guidelines/", "suggestions/", "agreement/", "reviewers/", "imports/", "export/", "tools/", "tools/new/",
    "models/", "models/new/", "styles/", "styles/new/", "schedules/", "schedules/new/", "exchange/", "secrets/",
    "members/", "tokens/", "webhooks/", "audit/", "booking/",
)  # fmt: skip

# A key of a keyboard with other letters: what it writes, and where it is.
PRESS = """
([key, code]) => document.body.dispatchEvent(
  new KeyboardEvent("keydown", { key, code, bubbles: true, cancelable: true })
)
"""


@pytest.fixture
def world(db) -> Membership:
    return make_world()


def test_the_language_is_chosen_without_a_script(desk, db):
    window = desk(java_script_enabled=False, locale="es-ES")
    page = window.open("/signin/")
    expect(page.locator("html")).to_have_attribute("lang", "es")
    page.get_by_role("combobox").select_option("it")
    page.locator(".language button").click()
    expect(page.locator("html")).to_have_attribute("lang", "it")
    expect(page.locator("select[name=language]")).to_have_value("it")


@pytest.mark.parametrize(("first", "second"), [("п", "щ"), ("γ", "ο"), ("g", "o")], ids=["Russian", "Greek", "Latin"])
def test_keys_are_where_they_are_printed_on_any_keyboard(desk, member, first, second):
    window = desk(member(Role.ADMIN))
    page = window.open("/t/acme/calls/")
    page.wait_for_load_state()
    page.evaluate(PRESS, [first, "KeyG"])
    page.evaluate(PRESS, [second, "KeyO"])
    page.wait_for_url("**/t/acme/")
    window.check()


def test_what_is_typed_into_a_field_stays_as_it_is_typed(desk, member):
    window = desk(member(Role.ADMIN))
    page = window.open("/t/acme/audit/")
    field = page.locator("#f-from")
    field.focus()
    seen = page.evaluate(
        """() => new Promise((resolve) => {
          document.addEventListener("keydown", (event) => resolve(event.key), { once: true });
          document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "п", code: "KeyG", bubbles: true }));
        })"""
    )
    assert seen == "п"


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("width", [1440, 390])
def test_no_page_is_wider_than_the_window(desk, world, language, width):
    window = desk(world, viewport={"width": width, "height": 900})
    window.context.add_cookies([{"name": "language", "value": language, "url": window.url}])
    too_wide = {}
    for path in PAGES:
        page = window.open(f"/t/acme/{path}")
        assert page.locator("html").get_attribute("lang") == language, path
        over = page.evaluate("() => document.documentElement.scrollWidth - document.documentElement.clientWidth")
        if over > 0:
            too_wide[path] = over
    assert too_wide == {}
    window.check()
