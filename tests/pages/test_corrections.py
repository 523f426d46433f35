"""What would have been right: asked in the place of the labels' buttons, checked, shown to the next reviewer."""

import json
import re
import uuid

import pytest

from quality.models import Feedback, FeedbackEvent
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from tests.factories import ToolsetFactory, TurnFactory
from tests.pages.conftest import HTMX

LABEL, CORRECT = "/t/acme/review/label/", "/t/acme/review/correct/"
PARAMETERS = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "Where."},
        "days": {"type": "integer"},
        "rate": {"type": "number"},
        "unit": {"enum": ["celsius", "fahrenheit"]},
    },
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "get_time", "description": "Local time.", "parameters": {}}},
]


@pytest.fixture
def ada(browse):
    return browse("operator", user__name="Ada")


@pytest.fixture
def bob(browse):
    return browse("operator", user__name="Bob")


@pytest.fixture
def call(make_call, inside):
    with inside():
        toolset = ToolsetFactory(tools=json.dumps(TOOLS))
    return make_call(toolset=toolset, args='{"city": "Gent", "days": 3, "rate": 1.50, "unit": "C"}')


@pytest.fixture
def said(inside):
    """Label, correction and faults that a member gave."""

    def read(client):
        with inside():
            feedback = Feedback.objects.get(reviewer=client.member.user)
            return feedback.label, feedback.correction, feedback.faults

    return read


def sent(call, label, **fields):
    return {"call": call.pk, "version": 0, "nonce": str(uuid.uuid4()), "label": label, "correcting": "1", **fields}


def values(response):
    """What the fields of the form hold."""
    form = response.text.split("data-fields")[1].split("</form>")[0]
    found = dict(re.findall(r'<input [^>]*name="(argument-\d)" value="([^"]*)"', form))
    return found | dict(
        re.findall(
            r'<select name="(argument-\d)"[^>]*>(?:(?!</select>).)*?<option value="([^"]*)" selected>', form, re.DOTALL
        )
    )


def test_arguments_are_asked_for_as_the_call_had_them(ada, call):
    response = ada.get(CORRECT, {"call": call.pk, "label": "bad_args"}, headers=HTMX)
    assert 'id="judgement"' in response.text
    assert "<html" not in response.text
    shown = values(response)
    assert (shown["argument-0"], shown["argument-1"], shown["argument-2"]) == ("Gent", "3", "1.5")
    assert 'data-actual="&quot;C&quot;"' in response.text  # no option of the field, so that it is empty
    assert 'data-actual="Gent"' in response.text


def test_without_htmx_it_is_a_page(ada, call):
    response = ada.get(CORRECT, {"call": call.pk, "label": "bad_args"})
    assert "<html" in response.text
    assert 'data-actual="Gent"' in response.text
    assert ada.get("/t/acme/review/", {"call": call.pk, "correct": "bad_args"}).text.count("data-correction") == 1


def test_what_is_left_keeps_its_spelling_and_what_is_typed_its_own(ada, call, said):
    fields = {"mode": "fields", "argument-0": "Ghent", "argument-1": "3", "argument-2": "1.5"}
    response = ada.post(LABEL, sent(call, "bad_args", **fields, **{"argument-3": '"celsius"', "more": ""}))
    assert response.status_code == 302
    text = '{"arguments": {"city": "Ghent", "days": 3, "rate": 1.50, "unit": "celsius"}}'
    assert said(ada) == ("bad_args", text, ["arg:/city", "arg:/unit"])
    fields["argument-2"] = "2.500"
    ada.post(LABEL, sent(call, "bad_args", **fields, version=1, **{"argument-3": '"celsius"'}))
    assert '"rate": 2.500' in said(ada)[1]


def test_faults_stand_beside_their_fields_and_nothing_is_saved(ada, call, inside):
    fields = {"mode": "fields", "argument-0": "", "argument-1": "many", "more": '{"unit": "C", "sky": 1}'}
    response = ada.post(LABEL, sent(call, "bad_args", **fields), headers=HTMX)
    assert response["HX-Retarget"] == "#judgement"
    assert "This field is required." in response.text
    assert "Enter a whole number." in response.text
    fields |= {"argument-0": "Ghent", "argument-1": "3"}
    response = ada.post(LABEL, sent(call, "bad_args", **fields), headers=HTMX)
    assert "sky: The tool has no such argument." in response.text
    assert "is not one of" in response.text
    assert 'value="Ghent"' in response.text  # what was typed is there still
    with inside():
        assert not FeedbackEvent.objects.exists()


def test_left_as_it_was_it_is_no_correction(ada, call, said):
    fields = {"argument-0": "Gent", "argument-1": "3", "argument-2": "1.5", "argument-3": "", "more": ""}
    ada.post(LABEL, sent(call, "bad_args", mode="fields", **fields))
    assert said(ada) == ("bad_args", None, ["arg:/unit"])


