"""The pages of a tenant's configuration, driven by keyboard alone."""

import json

import pytest
from playwright.sync_api import Locator, Page, expect

from quality.models import Schedule, Turn
from tenants import booking
from tenants.models import ExchangeRate, HttpToolRow, ModelEndpoint, Role, Secret, Skill, Style
from tenants.scope import tenant_scope
from tests.browser.conftest import Desk

pytestmark = pytest.mark.browser

MOST_STOPS = 150  # of the Tab key, from one end of a page to the other
DEFINITION = [
    {
        "name": "get_weather",
        "description": "Current weather of a city.",
        "method": "GET",
        "url": "https://api.example.com/weather/{city}",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }
]


@pytest.fixture
def ada(desk, member) -> Desk:
    return desk(member(Role.ADMIN))


def tab_to(page: Page, wanted: Locator) -> None:
    """Press Tab until it has the focus. Whatever Tab does not reach, nobody without a mouse does."""
    expect(wanted).to_be_visible()
    for _ in range(MOST_STOPS):
        if wanted.evaluate("one => one === document.activeElement"):
            return
        page.keyboard.press("Tab")
    pytest.fail(f"Tab does not reach {wanted}")


def write(page: Page, label: str, text: str) -> None:
    """Tab to a field by its label and type; what stood in it is replaced."""
    tab_to(page, page.get_by_label(label, exact=True))
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.insert_text(text)


def open_place(ada: Desk, page: Page, key: str, heading: str) -> None:
    """By the key that the navigation prints."""
    ada.press("g", key)
    expect(page.get_by_role("heading", name=heading, exact=True, level=1)).to_be_visible()


def confirm(ada: Desk, page: Page, yes: str, *, key: str = "") -> None:
    """Open the step that asks once more, by its key or by Enter on the first one, and say yes."""
    if key:
        ada.press(key)
    else:
        tab_to(page, page.locator("details.confirm > summary").first)
        page.keyboard.press("Enter")
    tab_to(page, page.get_by_role("button", name=yes))
    page.keyboard.press("Enter")


