"""Arguments and results as hostile models and servers send them: none is lost, and nothing is called by mistake."""

import asyncio
import base64
import json
import logging
from typing import Any

import pytest

from engine import net
from engine.redaction import Redactor
from engine.strict_json import JsonError, read_arguments, read_json
from engine.tools import Registry, ToolContext, ToolOutcome, invalid_arguments
from engine.tools.definitions import HttpDefinition
from engine.tools.http import HttpTool
from tests.corpus.corpus import load
from tests.engine.loopback import Answer, Server, serving

CASES = load("hostile_json.jsonl")
DAY = {"type": "object", "properties": {name: {"type": "string"} for name in ("day", "q", "note")}}


def cases(at: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in CASES if case["at"] == at])


def raw(case: dict[str, Any]) -> bytes:
    return base64.b64decode(case["raw_b64"]) if "raw_b64" in case else case["raw"].encode()


def context(case: dict[str, Any]) -> ToolContext:
    secrets = case.get("setup", {}).get("secrets", {})
    return ToolContext(secrets=secrets.get, redactor=Redactor(secrets))


def call(server: Server, arguments: Any, case: dict[str, Any]) -> ToolOutcome:
    policy = net.Policy.tenant(allow_cidrs=["127.0.0.1/32"], allow_ports=[server.port])
    definition = HttpDefinition("book", "Books.", f"http://127.0.0.1:{server.port}/book", parameters=DAY)
    return asyncio.run(Registry([HttpTool(definition, net.Guard(policy))]).run("book", arguments, context(case)))


@cases("args")
def test_arguments_of_a_model_are_read_or_told_to_be_wrong(case: dict[str, Any]) -> None:
    text = case["raw"]
    try:
        arguments = read_arguments(text)
    except JsonError as error:
        assert "not called" in case["detail"] or "not_an_object" in case["detail"]
        outcome = invalid_arguments("book", "$", str(error), context(case))
        assert outcome.text.startswith("Error: invalid arguments for tool 'book': $: ")
        return
    assert "not called" not in case["detail"]
    with serving() as server:
        outcome = call(server, arguments, case)

    assert outcome.text == "ok"
    sent = json.loads(server.seen[0].body)
    assert sent == {name: value for name, value in arguments.items() if name in DAY["properties"]}
    clean = context(case).redactor.text(text)
    assert (clean == text) == (case["expected"] == "exact")
    assert "canary" not in clean


@cases("result")
def test_results_are_kept_whole_and_reversibly(case: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    body = raw(case)
    with serving(Answer(body=body, headers={"Content-Type": "application/json"})) as server:
        outcome = call(server, {}, case)

    assert not outcome.is_error
    kept = base64.b64decode(outcome.result) if outcome.encoding == "base64" else outcome.result.encode()
    if "setup" in case:
        assert "canary" not in outcome.text + outcome.result + repr(outcome.details) + caplog.text
        assert "{secret:BOOKING_KEY}" in outcome.text
    else:
        assert kept == body
    outcome.text.encode()  # what the model reads can always be sent to it
    if case["expected"] == "exact":
        assert outcome.encoding == "text"


@cases("result")
def test_the_parsed_view_of_a_result_has_limits(case: dict[str, Any]) -> None:
    expected = {"parse_error too_deep": "too_deep", "nothing expands": "number_out_of_range"}
    code = next((code for words, code in expected.items() if words in case["detail"]), None)
    if code is None:
        return
    with pytest.raises(JsonError) as refused:
        read_json(raw(case).decode())
    assert refused.value.code == code
