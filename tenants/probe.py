"""Trying a model: one request and one tool call, and what can be said of the server from how it answers."""

import json
import time
from dataclasses import dataclass, field, replace

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from engine.net import Guard, Refused
from engine.providers.openai import OpenAIModel
from engine.providers.protocol import Answer, ModelError, Piece, Request, TextPiece
from engine.providers.retry import RetryPolicy
from tenants import outbound
from tenants.endpoints import ChosenModel

PROBE_S = 45.0
# What is tried, as programs read it; pages say it in the reader's language.
ANSWERS = gettext_noop("Answers")
STREAMING = gettext_noop("Streaming")
TOOL_CALLS = gettext_noop("Tool calls")
STRUCTURED = gettext_noop("Structured calls")
TEXT_CALLS = gettext_noop("Text calls")
STREAM_OF_CALLS = gettext_noop("Stream of calls")
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Name of the city."}},
            "required": ["city"],
        },
    },
}
PARSER_FLAGS = (
    "vLLM: --enable-auto-tool-choice with the --tool-call-parser of this model; "
    "SGLang: --tool-call-parser; llama.cpp: --jinja"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was tried. `verdict` is `yes`, `no` or `warn`."""

    what: str
    verdict: str
    detail: str


@dataclass(slots=True)
class ProbeReport:
    findings: list[Finding] = field(default_factory=list)
    duration_ms: int = 0

    @property
    def works(self) -> bool:
        """Turns can be run: it answers, and calls of tools can be had from it."""
        verdicts = {finding.what: finding.verdict for finding in self.findings}
        return verdicts.get(ANSWERS) == "yes" and verdicts.get(TOOL_CALLS) == "yes"

    @property
    def answers(self) -> bool:
        """The server is there: it gave an answer, if an empty one."""
        return any(finding.what == ANSWERS and finding.verdict != "no" for finding in self.findings)

    @classmethod
    def not_asked(cls, reason: str) -> "ProbeReport":
        return cls([Finding(ANSWERS, "no", _("Not asked: %(why)s") % {"why": reason})])

    def add(self, what: str, verdict: str, detail: str) -> None:
        self.findings.append(Finding(what, verdict, detail))


async def probe_endpoint(chosen: ChosenModel, guard: Guard, key: str | None) -> ProbeReport:
    """Try an endpoint under the guard; what the guard refuses is a finding, too."""
    try:
        client = guard.client(chosen.base_url)
    except Refused as error:
        return ProbeReport.not_asked(_("nobody may call this address: %(why)s.") % {"why": outbound.reason(error)})
    async with client:
        return await probe(chosen.built(client, key))


async def probe(model: OpenAIModel) -> ProbeReport:
    """Ask the model twice. Never raises on what a server does."""
    started = time.monotonic()
    report = ProbeReport()
    once = replace(model, retry=RetryPolicy(tries=1))
    if await _plain(once, report):
        await _with_tool(once, report)
    report.duration_ms = round((time.monotonic() - started) * 1000)
    return report


async def _plain(model: OpenAIModel, report: ProbeReport) -> bool:
    pieces: list[str] = []

    async def listen(piece: Piece) -> None:
        if isinstance(piece, TextPiece):
            pieces.append(piece.text)

    request = Request([{"role": "user", "content": "Answer with the one word: ready"}], [], time.monotonic() + PROBE_S)
    try:
        answer = await model.answer(request, listen)
    except ModelError as error:
        report.add(ANSWERS, "no", str(error))
        return False
    if answer.is_empty:
        report.add(ANSWERS, "warn", _("It answered with nothing: no text and no call."))
    else:
        said = _("As %(model)s: “%(text)s”")
        said %= {"model": answer.model or model.name, "text": answer.reply.text.strip()[:80]}
        report.add(ANSWERS, "yes", said)
    if len(pieces) > 1 or "data:" in request.exchanges[-1].body:
        report.add(STREAMING, "yes", _("The answer came in %(n)s pieces.") % {"n": len(pieces)})
    else:
        report.add(STREAMING, "no", _("The server sent its answer whole; people see no text while it is written."))
    return True


async def _with_tool(model: OpenAIModel, report: ProbeReport) -> None:
    messages = [{"role": "user", "content": "What is the weather in Paris? Use the tool."}]
    request = Request(messages, [TOOL], time.monotonic() + PROBE_S)
    try:
        answer = await model.answer(request)
    except ModelError as error:
        report.add(TOOL_CALLS, "no", f"{error} {_('Does the server need a flag for tools?')} {PARSER_FLAGS}.")
        return
    is_structured = any('"tool_calls"' in exchange.body for exchange in request.exchanges) and _calls_in(request)
    is_swallowed = "asked_again_without_streaming" in answer.warnings
    if answer.reply.calls:
        called = answer.reply.calls[0]
        how = f"{called.name}({json.dumps(called.arguments, ensure_ascii=False)[:100]})"
        report.add(TOOL_CALLS, "yes", _("It called %(how)s.") % {"how": how})
        report.add(STRUCTURED, *_structured(is_structured))
        report.add(TEXT_CALLS, *_text(is_structured))
    else:
        report.add(TOOL_CALLS, "no", _why_none(answer))
    if is_swallowed:
        report.add(
            STREAM_OF_CALLS,
            "warn",
            _(
                "With tools offered the stream was empty, and the same question without streaming was answered: the "
                "server's tool parser does not match the model, or cannot stream. Look at %(flags)s."
            )
            % {"flags": PARSER_FLAGS},
        )


def _calls_in(request: Request) -> bool:
    """Was a call inside the `tool_calls` of an answer? An empty or null list is none."""
    bodies = "".join(exchange.body for exchange in request.exchanges).replace(" ", "")
    return '"tool_calls":[{' in bodies


def _structured(is_structured: bool) -> tuple[str, str]:
    if is_structured:
        return "yes", _("The call came in `tool_calls`.")
    return (
        "no",
        _("The server left the call in the text. We read it there; to have it parsed by the server: %(flags)s.")
        % {"flags": PARSER_FLAGS},
    )


def _text(is_structured: bool) -> tuple[str, str]:
    if is_structured:
        return "yes", _("Not needed here: calls in text would be read, too.")
    return "yes", _("The call was read out of the text.")


def _why_none(answer: Answer) -> str:
    text = answer.reply.text.strip()
    if answer.reply.broken:
        told = _("Its call cannot be read: %(why)s. A likely parser mismatch: %(flags)s.")
        return told % {"why": answer.reply.broken[0].reason, "flags": PARSER_FLAGS}
    if not text:
        told = _("It said and called nothing. A likely parser mismatch swallowed the call. Look at %(flags)s.")
    elif "get_weather" in text:
        told = _("It described the call instead of making it (“%(text)s”). A likely parser mismatch: %(flags)s.")
    else:
        told = _("It answered without the tool (“%(text)s”). Small models do; or no tool reaches it: %(flags)s.")
    return told % {"text": text[:80], "flags": PARSER_FLAGS}
