"""Choosing rows, acting on them at once and taking it back; views that a second person opens."""

import re

import pytest
from playwright.sync_api import expect

from quality.models import Feedback, Review
from tenants.scope import tenant_scope
from tests.bulk import labelled_calls
from tests.factories import ToolCallFactory, UserFactory

pytestmark = pytest.mark.browser


@pytest.fixture
def calls(tenant):
    """Eight calls, newest first."""
    with tenant_scope(tenant):
        return [ToolCallFactory(tool_name="get_time" if number % 4 == 3 else "get_weather") for number in range(8)]


def chosen(page):
    return page.locator("[data-select-row]:checked")


def test_a_range_is_labelled_by_keyboard_alone_and_undone_as_a_whole(desk, member, tenant, calls):
    ada = desk(member("operator"))
    page = ada.open("/t/acme/calls/")
    expect(page.get_by_role("button", name="Label", exact=False).first).to_be_disabled()
    ada.press("j", "j", "x")  # the second row
    expect(page.locator("[data-select-count]")).to_have_text("1 chosen")
    expect(page.locator("tbody tr").nth(1)).to_have_class("chosen")
    ada.press("Shift+J", "Shift+J")
    expect(chosen(page)).to_have_count(3)
    ada.press("Shift+J", "x")  # on, and off again
    expect(page.locator("[data-select-count]")).to_have_text("3 chosen")
    ada.press("l")
    expect(page.locator(".bulk-number")).to_have_text("3")
    expect(page.locator("tbody tr")).to_have_count(3)
    ada.press("4", "r")
    page.keyboard.type("All of one release")
    ada.press("Escape", "y")
    expect(page.locator(".tag.done")).to_be_visible()
    with tenant_scope(tenant):
        labelled = set(Feedback.objects.filter(label="bad_args").values_list("call_id", flat=True))
        assert labelled == {call.pk for call in calls[1:4]}
    ada.press("u")
    expect(page.locator(".tag.undone")).to_be_visible()
    with tenant_scope(tenant):
        assert not Feedback.objects.exists()
    ada.press("g", "2")
    expect(page.locator("[data-row]")).to_contain_text("Label: Bad arguments")
    ada.press("j", "Enter")
    expect(page.locator(".tag.undone")).to_be_visible()
    ada.check()


def test_a_click_with_shift_chooses_the_range_and_the_head_the_page(desk, member, calls):
    ada = desk(member("operator"))
    page = ada.open("/t/acme/calls/")
    boxes = page.locator("[data-select-row]")
    boxes.nth(1).click()
    boxes.nth(4).click(modifiers=["Shift"])
    expect(chosen(page)).to_have_count(4)
    expect(page).to_have_url(re.compile(r"/calls/$"))  # the row did not open
    page.locator("[data-select-page]").click()
    expect(page.locator("[data-select-count]")).to_have_text("8 chosen")
    ada.press("*")
    expect(page.locator("[data-select-count]")).to_have_text("none chosen")
    boxes.nth(2).click()
    ada.press("Enter")  # from the box of a row, too
    expect(page).to_have_url(re.compile(r"/calls/\d+/$"))
    ada.check()


def test_all_that_match_are_archived_by_a_worker_and_followed(desk, member, tenant, worker):
    admin = member("operator")
    with tenant_scope(tenant):
        labelled_calls(300, UserFactory())
        ToolCallFactory(tool_name="other")
    ada = desk(admin)
    page = ada.open("/t/acme/calls/?source=bulk")
    expect(page.get_by_text("all 300 matching calls")).to_be_visible()
    ada.press("A")
    expect(page.locator("[data-select-count]")).to_have_text("all matching chosen")
    ada.press("a")
    expect(page.locator(".bulk-number")).to_have_text("300")
    expect(page.get_by_text("bulk", exact=True).first).to_be_visible()
    ada.press("y")
    expect(page.locator(".tag.done")).to_be_visible(timeout=60_000)  # without a reload
    with tenant_scope(tenant):
        assert Review.objects.filter(archived_at__isnull=False).count() == 300
    ada.press("g", "c")
    expect(page.locator("tbody tr")).to_have_count(1)
    ada.check()


def test_a_view_is_saved_and_shared_with_a_second_person(desk, member, calls):
    ada = desk(member("operator", user__name="Ada"))
    page = ada.open("/t/acme/calls/")
    page.get_by_label("Tool").select_option("get_time")
    expect(page.locator("tbody tr")).to_have_count(2)
    ada.press("Escape", "w")
    page.get_by_label("Name of this filter").fill("Clocks")
    page.get_by_label("Everyone sees it").check()
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator(".tabs > a[aria-current]")).to_have_text("Clocks")
    expect(page).to_have_url(re.compile(r"\?tool=get_time&view=\d+$"))

    bob = desk(member("viewer"))
    other = bob.open("/t/acme/calls/")
    expect(other.locator("tbody tr")).to_have_count(8)
    other.get_by_role("link", name="Clocks").click()
    expect(other.locator("tbody tr")).to_have_count(2)
    expect(other.get_by_title("Shared by Ada")).to_be_visible()
    other.get_by_label("Outcome").select_option("yes")
    expect(other.get_by_text("No call matches")).to_be_visible()
    expect(other.locator(".tabs > a[aria-current]")).to_contain_text("Clocks")  # and it says that it was changed
    for one in (ada, bob):
        one.check()


def test_it_works_without_javascript(desk, member, tenant, calls):
    ada = desk(member("operator"), java_script_enabled=False)
    page = ada.page
    page.goto(f"{ada.url}/t/acme/calls/")
    page.locator("[data-select-row]").nth(0).check()
    page.locator("[data-select-row]").nth(2).check()
    page.locator("button[value=archive]").click()
    expect(page.locator(".bulk-number")).to_have_text("2")
    page.locator("#effect button").click()
    expect(page.locator(".tag.done")).to_be_visible()
    page.get_by_role("button", name="Undo all of it").click()
    expect(page.locator(".tag.undone")).to_be_visible()
    with tenant_scope(tenant):
        assert not Review.objects.filter(archived_at__isnull=False).exists()


def test_similar_calls_are_one_key_away_and_can_be_chosen(desk, member, calls):
    ada = desk(member("operator"))
    page = ada.open(f"/t/acme/calls/{calls[0].pk}/")
    ada.press("=")
    expect(page.get_by_role("heading", name="Similar to get_weather")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(5)
    expect(page.locator(".col-why").nth(1)).to_have_text("same tool · 2 of 2 arguments equal")
    ada.press("*", "t")
    expect(page.locator(".bulk-number")).to_have_text("5")
    ada.check()
