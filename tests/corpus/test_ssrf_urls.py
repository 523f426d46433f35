"""A tool's URL, the arguments of a model, what DNS answers: and what the guard makes of it, on real sockets."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from engine import net
from engine.tools import Registry, ToolContext, ToolOutcome
from engine.tools.definitions import DefinitionFault, HttpDefinition, definition_faults
from engine.tools.http import HttpTool
from tests.corpus.corpus import load
from tests.engine.loopback import Answer, FakeResolver, RecordingDialler, Server, authority

CASES = load("ssrf_urls.jsonl")
AFTER_SENDING = {
    net.Code.BUSY,
    net.Code.CONNECT_FAILED,
    net.Code.TLS_FAILED,
    net.Code.TIMED_OUT,
    net.Code.TOO_LARGE,
    net.Code.PROTOCOL_ERROR,
}
VERDICTS = {code.value for code in net.Code} - {code.value for code in AFTER_SENDING} | {"invalid_arguments"}


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[int, Server]]:
    plain, tls = Server(), Server(tls=authority())
    yield {80: plain, 8080: plain, 443: tls, 8443: tls}
    plain.close()
    tls.close()


class Run:
    """One case, run: the outcome and all that was recorded on the way."""

    def __init__(self, case: dict[str, Any], servers: dict[int, Server]) -> None:
        hops = case.get("redirects", [])
        answers = [case["resolves_to"], *([case["resolves_then"]] if "resolves_then" in case else [])]
        self.resolver = FakeResolver(*(a for a in [*answers, *(hop["resolves_to"] for hop in hops)] if a is not None))
        self.dialler = RecordingDialler({port: server.port for port, server in servers.items()})
        for server in servers.values():
            server.seen.clear()
            server.answers = [Answer(hop["status"], headers={"Location": hop["location"]}) for hop in hops] + [Answer()]
        self.outcome = asyncio.run(self._outcome(case))
        self.requests = [seen for server in dict.fromkeys(servers.values()) for seen in server.seen]

    async def _outcome(self, case: dict[str, Any]) -> ToolOutcome:
        policy = net.Policy.tenant(allow_hosts=case.get("allow_hosts"), ca_file=authority().ca_file)
        guard = net.Guard(policy, resolver=self.resolver, dialler=self.dialler)
        tool = HttpTool(HttpDefinition.from_json(definition(case)), guard)
        return await Registry([tool]).run("tool", case["args"], ToolContext())


def definition(case: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "tool",
        "description": "A tool.",
        "url": case["url_template"],
        "method": "GET",
        "headers": case.get("headers", {}),
        "parameters": {"type": "object", "properties": {name: {} for name in case["args"]}},
        "follow_redirects": "redirects" in case,
    }


def faults(case: dict[str, Any]) -> list[DefinitionFault]:
    return definition_faults([definition(case)], net.Policy.tenant(allow_hosts=case.get("allow_hosts")))


def cases(verdict: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", [pytest.param(c, id=c["id"]) for c in CASES if c["verdict"] == verdict])


@cases("refuse")
def test_what_must_not_be_called_is_refused_with_a_code(case: dict[str, Any], servers: dict[int, Server]) -> None:
    run = Run(case, servers)

    assert run.outcome.is_error
    assert run.outcome.error in VERDICTS
    hops_before = len(case.get("redirects", []))  # the last hop of these cases is the one to be refused
    assert len(run.dialler.dialled) == len(run.requests) == hops_before
    for address in case["resolves_to"] or []:
        assert address not in run.outcome.text
    assert run.outcome.text.startswith(("Error: tool request failed: ", "Error: invalid arguments for tool 'tool': "))


@cases("allow")
def test_what_may_be_called_is_sent_as_it_should_be(case: dict[str, Any], servers: dict[int, Server]) -> None:
    run = Run(case, servers)

    assert (run.outcome.error, run.outcome.text) == (None, "ok")
    assert len(run.requests) == len(case.get("redirects", [])) + 1
    if "sends" in case:
        assert run.requests[0].target == case["sends"]
    if "connects_to" in case:
        assert run.dialler.dialled[0][0] == case["connects_to"]
    for name in case.get("dropped_on_redirect", []):
        assert run.requests[0].header(name) is not None
        assert run.requests[-1].header(name) is None
    if "resolves_then" in case:
        assert len(run.resolver.asked) == 1


@cases("allow")
def test_a_tool_that_may_be_called_can_be_saved(case: dict[str, Any]) -> None:
    assert faults(case) == []


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(c, id=c["id"])
        for c in CASES
        if c["id"] in {"ssrf-021", "ssrf-057", "ssrf-060", "ssrf-067", "ssrf-096"}
    ],
)
def test_a_tool_that_never_may_be_called_cannot_be_saved(case: dict[str, Any]) -> None:
    found = faults(case)

    assert {fault.index for fault in found} == {0}
    assert {fault.field.partition(".")[0] for fault in found} <= {"url", "headers"}
