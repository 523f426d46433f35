"""Replays against a real server that follows a script: what is sent, what calls are answered with, what is kept."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from engine.errors import ToolError
from engine.limits import Price
from engine.net import Guard, Policy
from engine.providers.retry import RetryPolicy
from engine.providers.scripted import ScriptedServer
from engine.providers.wire import Completion
from engine.tools import Arguments, FunctionTool, Safety, ToolContext, ToolOutcome, succeeded
from quality.cases import replay
from quality.cases.attempt import Attempt, BadAttempt, read_attempts
from quality.cases.budgets import Allowance, BadBudget, Spent
from quality.cases.conversation import PLACEHOLDER
from quality.cases.judge import judge
from quality.cases.record import Case
from quality.cases.replay import Endpoint, Live, Replay, Settings, Side
from quality.cases.reply_cache import ReplyCache
from quality.cases.sample import Ending, Verdict
from quality.cases.stubs import OnMiss
from tests.cases.samples import calls
from tests.cases.suite import CANCEL, GET, asked, case_of, look, right, say
from tests.engine.loopback import serving

pytestmark = pytest.mark.anyio
AT_ONCE = RetryPolicy(tries=2, base_s=0.001, cap_s=0.002)
LOOK_AND_TELL = right("exact", reply={"must": [{"contains": "sent"}]})


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def side_of(server: ScriptedServer, name: str = "candidate", **more: Any) -> Side:
    endpoint = {"base_url": server.base_url, "model": "choose", "retry": AT_ONCE, **more.pop("endpoint", {})}
    return Side(name=name, endpoint=Endpoint(**endpoint), **more)


async def replayed(
    server: ScriptedServer, *cases: Case, side: Side | None = None, run: dict[str, Any] | None = None, **settings: Any
) -> list[Attempt]:
    chosen = Settings(**{"concurrency": 1, **settings})
    return await Replay(cases, [side or side_of(server)], chosen, guard=Guard(Policy.local()), **(run or {})).run()


def verdict(case: Case, attempt: Attempt) -> Verdict:
    return judge(case.expectation, attempt.sample, tools=case.tools, now=case.now).verdict


async def test_a_case_of_its_first_reply_asks_once() -> None:
    case = case_of()
    async with ScriptedServer([look()]) as server:
        [attempt] = await replayed(server, case)
    assert verdict(case, attempt) is Verdict.PASS
    assert len(server.asked) == 1
    assert (attempt.requests, attempt.sources, attempt.sample.ending) == (1, ((None,),), Ending.RUNNING)
    body = server.asked[0].body
    assert body["messages"] == [{"role": "user", "content": "Where is order 7731?"}]
    assert [tool["function"]["name"] for tool in body["tools"]] == ["get_order", "cancel_order"]


async def test_calls_are_answered_from_the_recording_and_the_model_reads_it() -> None:
    case = case_of(1, LOOK_AND_TELL)
    async with ScriptedServer([look(), say("It was sent.")]) as server:
        [attempt] = await replayed(server, case)
    assert verdict(case, attempt) is Verdict.PASS
    assert attempt.counts == {"exact": 1}
    answer, result = server.asked[1].body["messages"][-2:]
    assert result == {"role": "tool", "tool_call_id": answer["tool_calls"][0]["id"], "content": '{"status": "sent"}'}


async def test_nothing_more_is_asked_once_the_verdict_is_decided() -> None:
    case = case_of(1, right("exact"))
    async with ScriptedServer([look("1"), say()]) as server:
        [attempt] = await replayed(server, case, on_miss=OnMiss.ERROR)
    assert verdict(case, attempt) is Verdict.FAIL
    assert len(server.asked) == 1


async def test_a_recorded_result_serves_a_call_that_differs_where_nobody_cares() -> None:
    step = {"tool": "get_order", "args": {"order_number": "7731", "note": {"ignore": True}}}
    case = case_of(1, {**calls("exact", step), "reply": {"must": [{"contains": "sent"}]}})
    async with ScriptedServer([look(note="please"), say("sent")]) as server:
        [attempt] = await replayed(server, case)
    assert (attempt.counts, verdict(case, attempt)) == ({"matched": 1}, Verdict.PASS)


async def test_written_stubs_answer_what_fits_them() -> None:
    stubs = [{"tool": "get_*", "args": {"order_number": {"regex": "77.*"}}, "result": "on its way"}]
    case = case_of(1, right("exact", reply={"must": [{"contains": "way"}]}), stubs=stubs, observed=None)
    async with ScriptedServer([look(), say("It is on its way.")]) as server:
        [attempt] = await replayed(server, case)
    assert (attempt.counts, verdict(case, attempt)) == ({"stub": 1}, Verdict.PASS)
    assert server.asked[1].body["messages"][-1]["content"] == "on its way"


@pytest.mark.parametrize(
    ("policy", "source", "shown", "ending"),
    [
        ("stop", "missed", None, Ending.DIVERGED),
        ("fifo", "drifted", '{"status": "unknown"}', Ending.ANSWERED),
        ("error", "error", '{"error": "not available in replay"}', Ending.ANSWERED),
        ("fixed", "fixed", "all is well", Ending.ANSWERED),
    ],
)
async def test_a_call_that_nothing_answers(policy: str, source: str, shown: str | None, ending: Ending) -> None:
    case = case_of(1, {"version": 1, "reply": {"must": [{"contains": "sent"}]}})
    async with ScriptedServer([look("1"), say("It was sent.")]) as server:
        [attempt] = await replayed(server, case, on_miss=OnMiss(policy), miss_result="all is well")
    assert (attempt.counts, attempt.sample.ending) == ({source: 1}, ending)
    assert verdict(case, attempt) is (Verdict.DIVERGED if shown is None else Verdict.PASS)
    if shown is not None:
        assert server.asked[1].body["messages"][-1]["content"] == shown


async def test_the_same_call_twice_takes_the_second_result() -> None:
    results = [{"status": "open"}, {"status": "sent"}]
    stubs = [{"tool": "get_order", "arguments": {"order_number": "7731"}, "result": each} for each in results]
    case = case_of(1, {"version": 1, "reply": {"must": [{"contains": "sent"}]}}, stubs=stubs)
    async with ScriptedServer([look(), look(), say("sent")]) as server:
        await replayed(server, case)
    told = [m["content"] for m in server.asked[2].body["messages"] if m["role"] == "tool"]
    assert told == ['{"status": "open"}', '{"status": "sent"}']


async def test_no_replay_ever_calls_a_tool() -> None:
    """Not those of the case, whatever its definitions name."""
    with serving() as canary:
        url = f"http://127.0.0.1:{canary.port}/orders/{{order_number}}"
        tools = [{**GET, "url": url, "method": "GET", "function": {**GET["function"], "url": url, "description": url}}]
        case = case_of(
            1, {"version": 1, "calls": {"mode": "any"}, "limits": {"max_cycles": 3}}, input=asked(tools=tools)
        )
        for policy in OnMiss:
            async with ScriptedServer([look("1"), look("2"), say()]) as server:
                await replayed(server, case, on_miss=policy)
        assert canary.seen == []


def counting(called: list[Any], safety: Safety = Safety.SAFE) -> FunctionTool:
    async def execute(arguments: Arguments, context: ToolContext) -> ToolOutcome:
        called.append(arguments)
        return succeeded('{"status": "sent"}', context)

    return FunctionTool("get_order", "", GET["function"]["parameters"], execute, safety=safety)


async def test_live_tools_are_called_only_if_named_and_only_where_the_recording_has_nothing() -> None:
    called: list[Any] = []
    case = case_of(1, {"version": 1, "reply": {"must": [{"contains": "sent"}]}})
    cancel = Completion(calls=(("cancel_order", '{"order_number": "1"}'),))
    live = {"live": Live(tools={"get_order": counting(called)})}
    async with ScriptedServer([look("1"), look("7731"), cancel]) as server:
        [attempt] = await replayed(server, case, on_miss=OnMiss.LIVE, run=live)
    assert called == [{"order_number": "1"}]
    assert attempt.counts == {"live": 1, "exact": 1, "missed": 1}
    async with ScriptedServer([look("1")]) as server:
        await replayed(server, case, run=live)
    assert len(called) == 1
    with pytest.raises(ToolError, match="safe"):
        Live(tools={"get_order": counting(called, Safety.UNSAFE)})


async def test_the_recorded_conversation_is_sent_in_a_form_that_servers_take() -> None:
    before: list[dict[str, Any]] = [
        {"role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
        {"role": "user", "content": "Hello"},
        {"type": "reasoning", "id": "rs_1", "encrypted_content": "x"},
        {"role": "assistant", "content": None, "reasoning_content": "hm", "id": "msg_1",
         "tool_calls": [{"id": "old_1", "type": "function", "function": {"name": "get_order", "arguments": "{'a"}}]},
        {"role": "tool", "tool_call_id": "old_1", "content": "nothing"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "toolu_1", "name": "get_order", "input": {"order_number": "1"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "one"}]},
        {"type": "function_call", "call_id": "fc_1", "name": "get_order", "arguments": '{"order_number": "2"}'},
        {"type": "function_call", "call_id": "fc_2", "name": "cancel_order", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "fc_1", "output": "two"},
    ]  # fmt: skip
    async with ScriptedServer([look()]) as server:
        [attempt] = await replayed(server, case_of(input=asked("Where is order 7731?", *before)))
    messages = server.asked[0].body["messages"]
    assert [m["role"] for m in messages] == [
        "system", "user", "assistant", "tool", "assistant", "tool", "assistant", "tool", "tool", "user",
    ]  # fmt: skip
    assert messages[0]["content"] == "Be brief."
    assert messages[2]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert messages[4]["content"] == "Let me see."
    assert [m["content"] for m in messages if m["role"] == "tool"] == ["nothing", "one", "two", PLACEHOLDER]
    text = json.dumps(messages)
    for word in ("old_1", "toolu_1", "fc_1", "reasoning", "signature", "msg_1", "thinking"):
        assert word not in text
    answers = [m["tool_call_id"] for m in messages if m["role"] == "tool"]
    assert answers == [call["id"] for m in messages for call in m.get("tool_calls", ())]
    assert any("placeholder" in note for note in attempt.notes)


async def test_another_prompt_and_other_tools_are_tried() -> None:
    case = case_of(input=asked("Where is order 7731?", {"role": "system", "content": "Old."}))
    async with ScriptedServer([look()]) as server:
        await replayed(server, case, side=side_of(server, system_prompt="New.", tools=[{**GET, "strict": True}]))
    body = server.asked[0].body
    assert [m["content"] for m in body["messages"]] == ["New.", "Where is order 7731?"]
    assert [tool["function"]["name"] for tool in body["tools"]] == ["get_order"]


async def test_each_sample_has_its_seed_and_parameters_are_sent() -> None:
    async with ScriptedServer([look()] * 3) as server:
        await replayed(
            server, case_of(), samples=3, seed=7, side=side_of(server, endpoint={"parameters": {"top_p": 0.5}})
        )
    assert sorted(ask.body["seed"] for ask in server.asked) == [7, 8, 9]
    assert {ask.body["top_p"] for ask in server.asked} == {0.5}
    async with ScriptedServer([look()]) as server:
        await replayed(server, case_of(), seed=None)
    assert "seed" not in server.asked[0].body


async def test_a_case_says_how_many_samples_it_wants() -> None:
    async with ScriptedServer([look()] * 9) as server:
        attempts = await replayed(server, case_of(1, right(verdict={"k": 3})), case_of(2))
        assert [(attempt.case, attempt.index) for attempt in attempts] == [
            ("REG-1", 0), ("REG-2", 0), ("REG-1", 1), ("REG-1", 2),
        ]  # fmt: skip
        assert len(await replayed(server, case_of(1, right(verdict={"k": 3})), samples=2)) == 2


async def test_finished_samples_are_not_asked_for_again() -> None:
    case, kept = case_of(), []
    async with ScriptedServer() as server:
        replay = Replay([case], [side_of(server)], Settings(samples=4), guard=Guard(Policy.local()))
        first = await replay.run()
        finished = {attempt.key for attempt in first[:3]}
        asked_before = len(server.asked)
        kept = await replay.run(finished=finished)
        assert len(server.asked) == asked_before + 1
    assert [attempt.index for attempt in kept] == [3]


async def test_two_sides_take_turns() -> None:
    async with ScriptedServer() as server:
        sides = [side_of(server, name, endpoint={"model": f"choose-{name}"}) for name in ("a", "b")]
        settings = Settings(samples=2, concurrency=1)
        await Replay([case_of(1), case_of(2)], sides, settings, guard=Guard(Policy.local())).run()
    assert [ask.body["model"] for ask in server.asked] == ["choose-a", "choose-b"] * 4


async def test_what_goes_wrong_on_the_way_is_an_error_and_no_failure() -> None:
    case = case_of()
    async with ScriptedServer(["status:400"]) as server:
        [attempt] = await replayed(server, case)
    assert (attempt.sample.ending, verdict(case, attempt)) == (Ending.ERROR, Verdict.ERROR)
    assert "400" in attempt.sample.error
    assert attempt.raw


async def test_a_server_that_is_down_is_not_asked_for_each_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "AWAY_S", 0.0)
    cases = [case_of(number) for number in range(1, 13)]
    down = ["status:503"] * AT_ONCE.tries
    async with ScriptedServer([*down * 4, look(), *down * 8]) as server:
        found = await replayed(server, *cases)
        was_asked = len(server.asked)
    away = ["not asked" in attempt.sample.error for attempt in found]
    assert away == [False] * 10 + [True] * 2  # an answer in between counts anew
    assert found[4].sample.ending is Ending.RUNNING
    assert {attempt.sample.ending for attempt in found[5:]} == {Ending.ERROR}
    assert was_asked == 9 * AT_ONCE.tries + 1


async def test_a_server_that_refuses_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "AWAY_S", 0.0)
    async with ScriptedServer(["status:400"] * 8) as server:
        await replayed(server, *(case_of(number) for number in range(1, 9)))
        assert len(server.asked) == 8


async def test_a_call_that_could_not_have_run_is_told_to_the_model_and_judged() -> None:
    case = case_of(1, right("contains"))
    broken = Completion(calls=(("get_order", '{"order_number": 5}'), ("nosuch", "{}")))
    async with ScriptedServer([broken, look(), say()]) as server:
        [attempt] = await replayed(server, case)
    assert verdict(case, attempt) is Verdict.PASS
    judged = judge(case.expectation, attempt.sample, tools=case.tools)
    assert [each.code for each in judged.validity] == ["bad_arguments", "unknown_tool", ""]
    assert server.asked[1].body["messages"][-1]["content"].startswith("Error: unknown tool")


@pytest.mark.parametrize(
    ("budget", "words", "asked_for"),
    [
        ({"calls": 2}, "2 of 2 calls", 2),
        ({"tokens": 30}, "of 30 tokens", 2),
        ({"cost": 0.00003}, "money", 2),
        ({"time": 0.0}, "0 s of the run", 0),
    ],
)
async def test_a_budget_ends_the_run(budget: dict[str, Any], words: str, asked_for: int) -> None:
    async with ScriptedServer([look()] * 9) as server:
        side = side_of(server, endpoint={"price": Price(1.0, 1.0)})
        attempts = await replayed(server, case_of(), side=side, samples=4, run_budget=Allowance(**budget))
    assert len(server.asked) == asked_for
    assert [attempt.sample.ending for attempt in attempts[asked_for:]] == [Ending.ERROR] * (4 - asked_for)
    assert attempts[-1].sample.error.startswith("budget: ")
    assert words in attempts[-1].sample.error


async def test_a_case_has_a_budget_of_its_own() -> None:
    async with ScriptedServer([look()] * 9) as server:
        attempts = await replayed(server, case_of(1), case_of(2), samples=2, case_budget=Allowance(calls=1))
    assert [attempt.sample.error[:27] for attempt in attempts[2:]] == ["budget: 1 of 1 calls to the"] * 2


async def test_what_was_spent_before_is_not_spent_again() -> None:
    async with ScriptedServer([look()] * 9) as server:
        run = {"spent": Spent(calls=3), "spent_of": {("candidate", "REG-1"): Spent(calls=1)}}
        limits = {"run_budget": Allowance(calls=6), "case_budget": Allowance(calls=2)}
        attempts = await replayed(server, case_of(1), case_of(2), samples=2, run=run, **limits)
    assert [attempt.sample.ending is Ending.ERROR for attempt in attempts] == [False, False, True, False]


async def test_samples_may_come_to_an_end_at_any_time() -> None:
    async with ScriptedServer([look()] * 9) as server:
        replay = Replay([case_of()], [side_of(server)], Settings(samples=9), guard=Guard(Policy.local()))
        waiting = (job for job in replay.jobs(finished={("candidate", "REG-1", 0)}) if len(server.asked) < 2)
        attempts = await replay.attempts(waiting)
    assert {attempt.index for attempt in attempts} >= {1, 2}
    assert len(server.asked) == len(attempts) < 9


async def test_money_needs_a_price() -> None:
    async with ScriptedServer() as server:
        with pytest.raises(BadBudget):
            Replay([case_of()], [side_of(server)], Settings(run_budget=Allowance(cost=1)), guard=Guard(Policy.local()))


async def test_cached_replies_are_kept_apart_by_sample_and_errors_are_not_kept(tmp_path: Path) -> None:
    case, run = case_of(1, LOOK_AND_TELL), {"cache": ReplyCache(tmp_path)}
    script = ["status:400", look(), say("It was sent."), look("7713"), say("no")]
    async with ScriptedServer(script) as server:
        [failed] = await replayed(server, case, run=run)
        first = await replayed(server, case, run=run, samples=2)
        asked_before = len(server.asked)
        again = await replayed(server, case, run=run, samples=2)
        assert len(server.asked) == asked_before
    assert failed.sample.ending is Ending.ERROR
    assert [verdict(case, attempt) for attempt in first] == [Verdict.PASS, Verdict.FAIL]
    assert [attempt.sample for attempt in again] == [attempt.sample for attempt in first]
    assert [(attempt.requests, attempt.cached) for attempt in again] == [(0, 2), (0, 1)]
    assert [attempt.raw for attempt in again] == [attempt.raw for attempt in first]
    for file in tmp_path.rglob("*.json"):
        file.write_text("{half")
    async with ScriptedServer([look(), say("It was sent.")]) as server:
        await replayed(server, case, run=run)
        assert len(server.asked) == 2


async def test_attempts_are_read_back_as_they_were() -> None:
    hostile = Completion("\x00 \u2028\x85", calls=(("get_order", '{"order_number": "\\ud800"}'),))
    async with ScriptedServer([hostile, look(), say("It was sent.")]) as server:
        attempts = await replayed(server, case_of(1, LOOK_AND_TELL), samples=2)
    lines = [attempt.line().encode() for attempt in attempts]
    assert all(line.count(b"\n") == 0 for line in lines)
    read = list(read_attempts(lines))
    assert read[1] == attempts[1]
    assert [each.key for each in read] == [attempt.key for attempt in attempts]


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"recordType": "x"}', b"\xff", b"7"])
def test_lines_that_hold_no_attempt_are_refused(line: bytes) -> None:
    with pytest.raises(BadAttempt, match="line 1"):
        list(read_attempts([line]))


async def test_what_cannot_be_replayed_says_why() -> None:
    async with ScriptedServer() as server:
        for given, words in [
            ({"messages": None}, "no messages"),
            ({"messages": "not JSON"}, "messages cannot be read"),
            ({"messages": [{"role": "system", "content": "x"}]}, "no message of a user"),
            ({"tools": None}, "no tools"),
            ({"tools": [GET, CANCEL, GET]}, "two tools"),
            ({"tools": [{"type": "function"}]}, "no name"),
        ]:
            expectation = {"version": 1, "calls": {"mode": "any"}}
            [attempt] = await replayed(server, case_of(1, expectation, input={**asked(), **given}))
            assert words in attempt.sample.error
        assert not server.asked


async def test_many_samples_run_side_by_side() -> None:
    async with ScriptedServer() as server:
        side = side_of(server, endpoint={"model": "slow_call:0.2", "headers": {}})
        work = asyncio.ensure_future(replayed(server, case_of(), side=side, samples=6, concurrency=6))
        while server.num_open < 6:
            await asyncio.sleep(0.01)
        assert len(await work) == 6
