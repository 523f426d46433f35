"""Tags and the archive on the page of one item."""

import pytest

from quality.models import ItemTag, Review
from tenants.models import AuditEvent
from tests.factories import TurnFactory


def mark(client, item, step, **said):
    return client.post("/t/acme/items/mark/", {"item": item, "step": step, **said}, follow=True)


def test_a_call_is_tagged_archived_and_back(browse, make_call, inside):
    call = make_call()
    operator = browse("operator")
    item = f"call:{call.pk}"
    page = mark(operator, item, "tag", tag=" refund  case ")
    assert page.redirect_chain == [(f"/t/acme/calls/{call.pk}/", 302)]
    assert 'href="/t/acme/calls/?tag=refund%20case"' in page.text
    with inside():
        assert ItemTag.objects.get().tag == "refund case"
        assert AuditEvent.objects.get(action="item.tagged").object_id == str(call.pk)
    assert "refund%20case" not in mark(operator, item, "untag", tag="refund case").text
    assert "archived" in mark(operator, item, "archive").text
    with inside():
        assert Review.objects.get().archived_at is not None
    mark(operator, item, "restore")
    with inside():
        assert Review.objects.get().archived_at is None


def test_a_reply_without_a_call_has_marks_too(browse, inside):
    with inside():
        turn = TurnFactory()
    page = mark(browse("operator"), f"turn:{turn.pk}:0", "tag", tag="asked back")
    assert page.redirect_chain == [(f"/t/acme/turns/{turn.pk}/", 302)]
    assert "asked back" in page.text


@pytest.mark.parametrize(("tag", "words"), [("", "Say a word"), ("x" * 61, "the limit is 60")])
def test_a_tag_that_cannot_be_kept_is_told(browse, make_call, tag, words):
    call = make_call()
    assert words in mark(browse("operator"), f"call:{call.pk}", "tag", tag=tag).text


def test_who_may_what(browse, make_call, outsider):
    call = make_call()
    viewer = browse("viewer")
    assert "items/mark" not in viewer.get(f"/t/acme/calls/{call.pk}/").text
    assert mark(viewer, f"call:{call.pk}", "archive").status_code == 403
    assert mark(outsider, f"call:{call.pk}", "archive").status_code == 404
    operator = browse("operator")
    for item, step in (("call:999999", "archive"), ("", "archive"), ("x", "tag"), (f"call:{call.pk}", "burn")):
        assert mark(operator, item, step).status_code == 404
