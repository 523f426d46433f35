"""Agreement and reviewers in a real browser: by keyboard, in both themes, on a phone."""

import datetime as dt
import random
import re
import uuid

import pytest
from django.utils import timezone

from quality.models import Hint, Label, QueueEntry, ReviewQueue, Suggestion, SuggestionRun
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from tenants.models import User
from tenants.scope import tenant_scope
from tests.browser.look import amiss
from tests.factories import ToolCallFactory

pytestmark = pytest.mark.browser


@pytest.fixture
def team(tenant, member):
    """An admin, and three reviewers with thirty calls in common, hints, suggestions and a blind queue."""
    draw, admin = random.Random(4), member("admin")
    crew = [member("operator").user for _ in range(3)]
    for user, name in zip(crew, ("Ada", "Bob", "Cyd of the night shift"), strict=True):
        User.objects.filter(pk=user.pk).update(name=name)
    with tenant_scope(tenant):
        run = SuggestionRun.objects.create(endpoint_label="expert", max_items=99, created_by=admin.user)
        for number in range(30):
            call = ToolCallFactory(tool_name=("get_weather", "book_a_table")[number % 2])
            truth = draw.choice(Label.values)
            for place, user in enumerate(crew):
                if place < 2 or number < 12:
                    label = truth if draw.random() < 0.75 else draw.choice(Label.values)
                    record_label(
                        item=item_of_call(call.pk), reviewer=user, label=label, note="odd" if number % 7 == 0 else "",
                        nonce=uuid.uuid4(), at=timezone.now() - dt.timedelta(seconds=9 * (40 - number)),
                    )  # fmt: skip
            if truth != "good_reply" and draw.random() < 0.6:
                Hint.objects.create(
                    turn=call.turn, call=call, rule="unknown_tool", sentence="…", started_at=timezone.now()
                )
            Suggestion.objects.create(
                run=run, turn=call.turn, cycle=0, call=call, model="expert", label=truth, state="accepted",
                decided_by=crew[0], decided_label=truth, decided_at=timezone.now(),
            )  # fmt: skip
        blind = ReviewQueue.objects.create(name="Blind", is_blind=True, labels_needed=4, created_by=admin.user)
        QueueEntry.objects.create(
            queue=blind, turn=call.turn, cycle=0, call=call, started_at=call.started_at, is_blind=True
        )
    return admin, crew


def test_from_the_figures_to_the_calls_they_are_of_by_keyboard(desk, team):
    admin, crew = team
    lead = desk(admin)
    page = lead.open("/t/acme/")
    lead.press("g", "b")
    page.wait_for_url("**/agreement/")
    assert page.locator("h1").inner_text() == "Agreement"
    assert page.locator("a[aria-current=page]").inner_text().startswith("Agreement")
    apart = page.locator("td a[href*='apart']").last
    apart.focus()
    lead.press("Enter")
    page.wait_for_url("**/apart/**")
    lead.press("j", "Enter")
    page.wait_for_url("**/calls/*/")
    lead.press("g", "z")
    page.wait_for_url("**/reviewers/")
    lead.press("j", "j", "Enter")
    page.wait_for_url(re.compile(r"/reviewers/\d+/"))
    assert "Read only." in page.locator("main").inner_text()
    page.locator("#f-label").select_option("bad_args")
    page.wait_for_url("**label=bad_args")
    shown = page.locator("tbody .badge").all_inner_texts()
    assert set(shown) <= {"Bad arguments"}
    lead.press("b")
    page.wait_for_url("**/reviewers/")
    lead.check()
    assert crew


def places(crew):
    pair = f"left={crew[0].pk}&right={crew[1].pk}"
    yield from ("agreement/", "agreement/?tool=nobody", f"agreement/apart/?{pair}", "agreement/judge/", "reviewers/")
    yield f"reviewers/{crew[2].pk}/"


def test_pages_are_legible_and_fit(desk, team):
    admin, crew = team
    lead = desk(admin)
    for path in places(crew):
        assert amiss(lead.open(f"/t/acme/{path}")) == [], path


def test_a_table_comes_as_a_file(desk, team):
    admin, _ = team
    lead = desk(admin)
    page = lead.open("/t/acme/agreement/?tool=get_weather")
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV By pair of reviewers").click()
    assert download.value.suggested_filename == "agreement-pairs.csv"
    lines = download.value.path().read_text(encoding="utf-8-sig").splitlines()
    assert lines[0].startswith("reviewer,other,items,apart,kappa,")
    assert len(lines) == 4
