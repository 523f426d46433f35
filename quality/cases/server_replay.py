"""A replay that the service runs itself, on an endpoint that it has the key of: started, followed, called off, fetched.

The command shows how far it is and brings the report home; whoever loses sight of it finds it on the service.
"""

import argparse
import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from time import monotonic
from typing import Any, Final
from urllib.parse import urlencode

from engine.errors import EngineError
from quality.cases.budgets import Allowance
from quality.cases.gate import Exit
from quality.cases.report import KIND, Entry, Outcome, Report
from quality.cases.sources import Session, SourceError, Unreachable
from quality.cases.terminal import Progress

REPLAYS: Final = "/api/replays"
POLL_S: Final = 1.0
MAX_AWAY_S: Final = 180.0  # for a service that is started anew while it replays
OVER: Final = ("done", "failed", "cancelled")
STAGES: Final = {"confirm": "Running suspects again with fresh samples", "judge": "Asking the judge"}


class Incomplete(EngineError):
    """The replay came to no verdict; the text says where it is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetched(Report):
    """A report as the service wrote it."""

    whole: Mapping[str, Any]

    def as_dict(self) -> dict[str, Any]:
        return dict(self.whole)


def wanted_of(options: argparse.Namespace) -> dict[str, Any]:
    """What is asked of the service, as `POST /api/replays` takes it."""
    sides = [{"modelLabel": options.endpoint, "styleId": options.style or ""}]
    if options.two_sided or options.baseline_endpoint:
        sides.insert(0, {"modelLabel": options.baseline_endpoint or options.endpoint})
    return {
        "sides": sides,
        "cases": options.case,
        "query": urlencode([("tag", tag) for tag in options.tag]),
        "baselineReplayId": options.baseline_replay,
        "settings": {
            "samples": options.samples,
            "concurrency": options.concurrency,
            "maxCycles": options.max_cycles,
            "onMiss": str(options.on_miss),
            "missResult": options.miss_result,
            "seed": None if options.no_seed else options.seed,
            "budget": _budget(options.budget),
            "caseBudget": _budget(options.case_budget),
            "confirm": not options.no_confirm,
            "judgeLabel": options.judge_endpoint or "",
        },
    }


def _budget(text: str) -> dict[str, float]:
    allowed = Allowance.read(text)
    members = {each.name: getattr(allowed, each.name) for each in fields(allowed)}
    return {name: value for name, value in members.items() if value is not None}


async def estimate(session: Session, wanted: Mapping[str, Any]) -> str:
    """What the replay would take, as JSON."""
    found = json.loads(await session.post(f"{REPLAYS}/estimate", wanted))
    return json.dumps(found, ensure_ascii=False, indent=1) + "\n"


class ServerReplay:
    """One replay on the service. Cancelling calls it off there."""

    def __init__(self, session: Session, started: Mapping[str, Any], *, is_quiet: bool) -> None:
        self.id = int(started["id"])
        self._session = session
        self._progress = None if is_quiet else Progress(int(started["numExpected"]))
        self._said = ""
        if self._progress:
            self._progress.say(f"Replay {self.id} of {started['numCases']} cases runs on {session.base}.")

    @classmethod
    async def start(cls, session: Session, wanted: Mapping[str, Any], *, is_quiet: bool) -> "ServerReplay":
        asked = asyncio.ensure_future(session.post(REPLAYS, wanted))
        try:
            return cls(session, json.loads(await asyncio.shield(asked)), is_quiet=is_quiet)
        except asyncio.CancelledError:  # it may have begun by now, and nobody will follow it
            await cls(session, json.loads(await asked), is_quiet=is_quiet)._call_off()
            raise

    async def report(self) -> Report:
        """Wait for its end, and fetch the report. Raises `Incomplete`, `SourceError`."""
        try:
            ended = await self._followed()
        except (asyncio.CancelledError, SourceError):  # nobody will follow it
            await self._call_off()
            raise
        if ended["state"] == "failed":
            raise Incomplete(f"Replay {self.id} failed: {ended['failure']}")
        if ended["state"] == "cancelled":
            raise Incomplete(f"Replay {self.id} was called off on the service.")
        return report_from(json.loads(await self._session.get(f"{REPLAYS}/{self.id}/report.json")))

    async def answers(self) -> bytes:
        """All attempts, line by line, as `--answers` takes them."""
        return await self._session.get(f"{REPLAYS}/{self.id}/answers.jsonl")

    async def _followed(self) -> Mapping[str, Any]:
        seen = monotonic()
        while True:
            try:
                standing: dict[str, Any] = json.loads(await self._session.get(f"{REPLAYS}/{self.id}"))
                seen = monotonic()
            except Unreachable as error:
                if monotonic() - seen > MAX_AWAY_S:
                    raise Incomplete(f"{error} Replay {self.id} may go on there.") from error
            else:
                self._tell(standing)
                if standing["state"] in OVER:
                    return standing
            await asyncio.sleep(POLL_S)

    def _tell(self, standing: Mapping[str, Any]) -> None:
        if self._progress is None:
            return
        self._progress.at(int(standing["numFinished"]), int(standing["numErrors"]))
        words = "Paused on the service" if standing["state"] == "paused" else STAGES.get(standing["stage"], "")
        if words != self._said and standing["state"] not in OVER:
            self._said = words
            self._progress.say(f"{words or 'It goes on'}.")

    async def _call_off(self) -> None:
        try:
            await self._session.post(f"{REPLAYS}/{self.id}/cancel")
        except SourceError as error:  # it ended meanwhile, or cannot be told
            words = f"It could not be called off: {error}"
        else:
            words = f"Replay {self.id} is called off."
        if self._progress:
            self._progress.say(words)


def report_from(whole: Mapping[str, Any]) -> Report:
    """A JSON report as a value; raises `SourceError` where it is none."""
    try:
        if whole["report"] != KIND:
            raise ValueError("report")
        return Fetched(
            mode=str(whole["mode"]),
            source=str(whole["source"]),
            started_at=str(whole["startedAt"]),
            duration_s=float(whole["durationS"]),
            exit=Exit(whole["exitCode"]),
            entries=[_entry(case) for case in whole["cases"]],
            verdict=str(whole["verdict"]),
            reasons=list(whole["reasons"]),
            notices=list(whole["notices"]),
            faults=list(whole["faults"]),
            summary=whole["summary"],
            sides=whole["sides"],
            judge=whole.get("judge"),
            whole=whole,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SourceError("The service did not answer with a report. Is it of another version?") from error


def _entry(case: Mapping[str, Any]) -> Entry:
    shown = ("id", "toolName", "outcome", "headline", "details")
    latencies = [each for sample in case.get("samples", ()) for each in sample["latenciesMs"]]
    return Entry(
        case=str(case["id"]),
        tool=case["toolName"],
        outcome=Outcome(case["outcome"]),
        headline=str(case["headline"]),
        details=tuple(map(str, case["details"])),
        time_s=sum(latencies) / 1000,
        data={name: value for name, value in case.items() if name not in shown},
    )
