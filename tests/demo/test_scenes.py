"""The demo's turns as values: valid where they should be, and wrong in every way that reviewers must see."""

import datetime as dt
import json
import re
from collections import Counter

import jsonschema
import pytest

from quality.demo import generator, labels, real
from quality.demo.agents import contracts, phrases
from quality.demo.play import FAULTS
from quality.demo.records import messages_of, turn_record
from quality.demo.scene import Scene
from quality.ingest.records import TurnRecord

NOW = dt.datetime(2026, 11, 30, 8, 15, tzinfo=dt.UTC)
OTHER_DAYS = [dt.datetime(2026, 2, 28, 23, 59, tzinfo=dt.UTC), dt.datetime(2028, 1, 1, 0, 5, tzinfo=dt.UTC)]


def all_scenes(now: dt.datetime) -> list[Scene]:
    return [*generator.scenes(now), *real.scenes(now)]


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    return all_scenes(NOW)


@pytest.fixture(scope="module")
def turns(scenes: list[Scene]) -> list[TurnRecord]:
    return [turn_record(scene) for scene in scenes]


def test_the_same_moment_gives_the_same_month(scenes: list[Scene]) -> None:
    assert all_scenes(NOW) == scenes


@pytest.mark.parametrize("now", [NOW, *OTHER_DAYS])
def test_each_fault_appears_on_any_day(now: dt.datetime) -> None:
    found = Counter(scene.fault for scene in generator.scenes(now))
    assert {fault: found[fault] for fault in FAULTS if found[fault] < 2} == {}
    assert found["ok"] > sum(found.values()) / 2


@pytest.mark.parametrize("now", [NOW, *OTHER_DAYS])
def test_all_turns_lie_in_the_last_month_and_none_ahead(now: dt.datetime) -> None:
    for scene in all_scenes(now):
        assert now - dt.timedelta(days=31) < scene.started_at
        assert scene.started_at + dt.timedelta(milliseconds=scene.duration_ms or 0) < now


def test_there_is_enough_to_fill_lists_and_charts(turns: list[TurnRecord]) -> None:
    calls = [call for turn in turns for call in turn.calls]
    assert len(turns) > 300
    assert len(calls) > 350
    assert len({call.tool_name for call in calls}) > 12
    assert len({turn.model for turn in turns}) > 5
    assert len({turn.source for turn in turns}) >= 4
    assert {turn.prompt_version for turn in turns} >= {f"{style}@{v}" for style in contracts() for v in ("1", "2")}
    assert sum(not turn.calls for turn in turns) > 40
    assert any(call.index for call in calls)
    assert any(call.cycle for call in calls)
    assert {call.is_error for call in calls} == {True, False, None}


def test_names_of_turns_and_calls_are_unique(turns: list[TurnRecord]) -> None:
    assert len({turn.external_id for turn in turns}) == len(turns)
    calls = [call.external_id for turn in turns for call in turn.calls]
    assert len(set(calls)) == len(calls)


def test_all_evidence_is_json_text(turns: list[TurnRecord]) -> None:
    for turn in turns:
        for text in (turn.messages, turn.system, turn.tools, *(t for c in turn.calls for t in (c.args, c.result))):
            if text is not None:
                json.loads(text)


def test_every_offered_tool_has_a_valid_schema(turns: list[TurnRecord]) -> None:
    toolsets = {turn.tools for turn in turns}
    assert len(toolsets) > 6
    for tools in toolsets:
        for tool in json.loads(tools or "[]"):
            jsonschema.Draft202012Validator.check_schema(tool["function"]["parameters"])


def test_every_agent_changed_its_contract_in_the_month(turns: list[TurnRecord]) -> None:
    for style in contracts():
        assert len({turn.tools for turn in turns if turn.style_id == style}) == 2


def test_arguments_break_the_schema_where_the_fault_says_so(scenes: list[Scene]) -> None:
    broken = [s for s in scenes if s.fault == "missing_required"]
    assert broken
    for scene in broken:
        schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in json.loads(scene.tools)}
        (bad,) = [verdict for verdict in scene.verdicts if verdict.label == "bad_args"]
        call = scene.cycles[bad.cycle].calls[bad.index or 0]
        with pytest.raises(jsonschema.ValidationError, match="required property"):
            jsonschema.validate(json.loads(call.args), schemas[call.tool])
        assert call.outcome.is_error


def test_right_calls_fit_their_contract(scenes: list[Scene]) -> None:
    for scene in scenes:
        if scene.fault == "ok" and scene.style_id in contracts():
            schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in json.loads(scene.tools)}
            for call in (call for cycle in scene.cycles for call in cycle.calls):
                jsonschema.validate(json.loads(call.args), schemas[call.tool])
                assert call.outcome.is_error is False


def test_corrections_are_calls_that_the_tools_take(scenes: list[Scene]) -> None:
    for scene in scenes:
        schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in json.loads(scene.tools)}
        for verdict in scene.verdicts:
            if verdict.correction and "arguments" in verdict.correction:
                called = scene.cycles[verdict.cycle].calls[verdict.index].tool if verdict.index is not None else ""
                tool = verdict.correction.get("tool", called)
                jsonschema.validate(verdict.correction["arguments"], schemas[tool])


