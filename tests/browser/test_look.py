"""What every page must be to be looked at all day: legible, reachable, still."""

import pytest

from quality.improve.rates import MIN_ITEMS
from quality.models import Label
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from tenants.scope import tenant_scope
from tests.browser.look import amiss
from tests.factories import (
    LATEST,
    CaseFactory,
    FeedbackFactory,
    ImportFactory,
    ProposalFactory,
    ToolCallFactory,
    TurnFactory,
)
from tests.pages.own_turns import waiting_call

pytestmark = pytest.mark.browser

# The focused element by its place in the page, and whether it, or its row, shows an outline; null when none has it.
FOCUSED = """
() => {
  const one = document.activeElement;
  if (one === document.body) return [null, true];
  const marked = [one, one.closest("tr")].some((mark) => {
    const style = mark && getComputedStyle(mark);
    return style && style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  });
  return [`${[...document.querySelectorAll("*")].indexOf(one)} ${one.outerHTML.slice(0, 80)}`, marked];
}
"""


@pytest.fixture
def furnished(tenant, member):
    """A tenant with something of everything, and an admin of it."""
    admin = member("admin")
    with tenant_scope(tenant):
        calls = [
            ToolCallFactory(turn__conversation_id="talk", args='{"unit":"kelvin","town":"Zürich\\u202e","n":1}'),
            ToolCallFactory(turn__conversation_id="talk", is_error=True, error="boom"),
            ToolCallFactory(is_error=None, result=None, args="[1]"),
            *[ToolCallFactory() for _ in Label],
        ]
        TurnFactory()
        waiting_call()
        waiting_call(state="unknown", args='{"town":"Zürich"}')
        ImportFactory(state="failed", failure="Not JSON.")
        ImportFactory(state="done", num_accepted=3, num_rejected=2)
        for call, label in zip(calls[1:], Label.values, strict=False):
            record_label(item=item_of_call(call.pk), reviewer=admin.user, label=label, note="seen")
        ProposalFactory(pk=4_321, state="applied", decided_by=admin.user, decided_at=LATEST, resolution_kind="other")
        FeedbackFactory.create_batch(MIN_ITEMS)
        CaseFactory()
    return admin, calls


PLACES = [
    "calls/",
    "calls/?error=yes&model=tiny-model",
    "calls/?error=perhaps",
    "calls/?tool=none",
    "review/",
    "review/?done=1",
    "turns/",
    "pending/",
    "guidelines/",
    "guidelines/?edit",
    "proposals/",
    "proposals/tracked/",
    "proposals/4321/",
    "cases/",
    "cases/REG-1/",
    "coach/",
    "audit/",
    "imports/",
    "export/",
    "members/",
    "tokens/",
    "nothing/",
]


def paths(calls):
    yield from ("", *PLACES)
    for call in calls[:3]:
        yield f"calls/{call.pk}/"
        yield f"review/?call={call.pk}"
        yield f"review/?call={call.pk}&correct=bad_args"
        yield f"review/?call={call.pk}&correct=missing_tool"


def test_text_is_legible_in_both_themes_and_no_page_wider_than_a_phone(desk, furnished):
    admin, calls = furnished
    ada = desk(admin)
    for path in paths(calls):
        page = ada.open(f"/t/acme/{path}")
        assert amiss(page) == [], path


def test_everything_that_acts_is_reached_by_tab_and_shows_it(desk, furnished):
    admin, calls = furnished
    ada = desk(admin)
    for path in ("calls/", f"review/?call={calls[0].pk}", "imports/"):
        page = ada.open(f"/t/acme/{path}")
        reached, rounds = set(), 0
        while rounds < 2 and len(reached) < 200:
            page.keyboard.press("Tab")
            element, marked = page.evaluate(FOCUSED)
            rounds += element is None
            assert marked, element
            reached.add(element)
        wanted = page.locator("main :is(a[href], button:not(:disabled), textarea)").evaluate_all(
            "all => all.filter((one) => one.checkVisibility()).length"
        )
        assert len(reached - {None}) >= wanted > 3


def test_saving_a_label_moves_nothing(desk, furnished):
    admin, calls = furnished
    ada = desk(admin)
    page = ada.open("/t/acme/review/")
    place = "() => [...document.querySelectorAll('.label-button, #note')].map((one) => one.getBoundingClientRect().top)"
    before = page.evaluate(place)
    for key in ("1", "u"):
        address = page.url
        ada.press(key)
        page.wait_for_url(lambda url, address=address: url != address)
        assert page.evaluate(place) == before
    assert calls
