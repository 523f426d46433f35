"""What the screen of Review answers to its script, the parts of evidence, and one's own keys."""

import json
import re

import pytest

from quality.models import Feedback, FeedbackEvent
from tenants.models import HttpToolRow
from tests.factories import ToolsetFactory
from tests.pages.conftest import HTMX
from tests.pages.test_review import LABEL, form

AHEAD = {**HTMX, "X-Ahead": "1"}
REDO = "/t/acme/review/redo/"


@pytest.fixture
def ada(browse):
    return browse("operator", user__name="Ada")


def fields_of(response, action):
    part = response.text.split(f'action="{action}"')[1].split("</form>")[0]
    return dict(re.findall(r'type="hidden"\s+name="(\w+)"\s+value="([^"]*)"', part))


class TestAhead:
    def test_a_saved_label_is_told_without_the_next_item(self, ada, make_call):
        call = make_call()
        make_call()
        response = ada.post(LABEL, form(call, label="wrong_tool"), headers=AHEAD)
        assert response.status_code == 200
        assert f'data-saved="call:{call.pk}"' in response.text
        assert 'action="/t/acme/review/undo/"' in response.text
        assert 'id="label-form"' not in response.text
        assert "HX-Push-Url" not in response.headers

    def test_what_cannot_be_saved_brings_the_judgement(self, ada, make_call, inside):
        call = make_call()
        data = form(call, label="bad_args", correcting="1", mode="json", json="{")
        for sent in (data, form(call, label="perhaps")):
            response = ada.post(LABEL, sent, headers=AHEAD)
            assert response.headers["X-Not-Saved"] == "1"
            assert 'id="judgement"' in response.text
        with inside():
            assert not Feedback.objects.exists()

    def test_another_item_on_the_screen_is_409_and_nothing_is_saved(self, ada, make_call, inside):
        call, other = make_call(), make_call()
        for headers in (AHEAD, HTMX, {}):
            response = ada.post(LABEL, form(call), headers={**headers, "X-On-Screen": f"call:{other.pk}"})
            assert response.status_code == 409
            assert "Another item was on the screen" in response.text
        with inside():
            assert not FeedbackEvent.objects.exists()
        assert ada.post(LABEL, form(call), headers={**AHEAD, "X-On-Screen": f"call:{call.pk}"}).status_code == 200


def test_what_was_undone_is_redone_to_the_letter(ada, make_call, inside):
    call = make_call()
    page = ada.post(LABEL, form(call, label="other", note="odd"), headers=HTMX)
    page = ada.post("/t/acme/review/undo/", fields_of(page, "/t/acme/review/undo/"), headers=HTMX)
    data = fields_of(page, REDO)
    page = ada.post(REDO, data, headers=HTMX)
    assert "Redone: Other on get_weather" in page.text
    assert f'action="{REDO}"' not in page.text
    with inside():
        assert list(Feedback.objects.values_list("label", "note")) == [("other", "odd")]
    ada.post(REDO, data, headers=HTMX)  # sent twice
    with inside():
        assert FeedbackEvent.objects.count() == 3


def test_staying_is_kept_on_the_account(ada, make_call):
    call = make_call()
    following = make_call()
    ada.post("/t/acme/review/advance/", form(call))
    ada.member.user.refresh_from_db()
    assert ada.member.user.review_settings == {"advance": False}
    page = ada.get(f"/t/acme/review/?call={call.pk}").text
    assert re.search(r'name="here"[^>]*checked', page)
    assert ada.post(LABEL, form(call, here="1")).url == f"/t/acme/review/?call={call.pk}"
    assert ada.post(LABEL, form(call, label="other", version=1)).url == f"/t/acme/review/?call={following.pk}"


def test_after_an_item_comes_the_next_open_one(ada, make_call):
    first, second = make_call(), make_call()
    page = ada.get(f"/t/acme/review/?after=call:{first.pk}")
    assert f'data-item="call:{second.pk}"' in page.text
    for name in ("call:0", "call:x", "turn:1", "nothing", "turn:9999999:0"):
        assert ada.get(f"/t/acme/review/?after={name}").status_code == 404