def test_every_language_of_the_phrases_is_spoken(scenes: list[Scene]) -> None:
    assert {scene.language for scene in scenes} >= {*phrases(), "zh", "hi", "ko"}
    text = "".join(scene.user for scene in scenes)
    for script in ("[а-я]", "[ء-ي]", "[ぁ-ん]", "[一-龥]", "[ऀ-ॿ]", "[😀-🙏]"):
        assert re.search(script, text)


def test_long_results_and_deep_arguments_exist(turns: list[TurnRecord]) -> None:
    calls = [call for turn in turns for call in turn.calls]
    assert max(len(call.result or "") for call in calls) > 15_000
    assert max((call.args or "").count("[{") for call in calls) > 10


def test_each_message_of_a_tool_answers_a_call(scenes: list[Scene]) -> None:
    for scene in scenes:
        asked: set[str] = set()
        for message in messages_of(scene):
            asked.update(call["id"] for call in message.get("tool_calls", ()))
            if message["role"] == "tool":
                asked.remove(message["tool_call_id"])
        assert not asked or scene.fault == "no_result" or None in {c.outcome.content for c in scene.cycles[-1].calls}


def test_no_address_leaves_the_example_domains(turns: list[TurnRecord]) -> None:
    for turn in turns:
        for text in (turn.messages or "", turn.system or ""):
            for host in re.findall(r"@([\w-]+\.[\w.-]*\w)|https?://([^/\"\s]+)", text):
                assert re.fullmatch(r"(booking\.)?example\.(com|org|net)", host[0] or host[1])


def test_people_are_numbers(turns: list[TurnRecord]) -> None:
    assert all(re.fullmatch(r"contact-\d{4}", turn.contact or "") for turn in turns)


def test_all_recorded_exchanges_are_shown_as_they_came(scenes: list[Scene]) -> None:
    shown = {scene.key: scene for scene in scenes}
    for number, row in enumerate(real.rows()):
        scene = shown[f"real-{number:03d}"]
        assert scene.user in {message["content"] for message in row["request"]["messages"]}
        assert json.loads(scene.tools) == (row["request"].get("tools") or [])
        got = real.received(row).message
        if got is None:
            assert scene.reply is None
        for call in (got or {}).get("tool_calls") or []:
            played = scene.cycles[-1].calls
            assert (call["function"]["name"], call["function"]["arguments"]) in {(c.tool, c.args) for c in played}


def test_a_recorded_stream_is_put_together() -> None:
    row = next(
        row for row in real.rows() if row["model"].startswith("llama-cpp-python-server") and row["stream_chunks"][1:]
    )
    message = real.received(row).message
    assert message is not None
    assert [call["function"] for call in message["tool_calls"]] == [
        {"name": "get_weather", "arguments": '{"city":"Paris","unit":"celsius"}'}
    ]


def test_calls_that_came_as_text_are_calls_and_say_so(scenes: list[Scene]) -> None:
    shown = {scene.key: scene for scene in scenes}
    fenced = shown["real-027"]
    (call,) = fenced.cycles[0].calls
    assert (call.tool, json.loads(call.args)) == ("get_weather", {"city": "Paris", "unit": "celsius"})
    assert real.CALLS_FROM_TEXT in fenced.warnings
    assert (fenced.cycles[0].text or "").startswith("```json")  # what the model really wrote stays in sight
    assert sum(real.CALLS_FROM_TEXT in scene.warnings for scene in scenes) > 10
    prose = shown["real-056"]
    assert not prose.cycles
    assert prose.verdicts[0].label == "missing_tool"


def test_old_calls_are_labelled_and_most_new_ones_are_not(scenes: list[Scene]) -> None:
    given = list(labels.given(scenes, NOW, 1))

    def decade(scene: Scene) -> int:
        return (NOW - scene.started_at).days // 10

    items = Counter(decade(scene) for scene in scenes for _ in scene.verdicts)
    named = {scene.key: scene for scene in scenes}
    done = Counter(
        decade(named[key]) for key, *_ in {(one.scene.key, one.verdict.cycle, one.verdict.index) for one in given}
    )
    assert done[2] / items[2] > 0.5 > done[1] / items[1] > 0.25 > done[0] / items[0] > 0
    assert {one.verdict.label for one in given} == {"good_reply", "wrong_tool", "missing_tool", "bad_args", "other"}
    assert {one.reviewer for one in given} == {0, 1}


def test_a_tool_that_nobody_offered_is_refused_by_name(scenes: list[Scene]) -> None:
    refused = [
        call.outcome
        for scene in scenes
        if scene.style_id in contracts()
        for cycle in scene.cycles
        for call in cycle.calls
        if call.tool not in {tool["function"]["name"] for tool in json.loads(scene.tools)}
    ]
    assert refused
    assert {json.loads(outcome.content or "")["error"]["code"] for outcome in refused} == {"unknown_tool"}
    assert all(outcome.is_error for outcome in refused)