def test_arguments_can_be_written_as_json(ada, call, said):
    typed = {"argument-0": "Ghent", "argument-1": "4", "argument-2": "1.5", "more": "", "note": "so far"}
    response = ada.post(LABEL, sent(call, "bad_args", mode="fields", **typed, **{"as": "json"}), headers=HTMX)
    assert "&quot;city&quot;: &quot;Ghent&quot;" in response.text
    assert "&quot;rate&quot;: 1.50" in response.text
    assert "so far" in response.text
    assert re.search(r"<ins>\+ .*Ghent", response.text)  # what changes is told without a script, too
    for text, told in [
        ("{", "This is not JSON"),
        ("[]", "Arguments are a JSON object."),
        ('{"city": 5}', "city: 5 is not"),
    ]:
        response = ada.post(LABEL, sent(call, "bad_args", mode="json", json=text), headers=HTMX)
        assert told in response.text
    ada.post(LABEL, sent(call, "bad_args", mode="json", json='{"city": "Ghent", "rate": 1.0000000000000000001}'))
    assert said(ada)[1] == '{"arguments": {"city": "Ghent", "rate": 1.0000000000000000001}}'
    response = ada.get(CORRECT, {"call": call.pk, "label": "bad_args"}, headers=HTMX)
    assert values(response)["argument-0"] == "Ghent"  # begins with what was said before


def test_a_tool_without_a_schema_takes_json(ada, make_call, said):
    call = make_call(tool_name="unheard_of", args='{"a": 1}')
    response = ada.get(CORRECT, {"call": call.pk, "label": "bad_args"}, headers=HTMX)
    assert 'name="json"' in response.text
    ada.post(LABEL, sent(call, "bad_args", mode="json", json='{"a": 2}'))
    assert said(ada) == ("bad_args", '{"arguments": {"a": 2}}', ["arg:/a"])


def test_another_tool_is_chosen_of_those_offered(ada, call, said):
    response = ada.get(CORRECT, {"call": call.pk, "label": "wrong_tool"}, headers=HTMX)
    assert re.findall(r'data-value="(\w+)"', response.text) == ["get_time"]  # not the one that was wrong
    ada.post(LABEL, sent(call, "wrong_tool", tool="get_time"))
    assert said(ada) == ("wrong_tool", '{"tool": "get_time"}', ["tool:get_time"])


def test_a_tool_that_was_not_offered_is_said_to_be_so(ada, call, said):
    response = ada.post(LABEL, sent(call, "wrong_tool", tool="teleport"), headers=HTMX)
    assert "teleport was not offered" in response.text
    assert 'value="teleport"' in response.text
    ada.post(LABEL, sent(call, "wrong_tool", tool="teleport", not_offered="1"))
    assert said(ada) == ("wrong_tool", '{"tool": "teleport", "offered": false}', ["tool:teleport"])


def test_arguments_of_the_right_tool_can_be_given_too(ada, inside, said):
    with inside():
        turn = TurnFactory(toolset=ToolsetFactory(tools=json.dumps(TOOLS)))
    item = {"turn": turn.pk, "cycle": 0, "version": 0, "nonce": str(uuid.uuid4()), "label": "missing_tool"}
    form = item | {"correcting": "1", "tool": "get_weather", "place": "0.0", "mode": ""}
    response = ada.post(LABEL, form | {"as": "fields"}, headers=HTMX)
    assert 'name="argument-0"' in response.text
    ada.post(LABEL, form | {"mode": "fields", "argument-0": "Ghent"})
    label, correction, faults = said(ada)
    assert (label, faults) == ("missing_tool", ["missing:get_weather"])
    assert json.loads(correction) == {
        "tool": "get_weather",
        "position": {"cycle": 0, "index": 0},
        "arguments": {"city": "Ghent"},
    }


def test_places_of_a_missing_call_are_named(ada, call):
    response = ada.get(CORRECT, {"call": call.pk, "label": "missing_tool"}, headers=HTMX)
    places = re.findall(r'<option value="([\d.]*)"\s*>(.*?)</option>', response.text)
    assert ("0.0", "cycle 0: before get_weather") in places
    assert ("0.1", "cycle 0: after the last call") in places
    response = ada.post(LABEL, sent(call, "missing_tool", place="9.9"), headers=HTMX)
    assert "last cycle is" in response.text
    response = ada.post(LABEL, sent(call, "missing_tool", place="first"), headers=HTMX)
    assert "Choose one of the places." in response.text


