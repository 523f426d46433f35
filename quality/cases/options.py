"""What `quality-tool-regressions` takes on its command line."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from engine.errors import EngineError
from engine.limits import Price
from quality.cases.stubs import OnMiss

PROGRAM: Final = "quality-tool-regressions"
TOKEN: Final = "QUALITY_LAB_TOKEN"  # noqa: S105 (the name of a variable)


type Add = Callable[..., argparse.Action]


class BadInput(EngineError):
    """What was asked for on the command line cannot be done."""


def parser(description: str | None) -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(
        prog=PROGRAM, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    _add_cases(whole.add_argument_group("cases").add_argument)
    _add_replay(whole.add_argument_group("replay").add_argument)
    _add_server(whole.add_argument_group("replay on the service").add_argument)
    _add_judge(whole.add_argument_group("a model that judges meaning").add_argument)
    _add_trial(whole.add_argument_group("what is tried").add_argument)
    _add_comparison(whole.add_argument_group("comparison").add_argument)
    _add_reports(whole.add_argument_group("reports").add_argument)
    return whole


def _add_cases(add: Add) -> None:
    add("--file", type=Path, help="an export of cases (JSON lines)")
    add("--api-base", metavar="URL", help="the address of a running service, in place of a file")
    add("--token", help=f"its token with the scope export:read; better the environment variable {TOKEN}")
    add(
        "--status",
        default="active",
        choices=("active", "archived", "all"),
        help="of the cases to get (default: active)",
    )
    add("--limit", type=_count, default=500, help="cases a request (default: 500)")
    add("--no-trailer", action="store_true", help="the file was made by hand and has no trailer")
    add("--case", action="append", default=[], metavar="REG-1", help="only this case; may repeat")
    add("--tag", action="append", default=[], help="only cases with this tag; may repeat")
    add("--tools", type=_names, metavar="A,B", help="the tools that are supported; cases of others fail")
    add("--skip-unsupported", action="store_true", help="skip them instead")
    add("--include-archived", action="store_true", help="do not skip archived cases")


def _add_replay(add: Add) -> None:
    add("--replay", action="store_true", help="put each case to a model")
    add("--base-url", metavar="URL", help="of an OpenAI-compatible server, up to /v1")
    add("--model")
    add("--api-key-env", metavar="NAME", help="the environment variable that holds the server's key")
    add("--samples", type=_count, metavar="K", help="a case (default: what it asks for, else 1)")
    add("--concurrency", type=_count, default=4, help="samples at the same time (default: 4)")
    add("--temperature", type=float)
    add("--max-tokens", type=_count, help="of one reply")
    add("--parameters", type=_object, default={}, metavar="JSON", help="more members of each request")
    add("--seed", type=int, default=1, help="of the first sample, each further one has the next (default: 1)")
    add("--no-seed", action="store_true", help="send none")
    add("--timeout", type=float, default=120.0, metavar="SECONDS", help="of one request")
    add("--max-cycles", type=_count, default=8, help="replies of one sample (default: 8)")
    add("--budget", default="", metavar="calls=…,tokens=…,cost=…,time=…", help="of the run")
    add("--case-budget", default="", metavar="calls=…,…", help="of each case")
    add("--price", type=_price, metavar="PROMPT,COMPLETION", help="of a million tokens, for budgets of money")
    add("--on-miss", type=OnMiss, default=OnMiss.STOP, choices=list(OnMiss), help=ON_MISS)
    add("--miss-result", default="", help="what --on-miss fixed answers")
    add("--live", type=Path, metavar="FILE", help="definitions of the tools that --on-miss live may call")
    add("--live-tools", type=_names, metavar="A,B", help="those of them that it may call; they must be safe")
    add(
        "--secret",
        action="append",
        default=[],
        metavar="NAME",
        help="an environment variable for {secret:NAME} in them",
    )
    add("--cache", type=Path, metavar="FOLDER", help="keep replies here, and use those that are there")
    add("--dry-run", action="store_true", help="print what would be sent, and send nothing")
    add("--out-answers", type=Path, metavar="FILE", help="write the raw replies, for --answers")
    add("--resume", action="store_true", help="take what --out-answers holds already, and ask only for the rest")
    add("--answers", type=Path, metavar="FILE", help="judge these replies again; no model is asked")


def _add_server(add: Add) -> None:
    add("--endpoint", metavar="LABEL", help="the service replays on this endpoint of its own; no key leaves it")
    add("--baseline-endpoint", metavar="LABEL", help="the other side of --two-sided (default: the same endpoint)")
    add("--baseline-replay", type=_count, metavar="ID", help="compare with an earlier replay of the service")
    add("--judge-endpoint", metavar="LABEL", help="the endpoint that judges meaning")


def _add_judge(add: Add) -> None:
    add("--judge-base-url", metavar="URL", help="of its server; without one nothing is judged by a model")
    add("--judge-model", help="of another family than the one under test, where possible")
    add("--judge-api-key-env", metavar="NAME", help="the environment variable that holds the server's key")


def _add_trial(add: Add) -> None:
    add("--system-prompt", type=Path, metavar="FILE", help="in place of the recorded one")
    add("--style", metavar="ID", help="the prompt of this style of the service")
    add("--toolset", type=Path, metavar="FILE", help="tools in place of the recorded ones (JSON)")


def _add_comparison(add: Add) -> None:
    add("--baseline", type=Path, metavar="FILE", help="an earlier JSON report")
    add("--two-sided", action="store_true", help="ask a baseline in the same run: recorded prompt and tools")
    add("--baseline-base-url", metavar="URL", help="another server for that (default: the same)")
    add("--baseline-model", help="another model for that (default: the same)")
    add("--baseline-api-key-env", metavar="NAME")
    add("--no-confirm", action="store_true", help="do not run suspects again with fresh samples")
    add("--strict", action="store_true", help="a case that got worse fails the gate even without significance")
    add("--quarantine", type=_names, default=(), metavar="REG-1,…", help="run these, and do not gate them")


def _add_reports(add: Add) -> None:
    add("--json", action="store_true", help="print the JSON report in place of the table")
    add("--out-json", type=Path, metavar="FILE")
    add("--out-junit", type=Path, metavar="FILE")
    add("--out-md", type=Path, metavar="FILE", help="appended, as GITHUB_STEP_SUMMARY wants it")
    add("--quiet", action="store_true", help="no progress")


ON_MISS: Final = "a call without a recorded result: stop (default), fifo, error, fixed or live"


def _count(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 1_000_000:
        raise ValueError
    return value


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in text.split(","))))


def _object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise TypeError
    return value


def _price(text: str) -> Price:
    prompt, completion = map(float, text.split(","))
    return Price(prompt, completion)


# What the service does not take: it has endpoints, prices and keys of its own, and reads no files of the caller.
NOT_ON_THE_SERVICE: Final = (
    "file", "status", "no_trailer", "limit", "tools", "skip_unsupported", "include_archived",
    "base_url", "model", "api_key_env", "temperature", "max_tokens", "parameters", "timeout", "price",
    "live", "live_tools", "secret", "cache", "resume", "answers", "system_prompt", "toolset",
    "judge_base_url", "judge_model", "judge_api_key_env",
    "baseline", "baseline_base_url", "baseline_model", "baseline_api_key_env", "strict", "quarantine",
)  # fmt: skip


def check_options(options: argparse.Namespace) -> None:
    """What the parser cannot say."""
    _check_server(options)
    faults = {
        "Name the cases: --file FILE, or --api-base URL.": (options.file is None) == (options.api_base is None),
        "--replay needs --base-url and --model.": options.replay
        and not (options.endpoint or (options.base_url and options.model)),
        "--replay asks a model and --answers does not: take one of them.": options.replay and options.answers,
        "--dry-run shows what --replay would send: add --replay.": options.dry_run
        and not (options.replay or options.endpoint),
        "--resume goes on with the file of --out-answers: name it.": options.resume and not options.out_answers,
        "--style is read from the service: add --api-base.": options.style and not options.api_base,
        "--style and --system-prompt are two prompts: take one of them.": options.style and options.system_prompt,
        "--baseline and --two-sided are two baselines: take one of them.": options.baseline and options.two_sided,
        "--two-sided asks two models: add --replay.": options.two_sided and not (options.replay or options.endpoint),
        "--baseline compares samples: add --replay or --answers.": options.baseline
        and not (options.replay or options.answers),
        "--on-miss live needs --live FILE and --live-tools A,B.": options.on_miss is OnMiss.LIVE
        and not (options.live and options.live_tools),
        "--live is used by --on-miss live only.": options.live and options.on_miss is not OnMiss.LIVE,
        "A judge needs --judge-base-url and --judge-model.": bool(options.judge_base_url) != bool(options.judge_model),
        "--judge-model judges samples: add --replay or --answers.": options.judge_model
        and not (options.replay or options.answers),
        "--skip-unsupported needs --tools A,B.": options.skip_unsupported and options.tools is None,
        "--baseline-model and --baseline-base-url need --two-sided.": (
            options.baseline_model or options.baseline_base_url
        )
        and not options.two_sided,
    }
    for fault, holds in faults.items():
        if holds:
            raise BadInput(fault)


def _check_server(options: argparse.Namespace) -> None:
    if options.endpoint is None:
        for name in ("baseline_endpoint", "baseline_replay", "judge_endpoint"):
            if getattr(options, name) is not None:
                raise BadInput(f"{_spelled(name)} is for a replay on the service: add --endpoint LABEL.")
        return
    if options.api_base is None:
        raise BadInput("--endpoint names an endpoint of a service: add --api-base URL.")
    usual = parser(None)
    taken = [name for name in NOT_ON_THE_SERVICE if getattr(options, name) != usual.get_default(name)]
    if taken:
        raise BadInput(
            f"{', '.join(map(_spelled, taken))}: not with --endpoint. The service replays its own active cases (and "
            "those of --case) on its own endpoints: leave this out, or replay from here with --base-url and --model."
        )
    if options.on_miss is OnMiss.LIVE:
        raise BadInput("--on-miss live calls tools from here: not with --endpoint.")
    if len(options.tag) > 1:
        raise BadInput("--tag may be given once with --endpoint. Name the cases with --case instead.")
    if options.tag and options.case:
        raise BadInput("--case and --tag are two choices with --endpoint: take one of them.")
    if options.baseline_replay and (options.two_sided or options.baseline_endpoint):
        raise BadInput("--baseline-replay and a baseline side are two baselines: take one of them.")


def _spelled(name: str) -> str:
    return f"--{name.replace('_', '-')}"
