"""`quality-tool-regressions`: checks regression cases, replays them against a model, and judges what comes.

    quality-tool-regressions --file cases.jsonl
    quality-tool-regressions --api-base https://lab.example --replay --base-url http://127.0.0.1:8000/v1 --model qwen
    quality-tool-regressions --api-base https://lab.example --endpoint qwen
    quality-tool-regressions --file cases.jsonl --answers replies.jsonl

Exit codes: 0 the gate is passed, 1 it is not, 2 the input is bad, 3 the run is incomplete.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, TextIO

from engine.errors import EngineError
from engine.net import Guard, Policy
from engine.redaction import Redactor
from engine.strict_json import JsonError, read_json
from engine.tools import ToolContext
from engine.tools.definitions import read_definitions
from engine.tools.http import HttpTool
from engine.visible import visible
from quality.cases.attempt import Attempt, BadAttempt, read_attempts
from quality.cases.budgets import Allowance
from quality.cases.comparison import BadBaseline, Comparison, Counts, baseline_of, compare
from quality.cases.confirm import FRESH, Pairs, confirming
from quality.cases.conversation import NotReplayable
from quality.cases.gate import Exit, Gate, gate_of, named
from quality.cases.judge import Ask
from quality.cases.judge_model import Judge, opened_judge
from quality.cases.junit import junit
from quality.cases.markdown import markdown
from quality.cases.options import PROGRAM, TOKEN, BadInput, check_options, parser
from quality.cases.record import Case, CaseFile
from quality.cases.replay import Endpoint, Live, Replay, Settings, Side, plan_of
from quality.cases.reply_cache import ReplyCache
from quality.cases.report import (
    Entry,
    Report,
    notices_of_comparison,
    notices_of_sides,
    replayed,
    told_side,
    validated,
    verdict_of,
)
from quality.cases.results import CaseResult, SuiteResult, results_of
from quality.cases.sample import Ending
from quality.cases.selection import Selected, select
from quality.cases.server_replay import Incomplete, ServerReplay, estimate, wanted_of
from quality.cases.sources import Service, read_file
from quality.cases.terminal import Progress, table
from quality.cases.toolset import name_of

CANDIDATE, BASELINE = "candidate", "baseline"


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser(__doc__).parse_args(arguments)
    try:
        check_options(options)
        report = asyncio.run(Run(options).report())
        sys.stdout.flush()  # here, where a reader that has left is heard of
    except (EngineError, BadAttempt) as error:
        sys.stderr.write(f"{PROGRAM}: {visible(str(error))}\n")
        return int(Exit.INCOMPLETE if isinstance(error, Incomplete) else Exit.BAD_INPUT)
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.stderr.write(f"{PROGRAM}: stopped\n")
        return int(Exit.INCOMPLETE)
    except BrokenPipeError:
        _hush()
        return int(Exit.PASSED if options.dry_run else Exit.INCOMPLETE)
    if report is None:
        return int(Exit.PASSED)
    try:
        _write(report, options)
    except BrokenPipeError:
        _hush()
    except OSError as error:
        sys.stderr.write(f"{PROGRAM}: the report cannot be written to {error.filename}: {error.strerror}\n")
        return int(Exit.BAD_INPUT)
    return int(report.exit)


class Run:
    """One run of the command."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self._guard = Guard(Policy.local())
        self._judge: Judge | None = None
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._started = monotonic()

    async def report(self) -> Report | None:
        """None: there was nothing to report (`--dry-run`)."""
        options = self.options
        if options.endpoint:
            return await self._on_service()
        selected = select(await self._cases(), options)
        if not (options.replay or options.answers):
            return self._validation(selected)
        if selected.has_faults:
            selected.notices.append("Nothing was replayed: mend the cases first, or leave them out.")
            return self._validation(selected, exit_if_faulty=Exit.BAD_INPUT)
        if options.dry_run:
            self._show_plan(selected.cases, await self._candidate())
            return None
        async with AsyncExitStack() as stack:
            if options.judge_model:
                self._judge = await stack.enter_async_context(self._opened_judge())
            if options.answers:
                return await self._rejudged(selected)
            return await self._replayed(selected, await self._candidate())

    # Cases.

    async def _cases(self) -> CaseFile:
        options = self.options
        if options.file is not None:
            return await asyncio.to_thread(read_file, options.file, require_trailer=not options.no_trailer)
        status = "" if options.status == "all" else options.status
        return await self._service().cases(status=status, limit=options.limit)

    def _service(self) -> Service:
        token = self.options.token or os.environ.get(TOKEN, "")
        if not token:
            scopes = "scopes read and replays:write" if self.options.endpoint else "scope export:read"
            raise BadInput(f"The service wants a token with the {scopes}: set {TOKEN}.")
        return Service(self.options.api_base, token.strip(), guard=self._guard)

    def _validation(self, selected: Selected, exit_if_faulty: Exit = Exit.FAILED) -> Report:
        code = Exit.BAD_INPUT if selected.faults else exit_if_faulty if selected.has_faults else Exit.PASSED
        entries = selected.entries + [validated(case) for case in selected.cases]
        verdict = {Exit.PASSED: "All cases are valid.", Exit.FAILED: "Not all cases are valid."}
        return self._report("validate", selected, entries, code, verdict.get(code, "The input is bad."))

    # A replay that the service runs.

    async def _on_service(self) -> Report | None:
        options, wanted = self.options, wanted_of(self.options)
        async with self._service().session() as session:
            if options.dry_run:
                sys.stdout.write(visible(await estimate(session, wanted)))
                return None
            _stopped_by(signal.SIGTERM)
            running = await ServerReplay.start(session, wanted, is_quiet=options.quiet)
            report = await running.report()
            if options.out_answers:
                with _opened(options.out_answers) as kept:
                    kept.write((await running.answers()).decode())
        return report

    # The judge.

    def _opened_judge(self) -> AbstractAsyncContextManager[Judge]:
        options = self.options
        key = _environment(options.judge_api_key_env) if options.judge_api_key_env else None
        return opened_judge(
            options.judge_base_url, options.judge_model, key, guard=self._guard, timeout_s=options.timeout
        )

    async def _with_judge[T](self, work: Callable[[Ask | None], T]) -> T:
        """What `work` finds, with its questions answered by the judge if there is one."""
        return work(None) if self._judge is None else await self._judge.judged(work)

    # Replay.

    async def _candidate(self) -> Side:
        options = self.options
        prompt = None
        if options.system_prompt is not None:
            prompt = _text_of(options.system_prompt)
        elif options.style:
            prompt = await self._service().style_prompt(options.style)
        tools = None
        if options.toolset is not None:
            try:
                tools = read_json(_text_of(options.toolset))
            except JsonError as error:
                raise BadInput(f"{options.toolset} holds no tools: {error}.") from error
        return Side(name=CANDIDATE, endpoint=self._endpoint(), system_prompt=prompt, tools=tools)

    def _endpoint(self) -> Endpoint:
        options = self.options
        given = {"temperature": options.temperature, "max_tokens": options.max_tokens}
        return Endpoint(
            base_url=options.base_url,
            model=options.model,
            key=_environment(options.api_key_env) if options.api_key_env else None,
            parameters={name: value for name, value in given.items() if value is not None} | options.parameters,
            price=options.price,
            timeout_s=options.timeout,
        )

    def _baseline_side(self, side: Side) -> Side:
        options = self.options
        endpoint = replace(
            side.endpoint,
            base_url=options.baseline_base_url or side.endpoint.base_url,
            model=options.baseline_model or side.endpoint.model,
        )
        if options.baseline_base_url or options.baseline_api_key_env:  # a key is for one server
            name = options.baseline_api_key_env
            endpoint = replace(endpoint, key=_environment(name) if name else None)
        return Side(name=BASELINE, endpoint=endpoint)

    def _settings(self) -> Settings:
        options = self.options
        return Settings(
            samples=options.samples,
            seed=None if options.no_seed else options.seed,
            concurrency=options.concurrency,
            max_cycles=options.max_cycles,
            sample_time_s=options.timeout * (options.max_cycles + 1),
            on_miss=options.on_miss,
            miss_result=options.miss_result,
            run_budget=Allowance.read(options.budget),
            case_budget=Allowance.read(options.case_budget),
        )

    def _live(self) -> Live | None:
        options = self.options
        if options.live is None:
            return None
        definitions = {
            tool.name: tool for tool in read_definitions(_text_of(options.live).encode(), self._guard.policy)
        }
        if unknown := [name for name in options.live_tools if name not in definitions]:
            raise BadInput(f"{options.live} defines no {', '.join(unknown)}.")
        secrets = {name: _environment(name) for name in options.secret}
        tools = {name_of(name): HttpTool(definitions[name], self._guard) for name in options.live_tools}
        return Live(tools=tools, context=lambda: ToolContext(secrets=secrets.get, redactor=Redactor(secrets)))

    def _show_plan(self, cases: Sequence[Case], side: Side) -> None:
        """The first request of each case, one line of JSON each."""
        settings = self._settings()
        for case in cases:
            shown: dict[str, Any] = {"case": case.id, "samples": settings.samples_of(case)}
            try:
                plan = plan_of(case, side)
                shown |= {"url": f"{side.endpoint.base_url.rstrip('/')}/chat/completions"}
                shown |= {"body": plan.body(side, settings, 0), "notes": plan.opening.notes}
            except NotReplayable as error:
                shown |= {"error": f"it cannot be replayed: {error}"}
            sys.stdout.write(visible(json.dumps(shown, ensure_ascii=False)) + "\n")

    async def _replayed(self, selected: Selected, side: Side) -> Report:
        options, settings = self.options, self._settings()
        before = _baseline(options.baseline)
        sides = [side, self._baseline_side(side)] if options.two_sided else [side]
        expected = {case.id: settings.samples_of(case) for case in selected.cases}
        progress = None if options.quiet else Progress(sum(expected.values()) * len(sides))
        earlier = self._earlier(selected.cases, sides, settings) if options.resume else []
        if earlier:
            selected.notices.append(
                f"Taken from {options.out_answers}, and not asked for again: {len(earlier)} samples."
            )
        with ExitStack() as stack:
            kept = stack.enter_context(_opened(options.out_answers)) if options.out_answers else None
            on_attempt = _on_attempt(progress, kept)
            for attempt in earlier:
                on_attempt(attempt)
            cache = ReplyCache(options.cache) if options.cache else None
            replay = Replay(
                selected.cases,
                sides,
                settings,
                guard=self._guard,
                cache=cache,
                live=self._live(),
                on_attempt=on_attempt,
            )
            if self._judge:
                self._judge.budget = replay.budget
            attempts = earlier + await replay.run(finished={attempt.key for attempt in earlier})
            judged = await self._with_judge(
                lambda ask: {each.name: self._judged(selected.cases, attempts, each, expected, ask) for each in sides}
            )
            fresh: Pairs = {}
            if options.two_sided:
                before = {each.case.id: Counts(each.case.version, *each.counts) for each in judged[BASELINE]}
                if not options.no_confirm:
                    fresh = await self._confirm(replay, sides, before, judged[CANDIDATE])
        selected.notices += notices_of_sides(judged[CANDIDATE], judged.get(BASELINE))
        if fresh:
            used = f"{replay.budget.num_calls} requests and {replay.budget.usage.total_tokens:,} tokens"
            selected.notices.append(f"Suspects run again with fresh samples: {named(list(fresh))}. With them: {used}.")
        comparison = None if before is None else compare(before, judged[CANDIDATE], fresh=fresh)
        return self._judged_report("replay", selected, judged, comparison, sides={each.name: each for each in sides})

    def _earlier(self, cases: Sequence[Case], sides: Sequence[Side], settings: Settings) -> list[Attempt]:
        """What a run that was broken off has kept: samples that were finished, of the very same requests."""
        path = self.options.out_answers
        if not path.exists():
            return []
        lines = [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
        wanted = {
            (side.name, case.id, index): (case, side)
            for case in cases
            for side in sides
            for index in range(settings.samples_of(case))
        }
        found: dict[tuple[str, str, int], Attempt] = {}
        for attempt in read_attempts(lines):
            case, side = wanted.get(attempt.key, (None, None))
            if case is None or side is None or attempt.sample.ending is Ending.ERROR:
                continue
            sha256 = plan_of(case, side).sha256(side, settings, attempt.index)
            if (attempt.version, attempt.request_sha256) == (case.version, sha256):
                found[attempt.key] = attempt
        return list(found.values())

    def _judged(
        self,
        cases: Sequence[Case],
        attempts: Sequence[Attempt],
        side: Side,
        expected: Mapping[str, int],
        ask: Ask | None,
    ) -> list[CaseResult]:
        own = [attempt for attempt in attempts if attempt.side == side.name]
        return results_of(cases, own, expected=expected, tools=side.tools, quarantined=self.options.quarantine, ask=ask)

    async def _confirm(
        self, replay: Replay, sides: Sequence[Side], before: Mapping[str, Counts], after: Sequence[CaseResult]
    ) -> Pairs:
        """Suspects are put to both sides again; decided is by these samples alone."""
        cases = {each.case.id: each.case for each in after}
        attempts: list[Attempt] = []
        rounds = confirming(before, after)
        try:
            wanted = next(rounds)
            while True:
                chosen = [cases[case] for case in wanted.cases]
                jobs = [(case, side, index) for index in wanted.indexes for case in chosen for side in sides]
                attempts += await replay.attempts(jobs)
                expected = dict.fromkeys(wanted.cases, wanted.last)
                again = await self._with_judge(partial(self._counted, chosen, attempts, sides, expected))
                wanted = rounds.send({case: (again[BASELINE][case], again[CANDIDATE][case]) for case in wanted.cases})
        except StopIteration as decided:
            fresh: Pairs = decided.value
            return fresh

    def _counted(
        self,
        cases: Sequence[Case],
        attempts: Sequence[Attempt],
        sides: Sequence[Side],
        expected: Mapping[str, int],
        ask: Ask | None,
    ) -> dict[str, dict[str, tuple[int, int]]]:
        """Passes and judged samples of each case, side by side."""
        return {
            side.name: {each.case.id: each.counts for each in self._judged(cases, attempts, side, expected, ask)}
            for side in sides
        }

    async def _rejudged(self, selected: Selected) -> Report:
        options = self.options
        try:
            with options.answers.open("rb") as lines:
                attempts = [attempt for attempt in read_attempts(lines) if attempt.index < FRESH]
        except OSError as error:
            raise BadInput(f"{options.answers} cannot be read: {error.strerror}.") from error
        tools = read_json(_text_of(options.toolset)) if options.toolset else None
        by_id = {case.id: case for case in selected.cases}
        own = [attempt for attempt in attempts if attempt.side == CANDIDATE]
        counts = Counter(attempt.case for attempt in own)
        expected = {case: options.samples or counts[case] or 1 for case in by_id}
        changed = sorted({each.case for each in own if each.case in by_id and by_id[each.case].version != each.version})
        if changed:
            selected.notices.append(f"Answers to earlier versions of {', '.join(changed)} are judged by the newest.")
        unknown = sorted({attempt.case for attempt in own if attempt.case not in by_id})
        if unknown:
            selected.notices.append(f"Answers to cases that are not here were left out: {', '.join(unknown)}.")
        results = await self._with_judge(
            lambda ask: results_of(
                selected.cases, own, expected=expected, tools=tools, quarantined=options.quarantine, ask=ask
            )
        )
        before = _baseline(options.baseline)
        comparison = None if before is None else compare(before, results)
        return self._judged_report("rejudge", selected, {CANDIDATE: results}, comparison, sides={})

    # Reports.

    def _judged_report(
        self,
        mode: str,
        selected: Selected,
        judged: Mapping[str, Sequence[CaseResult]],
        comparison: Comparison | None,
        *,
        sides: Mapping[str, Side],
    ) -> Report:
        suite = SuiteResult(results=judged[CANDIDATE])
        gate = gate_of(suite, comparison, strict=self.options.strict)
        compared = {each.case: each for each in comparison.cases} if comparison else {}
        others = {each.case.id: each for each in judged.get(BASELINE, ())}
        entries = selected.entries + [
            replayed(each, gate, compared.get(each.case.id), others.get(each.case.id)) for each in judged[CANDIDATE]
        ]
        if comparison:
            selected.notices += notices_of_comparison(comparison)
        if self._judge:
            selected.notices += self._judge.faults
            if self._judge.model in {side.endpoint.model for side in sides.values()}:
                selected.notices.append(f"{self._judge.model} judges what it said itself: take another model as judge.")
        told = [told_side(name, results, sides.get(name)) for name, results in judged.items()]
        verdict = verdict_of(gate, comparison, suite)
        return self._report(mode, selected, entries, gate.exit, verdict, gate=gate, sides=told, comparison=comparison)

    def _report(
        self,
        mode: str,
        selected: Selected,
        entries: Sequence[Entry],
        code: Exit,
        verdict: str,
        *,
        gate: Gate | None = None,
        sides: Sequence[Mapping[str, Any]] = (),
        comparison: Comparison | None = None,
    ) -> Report:
        return Report(
            mode=mode,
            source=str(self.options.file or self.options.api_base),
            started_at=self._started_at,
            duration_s=monotonic() - self._started,
            exit=code,
            entries=sorted(entries, key=lambda entry: entry.data.get("line", 0)),
            verdict=verdict,
            reasons=(*gate.failed, *gate.missing) if gate else (),
            notices=selected.notices,
            faults=selected.faults,
            summary=sides[0] if sides else {"cases": len(entries)},
            sides=sides,
            comparison=comparison,
            judge=self._judge.as_dict() if self._judge else None,
        )


def _baseline(path: Path | None) -> dict[str, Counts] | None:
    if path is None:
        return None
    try:
        return baseline_of(json.loads(_text_of(path)))
    except ValueError as error:
        raise BadBaseline(f"{path} is no JSON. Name a file that --out-json wrote.") from error


def _on_attempt(progress: Progress | None, kept: TextIO | None) -> Callable[[Attempt], None]:
    def told(attempt: Attempt) -> None:
        if kept:
            kept.write(attempt.line() + "\n")
            kept.flush()
        if progress and attempt.index < FRESH:
            progress.step(is_error=attempt.sample.ending is Ending.ERROR)

    return told


def _stopped_by(number: int) -> None:
    """This signal, too, lets the run put things in order before it ends."""
    running = asyncio.current_task()
    assert running is not None
    with suppress(NotImplementedError):  # Windows
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)


def _opened(path: Path) -> TextIO:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}.") from error


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        told = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadInput(f"{path} cannot be read: {told}.") from error


def _environment(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise BadInput(f"The environment variable {name} is not set. Set it, or leave its option out.")
    return value


def _write(report: Report, options: argparse.Namespace) -> None:
    for path, text, mode in (
        (options.out_json, report.json, "w"),
        (options.out_junit, lambda: junit(report), "w"),
        (options.out_md, lambda: markdown(report), "a"),
    ):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open(mode, encoding="utf-8", newline="\n") as file:
                file.write(text())
    sys.stdout.write(report.json() if options.json else table(report))
    sys.stdout.flush()


def _hush() -> None:
    """Whoever read the output (`| head`) has left: what is still in its buffers goes nowhere, and is no fault."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())


if __name__ == "__main__":
    sys.exit(main())