class TestBranches:
    @pytest.fixture
    def call(self, make_call):
        result = (
            '{"list": [' + ", ".join(str(n) for n in range(200)) + '], "a/b~c": {"n": 1.10}, "long": "' + "x" * 5_000
        )
        return make_call(result=result + '"}', args='{"city": "Z\\u00fcrich"}')

    def get(self, client, call, name="result", **query):
        return client.get(f"/t/acme/calls/{call.pk}/{name}/branch/", query)

    def test_members_that_were_left_out_come_from_where_they_begin(self, ada, call):
        part = self.get(ada, call, **{"at": "/list", "from": "60"}).text
        assert '<span class="json-key"><bdi>60</bdi></span>' in part
        assert "<bdi>59</bdi>" not in part
        assert "from=120" in part

    def test_a_long_text_comes_whole(self, ada, call):
        assert "x" * 5_000 in self.get(ada, call, at="/long").text

    def test_raw_says_what_is_stored(self, ada, call):
        assert self.get(ada, call, at="/a~1b~0c", raw=1).text == '{"n": 1.10}'
        assert self.get(ada, call, at="/a~1b~0c/n", raw=1).text == "1.10"
        assert self.get(ada, call, "args", at="/city", raw=1).text == "Zürich"
        assert self.get(ada, call, "args", raw=1).text == '{"city": "Z\\u00fcrich"}'

    def test_raw_is_never_a_page(self, ada, make_call):
        call = make_call(result='{"x": "<script>alert(1)</script>"}')
        response = self.get(ada, call, at="/x", raw=1)
        assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert "attachment" in response.headers["Content-Disposition"]
        assert "<script>" not in self.get(ada, call, at="/x").text

    @pytest.mark.parametrize(
        "pointer", ["/nothing", "list", "/list/200", "/list/-1", "/list/x", "/long/0", "/list/0/0"]
    )
    def test_what_is_not_there_is_404(self, ada, call, pointer):
        assert self.get(ada, call, at=pointer).status_code == 404
        assert self.get(ada, call, at=pointer, raw=1).status_code == 404

    def test_strangers_find_nothing(self, outsider, call):
        assert self.get(outsider, call, at="/list").status_code == 404

    def test_text_that_is_no_json_can_be_copied(self, ada, make_call):
        call = make_call(args="{oops")
        assert self.get(ada, call, "args", raw=1).text == "{oops"
        assert self.get(ada, call, "args", at="/a").status_code == 404


def test_a_list_of_flat_objects_is_a_table_with_its_tree(ada, make_call):
    rows = [{"id": n, **({"x": None} if n else {})} for n in range(60)]
    page = ada.get(f"/t/acme/calls/{make_call(result=json.dumps(rows)).pk}/").text
    assert '<table class="flat">' in page
    assert "10 more rows." in page
    for other in ([{"id": 1}], [{"id": 1}, {"id": [2]}], [{"id": 1}, {}], [1, 2], {"a": [{"b": 1}, {"b": 2}]}):
        assert '<table class="flat">' not in ada.get(f"/t/acme/calls/{make_call(result=json.dumps(other)).pk}/").text


def test_tools_offered_then_are_held_against_todays(ada, make_call, inside):
    definition = {"name": "get_weather", "description": "Weather.", "method": "GET", "url": "https://api.example.com/w",
                  "parameters": {"type": "object", "properties": {"town": {"type": "string"}}}}  # fmt: skip
    with inside():
        tools = [
            {"type": "function", "function": {"name": name, "description": "Weather.", "parameters": parameters}}
            for name, parameters in (
                ("get_weather", {"type": "object", "properties": {"city": {"type": "string"}}}),
                ("get_time", {}),
            )
        ]
        toolset = ToolsetFactory(tools=json.dumps(tools))
    call = make_call(toolset=toolset)
    assert "changed since" not in ada.get(f"/t/acme/calls/{call.pk}/").text  # nobody knows of today's
    with inside():
        from tenants.tools import import_tools

        import_tools(json.dumps([definition]), actor=ada.member.user)
        assert HttpToolRow.objects.count() == 1
    page = ada.get(f"/t/acme/calls/{call.pk}/").text
    assert "changed since" in page
    assert "not offered today" in page
    assert re.search(r"<del>- .*city", page)
    assert re.search(r"<ins>\+ .*town", page)


class TestKeysOfOnesOwn:
    def test_pages_are_made_with_them(self, ada, make_call):
        call = make_call()
        sent = {"good_reply": "q", "skip": "F8"}
        assert ada.post("/account/keys/", sent).status_code == 302
        for path in (f"/t/acme/review/?call={call.pk}", f"/t/acme/calls/{call.pk}/"):
            page = ada.get(path).text
            assert 'data-key="q"' in page
            assert "<kbd>q</kbd>" in page
            assert 'data-key="1"' not in page
        ada.member.user.refresh_from_db()
        assert ada.member.user.review_settings["keys"] == sent

    def test_a_collision_is_refused_beside_its_field_and_nothing_is_kept(self, ada):
        response = ada.post("/account/keys/", {"good_reply": "s"})
        assert response.status_code == 422
        assert "s is taken: skip to the next without a label" in response.text
        ada.member.user.refresh_from_db()
        assert ada.member.user.review_settings == {}

    def test_they_can_be_had_back(self, ada):
        ada.post("/account/keys/", {"good_reply": "q"})
        ada.post("/account/keys/", {"reset": "1"})
        ada.member.user.refresh_from_db()
        assert ada.member.user.review_settings["keys"] == {}

    def test_nobody_signed_out_has_any(self, client, db):
        assert client.get("/account/keys/").url.startswith("/signin/")