def test_tools(ada: Desk, tenant) -> None:
    page = ada.open("/t/acme/")
    open_place(ada, page, "f", "Tools")
    ada.press("a")
    write(page, "Name", "get_order")
    write(page, "Description", "Look an order up.")
    write(page, "URL", "http://10.0.0.1/")
    expect(page.locator("#faults")).to_contain_text("url")  # judged while one writes
    write(page, "URL", "https://api.example.com/orders")
    ada.press("Escape", "s")
    expect(page.get_by_role("heading", name="Tool get_order")).to_be_visible()
    ada.press("e")
    expect(page.get_by_label("Description")).to_be_visible()
    ada.press("j")
    expect(page.get_by_label("Definition")).to_be_visible()
    ada.press("f")
    write(page, "Description", "Look one order up.")
    ada.press("Escape", "s")
    expect(page.get_by_text("version 2", exact=True)).to_be_visible()
    confirm(ada, page, "Yes, delete", key="d")
    expect(page.get_by_text("get_order is deleted")).to_be_visible()

    ada.press("i")
    tab_to(page, page.locator("#definitions"))
    page.keyboard.insert_text("[")
    tab_to(page, page.get_by_role("button", name="Import"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("not JSON")
    tab_to(page, page.locator("#definitions"))
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.insert_text(json.dumps(DEFINITION))
    tab_to(page, page.get_by_role("button", name="Import"))
    page.keyboard.press("Enter")
    expect(page.get_by_text("1 tool is taken in")).to_be_visible()
    write(page, "Calls in a turn optional", "5")
    page.keyboard.press("Enter")
    expect(page.get_by_text("The limits are set")).to_be_visible()
    with tenant_scope(tenant):
        assert [row.name for row in HttpToolRow.objects.all()] == ["get_weather"]
    ada.check()


def test_booking(ada: Desk, tenant) -> None:
    page = ada.open("/t/acme/tools/")
    ada.press("b")
    write(page, "Booking link", "http://localhost/")
    page.keyboard.press("Enter")
    expect(page.locator(".errorlist")).to_contain_text("cannot be offered")
    write(page, "Booking link", "https://cal.example.com/team")
    ada.press("Escape", "s")
    expect(page.get_by_text("The booking link is set")).to_be_visible()
    confirm(ada, page, "Yes, remove it", key="d")
    expect(page.get_by_text("it is offered no more")).to_be_visible()
    with tenant_scope(tenant):
        assert booking.secret() is None
    ada.check()


def test_models(ada: Desk, tenant) -> None:
    page = ada.open("/t/acme/")
    open_place(ada, page, "l", "Models")
    ada.press("a")
    write(page, "Label", "fast")
    write(page, "Model", "tiny")
    write(page, "Base URL", "https://llm.invalid/v1")
    write(page, "Key optional", "sk-canary-4711")
    write(page, "Parameters optional", "not json")
    ada.press("Escape", "s")
    expect(page.locator(".errorlist")).to_contain_text("not JSON")
    write(page, "Parameters optional", '{"temperature": 0}')
    write(page, "Key optional", "sk-canary-4711")
    ada.press("Escape", "s")
    expect(page.get_by_text("fast is saved")).to_be_visible()
    ada.press("1")
    expect(page.get_by_role("status").filter(has_text="does not work with tools yet")).to_be_visible(timeout=60_000)
    assert "sk-canary" not in page.content()
    confirm(ada, page, "Yes, delete")
    expect(page.get_by_text("fast is deleted")).to_be_visible()
    with tenant_scope(tenant):
        assert not ModelEndpoint.objects.exists()
        assert not Secret.objects.exists()
    ada.check()


def test_styles(ada: Desk, tenant) -> None:
    page = ada.open("/t/acme/")
    open_place(ada, page, "s", "Styles")
    write(page, "Name", "orders")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Skill orders has 0 tools")).to_be_visible()
    ada.press("a")
    write(page, "Style id", "calm")
    write(page, "Name", "Calm")
    write(page, "System prompt optional", "Be calm.")
    tab_to(page, page.get_by_label("orders"))
    page.keyboard.press("Space")
    ada.press("s")  # a box is no text field: keys work in it
    expect(page.get_by_text("calm is at version 1")).to_be_visible()
    with tenant_scope(tenant):
        assert (Style.objects.count(), Skill.objects.count()) == (1, 1)
    confirm(ada, page, "Yes, delete", key="d")
    expect(page.get_by_text("calm is deleted")).to_be_visible()
    confirm(ada, page, "Yes, delete")
    expect(page.get_by_text("Skill orders is deleted")).to_be_visible()
    ada.check()


def test_exchange(ada: Desk, tenant) -> None:
    page = ada.open("/t/acme/")
    open_place(ada, page, "d", "Exchange desk")
    for label, text in (("Customer gives", "eur"), ("Customer gets", "usd"), ("Rate", "1.1")):
        write(page, label, text)
    page.keyboard.press("Enter")
    expect(page.get_by_text("is saved; turns that begin from now on quote it")).to_be_visible()
    with tenant_scope(tenant):
        assert ExchangeRate.objects.get().give == "EUR"
    confirm(ada, page, "Yes, delete")
    expect(page.get_by_text("is offered no more")).to_be_visible()
    write(page, "Contact", "anna")
    page.keyboard.press("Tab")
    page.keyboard.press("v")  # the choice that begins with it
    tab_to(page, page.locator("form[action*=customers] button"))
    page.keyboard.press("Enter")
    expect(page.get_by_text("anna: verified")).to_be_visible()
    ada.check()


def test_secrets(ada: Desk, tenant) -> None:
    page = ada.open("/t/acme/")
    open_place(ada, page, "v", "Secrets")
    write(page, "Name", "SHOP_KEY")
    write(page, "Value", "canary-4711")
    page.keyboard.press("Enter")
    expect(page.get_by_text("SHOP_KEY is set.")).to_be_visible()
    assert "canary-4711" not in page.content()
    confirm(ada, page, "Yes, delete")
    expect(page.get_by_text("SHOP_KEY is deleted")).to_be_visible()
    with tenant_scope(tenant):
        assert not Secret.objects.exists()
    ada.check()


def test_schedules(ada: Desk, tenant) -> None:
    page = ada.open("/t/acme/")
    open_place(ada, page, "h", "Schedules of turns")
    ada.press("a")
    write(page, "Name", "Morning check")
    write(page, "Message", "Are you well?")
    write(page, "When (cron)", "61 * * * *")
    expect(page.locator("#preview")).to_contain_text("“61” cannot stand for the minute")
    write(page, "When (cron)", "30 8 * * MON-FRI")
    write(page, "Time zone", "Europe/Berlin")
    expect(page.locator("#preview")).to_contain_text("At 08:30 on Monday through Friday (Europe/Berlin)")
    expect(page.locator("#preview tbody tr")).to_have_count(5)
    ada.press("Escape", "s")
    expect(page.get_by_text("Morning check is saved")).to_be_visible()
    ada.press("n")
    expect(page.get_by_text("is queued")).to_be_visible()
    ada.press("p")
    expect(page.get_by_text("Morning check is paused")).to_be_visible()
    tab_to(page, page.get_by_role("link", name="Morning check"))
    page.keyboard.press("Enter")
    expect(page.get_by_text("run by hand")).to_be_visible()
    confirm(ada, page, "Yes, delete", key="d")
    expect(page.get_by_text("The turns that it made stay")).to_be_visible()
    with tenant_scope(tenant):
        assert (Schedule.objects.count(), Turn.objects.count()) == (0, 1)
    ada.check()
