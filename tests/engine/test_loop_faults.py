"""One fault of a model server at a time: each turn ends in a named way, with the raw reply on record."""

import asyncio
import json
from dataclasses import asdict
from typing import Any

import pytest

from engine.limits import Limits
from engine.loop import Outcome
from engine.net import Guard, Policy
from engine.providers.behaviours import BEHAVIOURS, TEXT
from engine.redaction import Redactor
from engine.tools.definitions import HttpDefinition
from engine.tools.http import HttpTool
from tests.engine.loopback import Answer, serving
from tests.engine.turns import Counted, playing, watch

pytestmark = pytest.mark.anyio

LIMITS = Limits(max_cycles=4, wall_time_s=1.0)

NAMED: dict[str, Outcome] = {
    "plain_text": Outcome.ANSWERED,
    "prose_call": Outcome.ANSWERED,
    "choose": Outcome.ANSWERED,
    "no_done": Outcome.ANSWERED,
    "null_members": Outcome.ANSWERED,
    "crlf_and_mark": Outcome.ANSWERED,
    "swallowed_text": Outcome.ANSWERED,
    "never_done": Outcome.ANSWERED,
    "empty_stream": Outcome.EMPTY,
    "rate_limited": Outcome.PROVIDER_ERROR,
    "status": Outcome.PROVIDER_ERROR,
    "unparseable": Outcome.PROVIDER_ERROR,
    "echoed_key": Outcome.PROVIDER_ERROR,
    "error_mid_stream": Outcome.PROVIDER_ERROR,
    "cut_connection": Outcome.PROVIDER_ERROR,
    "hung_up": Outcome.PROVIDER_ERROR,
    "html": Outcome.PROVIDER_ERROR,
    "bad_json": Outcome.PROVIDER_ERROR,
    "no_choices": Outcome.PROVIDER_ERROR,
    "endless_stream": Outcome.TIMED_OUT,
    "endless_pings": Outcome.TIMED_OUT,
    "slow_first_token": Outcome.TIMED_OUT,
    "slow_call": Outcome.TIMED_OUT,
}
# A model that calls for ever, the same or something broken: the loop guard lets it answer without tools, and it calls.
CALLING = sorted(set(BEHAVIOURS) - set(NAMED) - {f"S{number}" for number in range(1, 15)})


@pytest.mark.parametrize("behaviour", [*NAMED, *CALLING])
async def test_every_turn_ends_in_a_named_way_and_keeps_what_it_received(
    behaviour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.providers.openai.LINGER_S", 0.1)
    async with playing() as play:
        turn = await watch(play.model(behaviour), [Counted().tool()], limits=LIMITS)
        assert turn.result.outcome is NAMED.get(behaviour, Outcome.EXHAUSTED)
        assert turn.events[-1]["endReason"] == turn.result.outcome
        said = [TEXT] if turn.result.outcome is Outcome.ANSWERED else [None, "I will look that up."]
        assert turn.result.content in said or behaviour in ("prose_call", "choose", "crlf_and_mark")
        kept = [e for r in turn.recorder.replies.values() for e in r.exchanges]
        kept += [exchange for failure in turn.recorder.failures for exchange in failure.exchanges]
        assert len(kept) == len(play.bodies)
        silent = {"hung_up", "slow_first_token", "slow_call"}
        assert all(exchange.body for exchange in kept) or behaviour in silent
        if turn.result.outcome in (Outcome.PROVIDER_ERROR, Outcome.TIMED_OUT, Outcome.EMPTY):
            assert turn.result.error


@pytest.mark.parametrize("behaviour", ["status:500", "cut_connection", "html", "no_choices", "bad_json"])
async def test_a_fault_in_the_second_cycle_keeps_the_first_and_runs_no_call_again(behaviour: str) -> None:
    counted = Counted()
    async with playing() as play:
        turn = await watch(play.model(f"one_call,{behaviour}"), [counted.tool()], limits=LIMITS)
        assert turn.result.outcome is Outcome.PROVIDER_ERROR
        assert len(counted.begun) == 1
        assert turn.recorder.calls[0, 0].state.value == "result"
        assert turn.recorder.failures[0].cycle == 1


async def test_a_request_that_is_tried_again_runs_no_tool_twice() -> None:
    counted = Counted()
    async with playing("status:500", "one_call", "status:503", "status:429", "plain_text") as play:
        turn = await watch(play.model(), [counted.tool()])
        assert (turn.result.outcome, turn.result.content) == (Outcome.ANSWERED, TEXT)
        assert len(counted.begun) == 1


def note_tool(port: int) -> HttpTool:
    definition = HttpDefinition(
        name="save_note",
        description="Saves a note.",
        url=f"http://127.0.0.1:{port}/notes",
        parameters={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        headers={"Authorization": "Bearer {secret:NOTES}", "X-Api-Key": "{secret:NOTES}"},
    )
    return HttpTool(definition, Guard(Policy.local()))


def echo(handler: Any) -> None:
    """Sends the headers of the request back, as careless services do."""
    body = json.dumps(dict(handler.headers.items())).encode()
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


async def test_the_secrets_of_one_caller_never_show_up_anywhere_in_two_turns_at_once() -> None:
    canaries = {"first": "canary-ONE-8c1f/7", "second": "canary-TWO-55e0+2"}
    with serving(Answer(send=echo)) as notes:
        async with playing() as play:

            async def one(caller: str) -> str:
                secrets = {"NOTES": canaries[caller]}
                turn = await watch(
                    play.model("one_call,choose", key=f"sk-{canaries[caller]}"),
                    [note_tool(notes.port)],
                    text='Save the note "hello"',
                    secrets=secrets.get,
                    redactor=Redactor(secrets),
                )
                assert turn.result.outcome is Outcome.ANSWERED
                assert "{secret:NOTES}" in str(turn.result.content)
                records = [asdict(record) for record in turn.recorder.replies.values()]
                records += [asdict(record) for record in turn.recorder.calls.values()]
                return json.dumps([records, turn.events, turn.result.messages], default=str)

            everything = await asyncio.gather(*(one(caller) for caller in canaries))
            everything.append(json.dumps(play.bodies, default=str))
        sent = {seen.header("x-api-key") for seen in notes.seen}
    assert sent == set(canaries.values())
    for written in everything:
        assert "canary" not in written
        assert "8c1f" not in written
        assert "55e0" not in written
