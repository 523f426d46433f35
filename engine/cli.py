"""`quality-engine`: a turn on the command line, and a check of tool definitions.

    quality-engine chat --base-url http://127.0.0.1:8000/v1 --model qwen --tools tools.json "Weather in Rome?"
    quality-engine tools check tools.json

`chat` prints one event a line as JSON, or with `--human` what a person wants to see. Exit codes: 0 the turn was
answered (the definitions are valid), 1 it ended otherwise (they are not), 2 it could not begin.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.errors import EngineError
from engine.events import AssistantDelta, AssistantEnd, Event, ToolCallChanged
from engine.limits import Limits
from engine.loop import Outcome, TurnResult, run_turn
from engine.net import Guard, Policy
from engine.providers.openai import OpenAIModel
from engine.recorder import MemoryRecorder
from engine.records import Answered, Approve, CallRecord, CallState, Decision, Decline, Resume
from engine.redaction import Redactor
from engine.tools import Tool
from engine.tools.definitions import HttpDefinition, read_definitions
from engine.tools.http import HttpTool
from engine.tools.script import load_scripts
from engine.visible import visible

OK, ENDED_OTHERWISE, COULD_NOT_BEGIN = 0, 1, 2
SHOWN_CHARS = 400


class CannotBegin(EngineError):
    """What was asked for on the command line is not there."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except EngineError as error:
        sys.stderr.write(f"quality-engine: {visible(str(error))}\n")
        return COULD_NOT_BEGIN
    except KeyboardInterrupt:
        return ENDED_OTHERWISE


def parser() -> argparse.ArgumentParser:
    main_parser = argparse.ArgumentParser(prog="quality-engine", description="The tool loop on the command line.")
    commands = main_parser.add_subparsers(required=True)

    chat = commands.add_parser("chat", help="run one turn and print its events as JSON lines")
    chat.set_defaults(run=lambda options: asyncio.run(run_chat(options)))
    chat.add_argument("text", help="what the user says")
    chat.add_argument("--base-url", required=True, help="of an OpenAI-compatible server, up to /v1")
    chat.add_argument("--model", required=True)
    chat.add_argument("--tools", type=Path, action="append", default=[], help="a file of HTTP tool definitions")
    chat.add_argument("--scripts", type=Path, help="a folder of script tools")
    chat.add_argument("--system", help="the system prompt")
    chat.add_argument("--key-env", metavar="NAME", help="the environment variable that holds the server's key")
    secret = "an environment variable that fills {secret:NAME} in headers"  # noqa: S105 a help text
    chat.add_argument("--secret", metavar="NAME", action="append", default=[], help=secret)
    chat.add_argument("--temperature", type=float)
    chat.add_argument("--max-tokens", type=int, help="of one reply")
    chat.add_argument("--timeout", type=float, default=120.0, metavar="SECONDS", help="of one reply")
    chat.add_argument("--max-cycles", type=int, default=Limits().max_cycles)
    chat.add_argument("--human", action="store_true", help="print for people, and ask before calls that need approval")

    tools = commands.add_parser("tools", help="work with tool definitions").add_subparsers(required=True)
    check = tools.add_parser("check", help="name every fault of a file of HTTP tool definitions")
    check.set_defaults(run=run_check)
    check.add_argument("file", type=Path)
    check.add_argument("--local", action="store_true", help="allow hosts that only a person's own machine may call")
    return main_parser


def run_check(options: argparse.Namespace) -> int:
    try:
        definitions = definitions_in(options.file, Policy.local() if options.local else Policy.tenant())
    except CannotBegin:
        raise
    except EngineError as error:
        sys.stdout.write(f"{options.file}:\n{visible(str(error))}\n")
        return ENDED_OTHERWISE
    for tool in definitions:
        sys.stdout.write(visible(f"{tool.name}  {tool.method} {tool.url}  {tool.mode}, {tool.safety}\n"))
    sys.stdout.write(f"{len(definitions)} valid definition{'s' if len(definitions) != 1 else ''}\n")
    return OK