def test_another_fault_asks_for_its_note_once(ada, call, said):
    response = ada.post(LABEL, sent(call, "other"), headers=HTMX)
    assert "Save once more to leave it empty." in response.text
    assert 'name="sure"' in response.text
    ada.post(LABEL, sent(call, "other", sure="1"))
    assert said(ada) == ("other", None, [])


def test_the_next_reviewer_sees_it_and_can_agree_by_one_key(ada, bob, call, inside, said):
    with inside():
        record_label(
            item=item_of_call(call.pk),
            reviewer=ada.member.user,
            label="bad_args",
            note="Misspelled.",
            correction='{"arguments":{"city":"Ghent","days":3,"rate":1.5}}',
        )
    page = bob.get("/t/acme/review/", {"call": call.pk}).text
    assert re.search(r"<del>- <bdi>city</bdi>: <bdi>&quot;Gent&quot;</bdi></del>", page)
    assert re.search(r"<ins>\+ <bdi>city</bdi>: <bdi>&quot;Ghent&quot;</bdi></ins>", page)
    assert "rate" not in page.split('class="labels"')[1].split("<form")[0]  # 1.5 is 1.50
    assert page.count('data-key="y"') == 1
    theirs = {"correction": '{"arguments":{"city":"Ghent","days":3,"rate":1.5}}'}
    form = sent(call, "bad_args", version=1, **theirs)
    del form["correcting"]
    bob.post(LABEL, form)
    assert said(bob) == said(ada)
    assert 'data-key="y"' not in bob.get("/t/acme/review/", {"call": call.pk}).text


def test_a_conflict_keeps_the_correction(ada, bob, call, inside, said):
    with inside():
        record_label(item=item_of_call(call.pk), reviewer=bob.member.user, label="good_reply")
    response = ada.post(LABEL, sent(call, "wrong_tool", tool="get_time", note="why"), headers=HTMX)
    assert response.status_code == 409
    box = response.text.split('class="conflict"')[1].split("</form>")[0]
    assert "Keep both" in box
    assert "<code><bdi>get_time</bdi></code>" in box
    hidden = dict(re.findall(r'type="hidden"\s+name="(\w+)"\s+value="([^"]*)"', box))
    assert hidden["correction"] == "{&quot;tool&quot;: &quot;get_time&quot;}"
    ada.post(LABEL, {**hidden, "correction": '{"tool": "get_time"}'})
    assert said(ada) == ("wrong_tool", '{"tool": "get_time"}', ["tool:get_time"])
    assert said(bob)[0] == "good_reply"


def test_leaving_gives_the_buttons_back(ada, call):
    response = ada.get(CORRECT, {"call": call.pk}, headers=HTMX)
    assert "label-buttons" in response.text
    assert ada.get(CORRECT, {"call": call.pk}).url == f"/t/acme/review/?call={call.pk}"
    assert ada.get(CORRECT, {"call": call.pk, "stay": "1"}).url == f"/t/acme/calls/{call.pk}/"


def test_viewers_are_not_asked_and_outsiders_find_nothing(browse, outsider, ada, call):
    assert browse("viewer").get(CORRECT, {"call": call.pk, "label": "bad_args"}).status_code == 403
    assert "data-correction" not in browse("viewer").get("/t/acme/review/", {"call": call.pk, "correct": "other"}).text
    assert outsider.get(CORRECT, {"call": call.pk, "label": "bad_args"}).status_code == 404
    for query in ({}, {"call": 999}, {"call": "x"}):
        assert ada.get(CORRECT, query).status_code == 404


@pytest.mark.parametrize("args", ["[1]", "not json", None, '{"city": ["\\u0000", {"a": "\\ud800"}]}', '{"a":1,"a":2}'])
@pytest.mark.parametrize("label", ["wrong_tool", "missing_tool", "bad_args", "other"])
def test_whatever_the_call_had_the_form_stands(ada, make_call, label, args):
    call = make_call(args=args)
    response = ada.get(CORRECT, {"call": call.pk, "label": label}, headers=HTMX)
    assert response.status_code == 200
    assert "data-correction" in response.text
    for mode in ("fields", "json", ""):
        assert ada.post(LABEL, sent(call, label, mode=mode, **{"as": "fields"}), headers=HTMX).status_code == 200


def test_a_hostile_correction_is_shown_inert(ada, bob, make_call, inside):
    call = make_call(args='{"<img src=x>": "<b>\u202e"}')
    with inside():
        record_label(
            item=item_of_call(call.pk),
            reviewer=ada.member.user,
            label="wrong_tool",
            correction='{"tool":"<script>alert(1)</script>","offered":false,"arguments":{"<i>":"</ins><b>"}}',
        )
    page = bob.get("/t/acme/review/", {"call": call.pk}).text
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<i>" not in page.split('class="labels"')[1]
