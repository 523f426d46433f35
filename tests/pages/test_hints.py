"""Hints on pages: told with their evidence, counted, filtered by, and never taken for a label."""

import re

import pytest
from django.utils import timezone

from quality.models import Review
from quality.review import hinting
from tests.factories import TurnFactory
from tests.pages.conftest import HTMX

HOSTILE = "</span><script>alert(1)</script>"


@pytest.fixture
def hinted(make_call, tenant, inside):
    """A call whose arguments the schema refuses, one with an empty result, one without a hint, a reply that announces
    a call; in the order of lists."""
    bad = make_call(args='{"unit":"kelvin","city":"Zürich"}', result="[]")
    empty, fine = make_call(result="[]"), make_call(tool_name="get_weather")
    with inside():
        words = TurnFactory()
    hinting.make(tenant)
    return bad, empty, fine, words


def rows(response):
    return [int(pk) for pk in re.findall(r'data-row\s+href="/t/acme/calls/(\d+)/"', response.text)]


def test_the_list_shows_and_filters_them(browse, hinted):
    bad, empty, fine, _ = hinted
    client = browse("viewer")
    page = client.get("/t/acme/calls/")
    assert rows(page) == [bad.pk, empty.pk, fine.pk]
    assert page.text.count('class="hint"') == 2
    assert "against the schema +1" in page.text
    for query, expected in {
        "hint=empty_result": [bad.pk, empty.pk], "hint=schema_violation": [bad.pk], "hint=retry_storm": [],
        "hint=any": [bad.pk, empty.pk], "hint=schema_violation&hint=empty_result": [bad.pk, empty.pk],
        "hint=any&error=yes": [], "hint=any&label=none": [bad.pk, empty.pk], "hint=any&page_size=1": [bad.pk],
    }.items():  # fmt: skip
        assert rows(client.get(f"/t/acme/calls/?{query}", headers=HTMX)) == expected, query
    asked = client.get("/t/acme/calls/?hint=empty_result", headers=HTMX).text
    assert "empty result +1" in asked  # what was asked for is told first
    assert "against the schema +1" not in asked
    assert '<option value="empty_result"' in page.text
    assert "empty result (2)" in page.text
    assert "unknown tool (" not in page.text  # nothing to be found there
    chosen = client.get("/t/acme/calls/?hint=retry_storm").text
    assert re.search(r'<option value="retry_storm"\s+selected>retry storm \(0\)', chosen)
    assert "is no hint" in client.get("/t/acme/calls/?hint=nonsense").text


def test_a_call_tells_its_hints_with_the_evidence(browse, hinted):
    bad, _, fine, words = hinted
    client = browse("viewer")
    page = client.get(f"/t/acme/calls/{bad.pk}/").text
    assert "Hints of rules, no verdict" in page
    assert "&#x27;kelvin&#x27; is not one of" in page
    assert "/unit" in page
    assert 'href="/t/acme/calls/?hint=schema_violation"' in page
    assert "of rules, no verdict" not in client.get(f"/t/acme/calls/{fine.pk}/").text
    assert "described, not called" in client.get(f"/t/acme/turns/{words.pk}/").text


def test_review_goes_through_what_has_a_hint(browse, hinted, inside):
    bad, empty, _, words = hinted
    client = browse("operator")
    page = client.get("/t/acme/review/?hint=any").text
    assert "<strong>3</strong> to review" in page
    assert f'name="call" value="{bad.pk}"' in re.sub(r"\s+", " ", page)
    assert f"hint=any&amp;call={empty.pk}" in page
    assert f"hint=any&amp;turn={words.pk}&amp;cycle=0" in page
    assert "With and without hints" in page
    assert 'href="/t/acme/review/?hint=any"' in client.get("/t/acme/review/").text
    with inside():
        assert not Review.objects.exists()  # a hint is no label


def test_the_overview_counts_them_and_leads_to_them(browse, make_call, tenant, inside):
    make_call(result="[]", turn__started_at=timezone.now())
    with inside():
        words = TurnFactory(started_at=timezone.now())
    hinting.make(tenant)
    client = browse("viewer")
    page = client.get("/t/acme/").text
    found = re.findall(r'href="([^"]*hint=(?:empty_result|call_in_prose)[^"]*)">(\d+)<', page)
    assert [number for _, number in found] == ["1", "1"]
    links = {link.replace("&amp;", "&") for link, _ in found}
    assert all(client.get(link).status_code == 200 for link in links)
    (review,) = [link for link in links if "/review/" in link]
    assert f'name="turn" value="{words.pk}"' in re.sub(r"\s+", " ", browse("operator").get(review).text)


def test_what_models_wrote_stays_text(browse, make_call, tenant):
    call = make_call(tool_name=HOSTILE, args=f'{{"{HOSTILE}":1}}', result='""')
    hinting.make(tenant)
    client = browse("viewer")
    for path in (f"calls/{call.pk}/", "calls/", "review/", "?days=365"):
        assert "<script>alert" not in client.get(f"/t/acme/{path}").text


def test_others_see_none_of_it(outsider, hinted):
    for path in ("calls/?hint=any", f"calls/{hinted[0].pk}/"):
        assert outsider.get(f"/t/acme/{path}").status_code == 404
    page = outsider.get("/t/globex/calls/?hint=any").text
    assert 'class="hint"' not in page
    assert "empty result (" not in page
