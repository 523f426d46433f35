"""One call with everything needed to judge it."""

import json
import re

import pytest

from quality.models import Label
from quality.review.items import item_of_call
from quality.review.labelling import record_label, undo
from tenants.scope import tenant_scope
from tests.corpus.corpus import load
from tests.factories import LATEST, ToolCallFactory, ToolsetFactory, TurnFactory
from tests.pages.conftest import HTMX

CALLED = [
    {"role": "user", "content": "What is the weather in Zürich?"},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "call_0_0", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}},
        {"id": "call_0_1", "type": "function", "function": {"name": "get_time", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "call_0_0", "content": '{"sky":"clear"}'},
    {"role": "assistant", "content": "It is clear."},
]  # fmt: skip


@pytest.fixture
def page(browse, inside):
    """`page(call, role)`: the text of the call's page."""
    return lambda call, role="operator": browse(role).get(f"/t/acme/calls/{call.pk}/").text


def test_arguments_stand_beside_the_schema(page, make_call):
    text = page(make_call(args='{"unit":"kelvin","town":"Zürich"}'))
    assert 'class="arg-missing"' in text  # city is required
    assert 'class="arg-invalid"' in text  # kelvin is no unit
    assert 'class="arg-unknown"' in text  # town is not in the schema
    assert "3 against the schema" in text
    assert text.index("<bdi>city</bdi>") < text.index("<bdi>unit</bdi>") < text.index("<bdi>town</bdi>")


def test_raw_arguments_keep_their_spelling(browse, make_call):
    args = '{"n": 12345678901234567890123456789, "x":1.50,\n "a":"\\u00e9"}'
    call = make_call(args=args)
    client = browse("viewer")
    assert "12345678901234567890123456789, " in client.get(f"/t/acme/calls/{call.pk}/").text
    raw = client.get(f"/t/acme/calls/{call.pk}/args/")
    assert raw.content.decode() == args
    assert raw.headers["Content-Disposition"] == f'attachment; filename="call-{call.pk}-args.json"'
    assert raw.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (None, "No arguments were recorded."),
        ('"get_weather(city=Zürich)"', "The model wrote text that is not a JSON object."),
        ("[1]", "These arguments are JSON, but not an object."),
        ("{}", "missing"),
    ],
)
def test_arguments_that_are_no_object_are_shown_as_such(page, make_call, args, words):
    assert words in page(make_call(args=args))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"result": '{"sky":"clear","t":21.50}'}, '<span class="json-number">21.50</span>'),
        ({"result": '"plain\\nwords"'}, "<bdi>plain\nwords</bdi>"),
        ({"result": None, "is_error": None}, "No result was recorded."),
        ({"result": None, "is_error": True, "error": "timed out after 15 s"}, "timed out after 15 s"),
    ],
)
def test_a_result_is_shown_by_its_kind(page, make_call, fields, words):
    assert words in page(make_call(**fields))


def test_a_long_result_is_cut_with_its_true_size_and_can_be_had_whole(browse, make_call):
    result = json.dumps("x" * 300_000)
    call = make_call(result=result)
    client = browse("viewer")
    response = client.get(f"/t/acme/calls/{call.pk}/")
    assert len(response.content) < 120_000
    assert "Cut here." in response.text
    assert 'title="300,002 bytes"' in response.text
    assert client.get(f"/t/acme/calls/{call.pk}/result/").content.decode() == result


def test_the_call_stands_in_its_place_and_the_others_of_the_turn_are_linked(page, inside):
    with inside():
        turn = TurnFactory(messages=json.dumps(CALLED))
        call, other = ToolCallFactory(turn=turn), ToolCallFactory(turn=turn, tool_name="get_time")
    text = page(call)
    assert text.index("What is the weather") < text.index('id="call"') < text.index("It is clear.")
    assert "call 1 of 2" in text
    assert f'href="/t/acme/calls/{other.pk}/"' in text
    assert text.count('id="call"') == 1


def test_a_call_without_a_place_is_shown_all_the_same(page, make_call):
    call = make_call(turn__messages=None)
    text = page(call)
    assert 'id="call"' in text
    assert "recorded no messages" in text
    assert "do not show where this call was made" in page(make_call())


def test_tools_offered_are_listed_and_a_tool_that_was_not_is_told(page, make_call):
    text = page(make_call(tool_name="get_wether"))
    assert "Tools offered · 1" in text
    assert "Current weather of a city." in text
    assert "was not among them" in text
    assert "was not among them" not in page(make_call())


def test_without_a_snapshot_that_is_said(page, make_call):
    assert "did not record which tools were offered" in page(make_call(toolset=None, turn__toolset=None))


def test_other_turns_of_the_conversation_are_folded_and_come_when_unfolded(browse, inside):
    with inside():
        old = TurnFactory(conversation_id="talk", started_at=LATEST.replace(hour=1), messages=json.dumps(CALLED))
        call = ToolCallFactory(turn=TurnFactory(conversation_id="talk"))
        TurnFactory(conversation_id="talk", started_at=LATEST.replace(hour=23))
    client = browse("viewer")
    text = client.get(f"/t/acme/calls/{call.pk}/").text
    assert re.search(r"\b1 earlier turn\s*<", text)
    assert re.search(r"\b1 later turn\s*<", text)
    assert "It is clear." not in text
    part = client.get(f"/t/acme/turns/{old.pk}/", headers=HTMX).text
    assert "It is clear." in part
    assert "<html" not in part
    assert "<html" in client.get(f"/t/acme/turns/{old.pk}/").text


