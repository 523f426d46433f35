"""Languages as a browser shows them: chosen without a script, driven by any keyboard. How wide
pages are in each of them is asked in test_every_page."""

import pytest
from playwright.sync_api import expect

from tenants.models import Role

pytestmark = pytest.mark.browser

# A key of a keyboard with other letters: what it writes, and where it is.
PRESS = """
([key, code]) => document.body.dispatchEvent(
  new KeyboardEvent("keydown", { key, code, bubbles: true, cancelable: true })
)
"""


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
