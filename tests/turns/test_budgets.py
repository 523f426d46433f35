"""What a turn may use up, and what a model server may send, through a real worker (W7, W14, W20, W21).

Each turn ends in a named state, and what the server sent is on record.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from engine.limits import Limits, Price
from engine.providers.behaviours import BEHAVIOURS
from quality.models import CallState, DecisionKind, ModelReply, ToolCall, Turn, TurnState
from quality.turns import setup
from quality.turns.decide import Verdict, decide
from quality.turns.setup import Asked, Setup
from tenants import endpoints, limits, tools
from tenants.scope import tenant_scope
from tests.settings.http_tools import definition
from tests.turns import setups
from tests.turns.conftest import Lab

GENEROUS = Limits(max_cycles=60, max_calls=None, identical_calls=0, wall_time_s=60.0)
ENDLESS = {"endless_stream", "endless_pings", "slow_first_token", "slow_call", "never_done"}
PATIENT_S = 60.0

allowed: Limits = GENEROUS


def with_limits(asked: Asked) -> Setup:
    return replace(setups.from_variables(asked), limits=allowed)


@pytest.fixture
def budget(lab: Lab, settings: Any) -> Iterator[Any]:
    """`budget(max_calls=5)`: turns from now on have these limits."""
    settings.TURN_SETUP = f"{__name__}.with_limits"
    setup.setup_source.cache_clear()

    def set_to(**fields: Any) -> None:
        global allowed  # noqa: PLW0603  (the worker of the test reads it)
        allowed = replace(GENEROUS, **fields)

    yield set_to
    set_to()


def replies_of(turn: Turn) -> list[ModelReply]:
    with tenant_scope(turn.tenant_id):
        return list(ModelReply.objects.filter(turn=turn).order_by("cycle", "pk"))


def bodies_of(turn: Turn) -> list[str]:
    return [exchange["body"] for reply in replies_of(turn) for exchange in json.loads(reply.exchanges)]


@pytest.mark.parametrize("script", ["one_call", "parallel_calls:3"])
def test_calls_end_at_exactly_the_limit(lab: Lab, budget: Any, script: str) -> None:
    budget(max_calls=7)
    turn = lab.turn(script)
    lab.worker()
    run = lab.rests(turn)
    assert (run.state, run.turn.end_reason) == (TurnState.FAILED, "budget_exceeded")
    assert "calls" in run.error
    assert lab.tools.count("/weather") == 7
    with tenant_scope(lab.tenant):
        assert ToolCall.objects.filter(turn=turn, state=CallState.RESULT).count() == 7
        assert not ToolCall.objects.filter(turn=turn, state__in=[CallState.RUNNING, CallState.PENDING]).exists()


@pytest.mark.parametrize("what", ["max_tokens", "max_cost", "max_bytes"])
def test_what_replies_use_up_ends_a_turn_with_the_reply_that_crosses_it(lab: Lab, budget: Any, what: str) -> None:
    price = Price(prompt=2.0, completion=4.0)

    def used(reply: ModelReply) -> float:
        tokens = reply.prompt_tokens + reply.completion_tokens
        money = (reply.prompt_tokens * price.prompt + reply.completion_tokens * price.completion) / 1e6
        return {"max_tokens": tokens, "max_cost": money, "max_bytes": reply.num_bytes}[what]

    lab.worker()
    first = lab.turn("one_call,plain_text")
    lab.rests(first)
    limit = 3.5 * used(replies_of(first)[0])
    budget(**{what: limit}, price=price)
    turn = lab.turn("one_call")
    run = lab.rests(turn)
    assert (run.state, run.turn.end_reason) == (TurnState.FAILED, "budget_exceeded")
    amounts = [used(reply) for reply in replies_of(turn)]
    assert sum(amounts[:-1]) < limit <= sum(amounts)
    assert lab.run_of(turn).lease_token is None


def test_replies_end_at_exactly_the_limit(lab: Lab, budget: Any) -> None:
    budget(max_cycles=3)
    turn = lab.turn("one_call")
    lab.worker()
    run = lab.rests(turn)
    assert (run.state, run.turn.end_reason, run.turn.num_cycles) == (TurnState.DONE, "exhausted", 3)
    assert lab.tools.count("/weather") == 3


def test_a_turn_that_is_taken_up_again_has_not_got_its_budget_back(lab: Lab, budget: Any) -> None:
    budget(max_calls=3)
    turn = lab.turn("parallel_calls:2", "approve")
    worker = lab.worker()
    lab.rests(turn)
    for _ in range(2):
        with tenant_scope(lab.tenant):
            pending = list(ToolCall.objects.filter(turn=turn, state=CallState.PENDING).values_list("pk", flat=True))
            if not pending:
                break
            decide(turn.pk, [Verdict(pk, DecisionKind.APPROVE) for pk in pending])
        worker.wake()
        run = lab.until(turn, lambda run: run.state in ("failed", "awaiting"), PATIENT_S)
    assert run.turn.end_reason == "budget_exceeded"
    assert lab.tools.count() == 3


@pytest.mark.parametrize("script", ["endless_stream", "endless_pings", "slow_first_token:60", "slow_call:60"])
def test_a_server_that_never_ends_is_cut_off_and_what_it_sent_is_kept(lab: Lab, budget: Any, script: str) -> None:
    budget(wall_time_s=1.0)
    turn = lab.turn(script)
    lab.worker()
    run = lab.rests(turn)
    assert (run.state, run.turn.end_reason) == (TurnState.FAILED, "timed_out")
    (reply,) = replies_of(turn)
    (exchange,) = json.loads(reply.exchanges)
    assert exchange["fault"] == "timed_out"
    if script.startswith("endless"):
        assert {"endless_stream": "and so on", "endless_pings": ": ping"}[script] in exchange["body"]


def test_a_stream_that_said_all_and_stays_open_is_an_answer(lab: Lab, budget: Any) -> None:
    turn = lab.turn("never_done")
    lab.worker()
    assert lab.rests(turn).turn.end_reason == "answered"


def test_whatever_a_server_sends_each_turn_ends_in_a_named_state(lab: Lab, budget: Any, settings: Any) -> None:
    """Every behaviour of the scripted server: ids missing or repeated, arguments split and broken, unknown tools, no
    choices, a cut answer, HTML, a connection that breaks."""
    settings.MODEL_BREAKER_FAILURES = 1_000
    budget(max_cycles=4, identical_calls=3)
    scripts = [name for name in BEHAVIOURS if name not in ENDLESS and name != "S11"]
    turns = {name: lab.turn(f"{name},plain_text") for name in scripts}
    lab.worker()
    for name, turn in turns.items():
        run = lab.rests(turn, PATIENT_S)
        assert run.turn.end_reason in {"answered", "exhausted", "empty", "provider_error"}, name
        assert (run.state == TurnState.FAILED) == (run.turn.end_reason in {"empty", "provider_error"}), name
        assert run.turn.end_reason == "answered" or run.error or run.turn.end_reason == "exhausted", name
        replies = replies_of(turn)
        assert replies, name
        exchanges = [exchange for reply in replies for exchange in json.loads(reply.exchanges)]
        assert exchanges, name
        assert all(exchange["body"] or exchange["fault"] for exchange in exchanges), name
        with tenant_scope(lab.tenant):
            open_states = [CallState.STREAMING, CallState.RUNNING, CallState.PENDING]
            assert not ToolCall.objects.filter(turn=turn, state__in=open_states).exists(), name


@pytest.mark.parametrize(
    ("script", "state", "error"),
    [
        ("unknown_tool", CallState.ERROR, "unknown_tool"),
        ("broken_arguments", CallState.ERROR, "invalid_json"),
    ],
)
def test_a_call_that_cannot_be_made_is_told_to_the_model_and_kept_as_it_came(
    lab: Lab, budget: Any, script: str, state: str, error: str
) -> None:
    turn = lab.turn(f"{script},plain_text")
    lab.worker()
    assert lab.rests(turn).turn.end_reason == "answered"
    with tenant_scope(lab.tenant):
        call = ToolCall.objects.get(turn=turn)
    assert call.state == state
    assert call.error
    assert lab.tools.count("/weather") == 0
    assert call.tool_name in bodies_of(turn)[0]


@pytest.mark.parametrize("script", ["rate_limited:0", "status:500", "hung_up"])
def test_a_request_is_tried_three_times_and_runs_no_tool_twice(lab: Lab, budget: Any, script: str) -> None:
    turn = lab.turn(f"one_call,{script}", "unsafe")
    lab.worker()
    run = lab.rests(turn, PATIENT_S)
    assert (run.state, run.turn.end_reason) == (TurnState.FAILED, "provider_error")
    first, second = replies_of(turn)
    assert len(json.loads(first.exchanges)) == 1
    assert len(json.loads(second.exchanges)) == 3
    assert lab.tools.count() == 1


def test_a_tenants_own_budget_counts_in_a_turn(lab: Lab, settings: Any, member: Any) -> None:
    """From the tenant's settings, through the resolver, to the end of a turn."""
    settings.TURN_SETUP = "quality.turns.resolver.from_settings"
    setup.setup_source.cache_clear()
    settings.OUTBOUND_ALLOW_CIDRS = ["127.0.0.1/32"]
    settings.OUTBOUND_ALLOW_PORTS = [
        int(url.split(":")[2].split("/")[0]) for url in (lab.model.base_url, lab.tools.url)
    ]
    admin = member("admin").user
    with tenant_scope(lab.tenant):
        data = endpoints.EndpointData(label="loop", base_url=lab.model.base_url, model="one_call")
        endpoints.save_endpoint(data, actor=admin)
        tools.save_tool(definition(name="get_order", url=f"{lab.tools.url}/orders/{{number}}"), actor=admin)
        limits.set_limits(
            max_cycles=20, tool_timeout_s=None, result_max_chars=None, max_calls=1, max_tokens=100_000, actor=admin
        )
    turn = lab.turn("loop", "")
    lab.worker()
    run = lab.rests(turn)
    assert (run.state, run.turn.end_reason) == (TurnState.FAILED, "budget_exceeded")
    with tenant_scope(lab.tenant):
        assert [call.state for call in ToolCall.objects.filter(turn=turn).order_by("cycle")] == ["result", "error"]
        limits.set_limits(max_cycles=None, tool_timeout_s=None, result_max_chars=None, wall_time_s=0.5, actor=admin)
    lab.tools.hold.clear()
    run = lab.rests(slow := lab.turn("loop", ""))
    assert run.turn.end_reason == "timed_out"
    assert run.turn_id == slow.pk