def test_messages_that_the_caller_sent_along_are_folded_above(page, inside):
    with inside():
        call = ToolCallFactory(turn=TurnFactory(history=json.dumps(CALLED)))
    text = page(call)
    assert "4 earlier messages, as the caller sent them along" in text
    assert text.index("It is clear.") < text.index('id="call"')
    assert text.count('id="call"') == 1


def test_a_long_message_is_cut_and_comes_whole_when_asked_for(browse, inside):
    with inside():
        turn = TurnFactory(messages=json.dumps([{"role": "user", "content": "word " * 2000}]))
    client = browse("viewer")
    assert "6,000 of 10,000 characters are not shown" in client.get(f"/t/acme/turns/{turn.pk}/").text
    part = client.get(f"/t/acme/turns/{turn.pk}/messages/0/", headers=HTMX).text
    assert part.count("word ") == 2000
    assert part.startswith('<div class="text"')
    plain = client.get(f"/t/acme/turns/{turn.pk}/messages/0/")
    assert plain.headers["Content-Type"] == "text/plain; charset=utf-8"


def test_labels_of_all_reviewers_are_shown_with_their_history(browse, make_call, inside):
    ada, bob = browse("operator", user__name="Ada"), browse("operator", user__name="Bob")
    call = make_call()
    with inside():
        item = item_of_call(call.pk)
        record_label(item=item, reviewer=ada.member.user, label=Label.WRONG_TOOL, note="use get_time")
        record_label(item=item, reviewer=bob.member.user, label=Label.GOOD_REPLY)
        undo(item=item, reviewer=bob.member.user)
    text = ada.get(f"/t/acme/calls/{call.pk}/").text
    assert "use get_time" in text
    assert "History · 3 steps" in text
    assert "undid step 2" in text
    assert 'value="wrong_tool"' in text
    assert text.count('aria-pressed="true"') == 1  # Ada's own label
    assert 'aria-pressed="true"' not in bob.get(f"/t/acme/calls/{call.pk}/").text


def test_a_viewer_sees_no_buttons(page, make_call):
    text = page(make_call(), "viewer")
    assert 'name="label"' not in text
    assert "ask an admin for the role Operator" in text


def test_a_detail_page_takes_the_same_queries_whatever_hangs_on_it(
    browse, inside, django_assert_max_num_queries, django_assert_num_queries
):
    client = browse("operator")
    with inside():
        turn = TurnFactory(conversation_id="talk")
        call = ToolCallFactory(turn=turn)
    client.get(f"/t/acme/calls/{call.pk}/")  # today's tools are read once for each version of the settings
    with django_assert_max_num_queries(32) as first:
        client.get(f"/t/acme/calls/{call.pk}/")
    with inside():
        for _ in range(19):
            ToolCallFactory(turn=turn)
        for _ in range(19):
            TurnFactory(conversation_id="talk")
    with django_assert_num_queries(len(first.captured_queries)):
        client.get(f"/t/acme/calls/{call.pk}/")


def hostile(place):
    """Bodies of the corpus that a page must show inert, as the texts that they hold."""
    rows = load("hostile_json.jsonl")
    return [pytest.param(row["raw"], id=row["id"]) for row in rows if row["at"] == place and "raw" in row]


@pytest.mark.parametrize("raw", hostile("message"))
def test_a_hostile_message_is_inert(browse, inside, raw):
    with inside():
        turn = TurnFactory(messages=f'[{{"role":"user","content":{raw}}},{{"role":{raw},"content":{raw}}}]')
    response = browse("viewer").get(f"/t/acme/turns/{turn.pk}/")
    assert_inert(response)


@pytest.mark.parametrize("raw", hostile("result"))
def test_a_hostile_result_is_inert(browse, make_call, raw):
    call = make_call(
        result=json.dumps(raw, ensure_ascii=False), args=json.dumps({raw: raw}), error=raw.replace("\0", "")
    )
    response = browse("viewer").get(f"/t/acme/calls/{call.pk}/")
    assert_inert(response)


def assert_inert(response):
    assert response.status_code == 200
    for tag in ("<script>alert", "<img", '<div hx-get="/admin', "javascript:alert(1)&#x27;>"):
        assert tag not in response.text
    for character in "\x1b\x07\u202e\u202d\u200b\u2066\u2028\u2029\x85":
        assert character not in response.text


def test_a_turn_without_a_call_can_be_judged_too(browse, inside):
    with inside():
        turn = TurnFactory()
    text = browse("operator").get(f"/t/acme/turns/{turn.pk}/").text
    assert f"<h1>Turn {turn.pk}</h1>" in text
    assert "without a call" in text
    assert "Right: no call was needed" in text
    assert f'name="turn" value="{turn.pk}"' in " ".join(text.split())


def test_the_last_reply_of_a_turn_with_calls_is_judged_as_one_that_made_no_further_call(browse, make_call):
    call = make_call()
    text = browse("operator").get(f"/t/acme/turns/{call.turn_id}/").text
    assert "Right: no further call was needed" in text
    assert "Right: no call was needed" not in text


def test_a_snapshot_of_any_shape_does_not_break_the_page(page, make_call, tenant):
    with tenant_scope(tenant):
        definition = '{"function":{"name":"get_weather","parameters":{"type":"nonsense"}}}'
        toolset = ToolsetFactory(tools=f"[{definition},7,null]")
    text = page(make_call(toolset=toolset))
    assert "cannot be used" in text