async def run_chat(options: argparse.Namespace) -> int:
    guard, secrets = Guard(Policy.local()), {name: environment(name) for name in options.secret}
    tools: list[Tool] = []
    for file in options.tools:
        tools += [HttpTool(definition, guard) for definition in definitions_in(file, guard.policy)]
    if options.scripts:
        scripts, faults = await load_scripts(options.scripts)
        for fault in faults:
            sys.stderr.write(visible(f"quality-engine: {fault.file} gives no tool: {fault.reason}\n"))
        tools += scripts
    given = {"temperature": options.temperature, "max_tokens": options.max_tokens}
    async with guard.client(options.base_url) as client:
        model = OpenAIModel(
            options.base_url,
            options.model,
            client,
            key=environment(options.key_env) if options.key_env else None,
            parameters={name: value for name, value in given.items() if value is not None},
            timeout_s=options.timeout,
        )
        messages = [{"role": "system", "content": options.system}] if options.system else []
        messages.append({"role": "user", "content": options.text})
        result = await converse(model, tools, messages, options, secrets)
    return OK if result.outcome is Outcome.ANSWERED else ENDED_OTHERWISE


async def converse(
    model: OpenAIModel,
    tools: Sequence[Tool],
    messages: Sequence[Mapping[str, Any]],
    options: argparse.Namespace,
    secrets: Mapping[str, str],
) -> TurnResult:
    """One turn; where a person sits at the terminal it goes on with what they decide about the calls that wait."""
    printer = for_people if options.human else as_json
    recorder, decisions = MemoryRecorder(), dict[str, Decision]()
    limits = Limits(max_cycles=options.max_cycles, wall_time_s=options.timeout * (options.max_cycles + 1))
    while True:
        result = await run_turn(
            model,
            tools,
            messages,
            recorder=recorder,
            limits=limits,
            on_event=printer,
            resume=Resume(recorder.cycles, decisions),
            turn_id="turn",
            secrets=secrets.get,
            redactor=Redactor(secrets),
        )
        if result.outcome is not Outcome.AWAITING or not options.human or not sys.stdin.isatty():
            return result
        decisions = {call.call_id: await asyncio.to_thread(decide, call) for call in result.open_calls}


def decide(call: CallRecord) -> Decision:
    """Asks the person at the terminal."""
    sys.stdout.write(visible(f"? {call.name} {json.dumps(call.arguments, ensure_ascii=False)}\n"))
    answer = input("  run it? y to run, = RESULT to answer it yourself, anything else is your reason not to: ")
    if answer.strip().lower() in ("y", "yes"):
        return Approve()
    return Answered(answer[1:].strip()) if answer.startswith("=") else Decline(answer.strip())


async def as_json(event: Event) -> None:
    sys.stdout.write(json.dumps(event.as_dict()) + "\n")
    sys.stdout.flush()


async def for_people(event: Event) -> None:
    match event:
        case AssistantDelta(text=text):
            sys.stdout.write(visible(text))
        case ToolCallChanged(call) if call.state is CallState.RUNNING:
            sys.stdout.write(visible(f"\n→ {call.name} {json.dumps(call.arguments, ensure_ascii=False)}\n"))
        case ToolCallChanged(call) if call.outcome is not None:
            sign = "✗" if call.outcome.is_error else "←"
            sys.stdout.write(visible(f"{sign} {call.name}: {call.outcome.text[:SHOWN_CHARS]}\n"))
        case AssistantEnd(end_reason=reason, error=error) if reason != Outcome.ANSWERED:
            sys.stdout.write(visible(f"\n[{reason}] {error or ''}\n"))
        case AssistantEnd():
            sys.stdout.write("\n")
    sys.stdout.flush()


def definitions_in(file: Path, policy: Policy) -> list[HttpDefinition]:
    try:
        source = file.read_bytes()
    except OSError as error:
        raise CannotBegin(f"{file} cannot be read: {error.strerror}. Name a file of tool definitions.") from error
    return read_definitions(source, policy)


def environment(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise CannotBegin(f"The environment variable {name} is not set. Set it, or leave its option out.")
    return value


if __name__ == "__main__":
    sys.exit(main())
