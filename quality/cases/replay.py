"""Replaying cases: each is put to a model again, its calls are answered from the recording, and what came is judged.

    attempts = await Replay(cases, [side], Settings(samples=5)).run()

A sample ends as soon as its verdict is decided. Nothing here opens a connection but that to the model server; `Live` is
the one exception, and it names each tool that may be called.
"""

import asyncio
import hashlib
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from engine.errors import EngineError, ToolError
from engine.history import wire_arguments
from engine.limits import Limits, Price
from engine.loop import Outcome, TurnResult, run_turn
from engine.messages import ToolCall
from engine.net import Client, Guard
from engine.providers.openai import OpenAIModel
from engine.providers.outage import is_outage
from engine.providers.protocol import Answer, Exchange, Listen, ModelError, Request, Usage, unheard
from engine.providers.retry import RetryPolicy
from engine.recorder import MemoryRecorder
from engine.records import Answered, CallRecord
from engine.tools import Registry, Safety, Tool, ToolContext
from quality.cases.attempt import Attempt
from quality.cases.budgets import NOTHING, Allowance, BadBudget, Budget, OutOfBudget, Spent
from quality.cases.conversation import NotReplayable, Opening, opening_of, tools_of
from quality.cases.judge import judge
from quality.cases.record import Case
from quality.cases.reply_cache import ReplyCache
from quality.cases.sample import Call, Ending, Sample, Served
from quality.cases.stubs import OnMiss, Result, Shelf, Source
from quality.cases.toolset import Toolset, name_of

logger = logging.getLogger(__name__)

DEFAULT_SAMPLES: Final = 1
NO_LIMIT: Final = Allowance()
AWAY_SAMPLES: Final = 5  # in a row without an answer,
AWAY_S: Final = 30.0  # and so long after the first of them: the server is away
_FINGERPRINT: Final = re.compile(r'"system_fingerprint"\s*:\s*"([^"\\]{1,200})"')


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A model server and how it is asked. `parameters` go into each request as they are."""

    base_url: str
    model: str
    key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    price: Price | None = None
    timeout_s: float = 120.0
    retry: RetryPolicy = field(default_factory=RetryPolicy)


@dataclass(frozen=True, kw_only=True)
class Side:
    """What is tried: an endpoint, and where given another system prompt or other tools than those recorded."""

    name: str
    endpoint: Endpoint
    system_prompt: str | None = None
    tools: Any = None


@dataclass(frozen=True, kw_only=True)
class Live:
    """Real tools that a replay may call where the recording has no result. Each must be safe to repeat."""

    tools: Mapping[str, Tool]  # by compared name
    context: Callable[[], ToolContext] = ToolContext

    def __post_init__(self) -> None:
        if unsafe := [tool.name for tool in self.tools.values() if tool.safety is not Safety.SAFE]:
            raise ToolError(f"{', '.join(unsafe)} may change something: a replay calls only tools that are safe.")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """`samples` None: what each case asks for, else one. `seed` None: none is sent; else each sample has its own."""

    samples: int | None = None
    seed: int | None = 1
    concurrency: int = 4
    max_cycles: int = 8
    sample_time_s: float = 300.0
    on_miss: OnMiss = OnMiss.STOP
    miss_result: str = ""
    run_budget: Allowance = NO_LIMIT
    case_budget: Allowance = NO_LIMIT

    def samples_of(self, case: Case) -> int:
        return self.samples or case.expectation.verdict.k or DEFAULT_SAMPLES


type OnAttempt = Callable[[Attempt], Awaitable[None] | None]
type Key = tuple[str, str, int]
type Job = tuple[Case, Side, int]


class Replay:
    """A run over cases and sides. `finished` are keys of attempts that are there already: they are not made again. A
    server that turns out to be down is not asked any more.

    Sides are taken in turn for each sample, so that what changes with time meets both alike. `spent` is what the run
    has used before, `spent_of` the same of a case by the names of side and case. Raises `BadBudget`.
    """

    def __init__(
        self,
        cases: Sequence[Case],
        sides: Sequence[Side],
        settings: Settings,
        *,
        guard: Guard,
        cache: ReplyCache | None = None,
        live: Live | None = None,
        on_attempt: OnAttempt | None = None,
        spent: Spent = NOTHING,
        spent_of: Mapping[tuple[str, str], Spent] = MappingProxyType({}),
    ) -> None:
        self.settings, self.cache, self.live = settings, cache, live
        self._cases, self._sides, self._guard = cases, sides, guard
        self._on_attempt = on_attempt
        has_cost = settings.run_budget.cost is not None or settings.case_budget.cost is not None
        if has_cost and any(side.endpoint.price is None for side in sides):
            raise BadBudget("A budget of money needs the price of a million tokens, of each endpoint.")
        self.budget = Budget("the run", settings.run_budget, spent=spent)
        self._spent_of = spent_of
        self._of_cases: dict[tuple[str, str], Budget] = {}
        self.reach = {side.name: _Reach(side.endpoint.base_url) for side in sides}

    def budget_of(self, side: Side, case: Case) -> Budget:
        """Of a case on a side; its time begins when it is first asked for."""
        key = side.name, case.id
        if key not in self._of_cases:
            spent = self._spent_of.get(key, NOTHING)
            self._of_cases[key] = Budget(case.id, self.settings.case_budget, spent=spent)
        return self._of_cases[key]

    async def run(self, *, finished: Collection[Key] = ()) -> list[Attempt]:
        """All samples. What cannot be asked is an attempt that ends in an error."""
        return await self.attempts(self.jobs(finished=finished))

    def jobs(self, *, finished: Collection[Key] = ()) -> Iterator[Job]:
        """The samples that are wanted and not there yet, in the order in which they are made."""
        for index in range(max(map(self.settings.samples_of, self._cases), default=0)):
            for case in self._cases:
                for side in self._sides:
                    if index < self.settings.samples_of(case) and (side.name, case.id, index) not in finished:
                        yield case, side, index

    async def attempts(self, jobs: Iterable[Job]) -> list[Attempt]:
        """These samples, in their order. Each is taken when it is begun, so `jobs` may come to an end at any time."""
        found: dict[int, Attempt] = {}
        waiting = enumerate(jobs)

        async def work(clients: Mapping[str, Client]) -> None:
            for place, (case, side, index) in waiting:
                found[place] = attempt = await self._attempt(case, side, index, clients[side.name])
                if self._on_attempt and (told := self._on_attempt(attempt)) is not None:
                    await told

        async with self._clients() as clients, asyncio.TaskGroup() as group:
            for _ in range(self.settings.concurrency):
                group.create_task(work(clients))
        return [found[place] for place in sorted(found)]

    @asynccontextmanager
    async def _clients(self) -> AsyncIterator[dict[str, Client]]:
        async with AsyncExitStack() as stack:
            yield {
                side.name: await stack.enter_async_context(self._guard.client(side.endpoint.base_url))
                for side in self._sides
            }

    async def _attempt(self, case: Case, side: Side, index: int, client: Client) -> Attempt:
        budgets = (self.budget, self.budget_of(side, case))
        try:
            for budget in budgets:
                budget.check()
            self.reach[side.name].check()
            plan = plan_of(case, side)
        except (NotReplayable, OutOfBudget, _Away) as error:
            reason = f"it cannot be replayed: {error}" if isinstance(error, NotReplayable) else str(error)
            return Attempt(
                case=case.id,
                version=case.version,
                side=side.name,
                index=index,
                sample=Sample(ending=Ending.ERROR, reply=None, error=reason),
            )
        return await _Sitting(self, plan, side=side, index=index, client=client, budgets=budgets).attempt()


@dataclass(frozen=True)
class Plan:
    """What is sent first."""

    case: Case
    opening: Opening
    tools: Registry
    toolset: Toolset

    def body(self, side: Side, settings: Settings, index: int) -> dict[str, Any]:
        """The first request of a sample, as `--dry-run` shows it."""
        parameters = parameters_of(side, settings, index)
        return {
            "model": side.endpoint.model,
            "messages": list(self.opening.messages),
            "tools": self.tools.offers(),
            **parameters,
        }

    def sha256(self, side: Side, settings: Settings, index: int) -> str:
        """Of that request: two samples with the same were asked the same."""
        text = json.dumps(self.body(side, settings, index), sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def plan_of(case: Case, side: Side) -> Plan:
    """Raises `NotReplayable`."""
    tools = tools_of(case.tools if side.tools is None else side.tools)
    return Plan(case, opening_of(case, side.system_prompt), tools, Toolset.read(tools.offers()))


def parameters_of(side: Side, settings: Settings, index: int) -> dict[str, Any]:
    seed = {} if settings.seed is None else {"seed": settings.seed + index}
    return {**seed, **side.endpoint.parameters}


class _Away(EngineError):
    """The model server does not answer: nothing more is asked of it."""


class _Reach:
    """Whether a side's server answers. One that is down would hold up a run for hours, sample by sample."""

    def __init__(self, base_url: str) -> None:
        self._base_url = base_url
        self._num_failures, self._since = 0, 0.0

    def answered(self) -> None:
        self._num_failures = 0

    def failed(self) -> None:
        if not self._num_failures:
            self._since = time.monotonic()
        self._num_failures += 1

    def check(self) -> None:
        """Raises `_Away`."""
        if self._num_failures >= AWAY_SAMPLES and time.monotonic() - self._since >= AWAY_S:
            raise _Away(
                f"not asked: {self._base_url} answered none of {self._num_failures} samples in a row. "
                "See that it runs, then ask for what is missing"
            )


class _Decided(Exception):
    """The verdict is known: nothing more needs to be asked."""


class _Sitting(MemoryRecorder):
    """One sample under way: it is the loop's model, its recorder, and the answerer of its calls."""

    def __init__(
        self, run: Replay, plan: Plan, *, side: Side, index: int, client: Client, budgets: tuple[Budget, ...]
    ) -> None:
        super().__init__()
        self._run, self._plan, self._side, self._index, self._budgets = run, plan, side, index, budgets
        settings, endpoint = run.settings, side.endpoint
        self._shelf = Shelf(
            plan.case,
            plan.opening.recorded,
            toolset=plan.toolset,
            on_miss=settings.on_miss,
            miss_result=settings.miss_result,
        )
        self._model = OpenAIModel(
            endpoint.base_url,
            endpoint.model,
            client,
            key=endpoint.key,
            headers=endpoint.headers,
            parameters=parameters_of(side, settings, index),
            timeout_s=endpoint.timeout_s,
            retry=endpoint.retry,
        )
        self.name = endpoint.model
        self._results: dict[tuple[int, int], Result] = {}
        self._num_requests = self._num_cached = 0
        self._paid = Usage()

    async def attempt(self) -> Attempt:
        settings = self._run.settings
        time_s = min(settings.sample_time_s, *(budget.time_left_s() for budget in self._budgets))
        limits = Limits(max_cycles=settings.max_cycles, wall_time_s=time_s)
        try:
            result = await run_turn(
                self,
                self._plan.tools,
                self._plan.opening.messages,
                recorder=self,
                limits=limits,
                on_tool_call=self._answer_call,
                turn_id=f"{self._plan.case.id}-{self._index}",
            )
            sample = self._sample(result)
        except _Decided:
            sample = Sample(self._cycles(), None, Ending.RUNNING)
        except OutOfBudget as error:
            sample = Sample(self._cycles(), None, Ending.ERROR, str(error))
        except Exception as error:  # one sample that breaks must not take the others with it
            logger.exception("A replay of %s broke", self._plan.case.id)
            sample = Sample(self._cycles(), None, Ending.ERROR, f"the replay broke: {type(error).__name__}: {error}")
        return self._record(sample)

    # What the loop asks of its model.

    async def answer(self, request: Request, listen: Listen = unheard) -> Answer:
        if self.replies and self._is_decided():
            raise _Decided
        body = self._model.body(request, streamed=True, changed={})
        cache = self._run.cache
        key = cache.key(self._model.url, body, self._index) if cache else ""
        if cache and (found := cache.get(key)):
            self._num_cached += 1
            request.exchanges.append(Exchange(streamed=True, status=200, body=found[1]))
            return found[0]
        answer = await self._ask(request, listen)
        if cache:
            cache.put(key, answer, request.exchanges[-1].body)
        return answer

    async def _ask(self, request: Request, listen: Listen) -> Answer:
        for budget in self._budgets:
            budget.check()
        for budget in self._budgets:
            budget.begin_call()
        reach = self._run.reach[self._side.name]
        try:
            answer = await self._model.answer(request, listen)
            reach.answered()
        except ModelError as error:
            if is_outage(error, request):
                reach.failed()
            else:
                reach.answered()
            raise
        finally:
            again = max(0, len(request.exchanges) - 1)
            self._num_requests += 1 + again
            for budget in self._budgets:
                budget.add_calls(again)
        self._paid += answer.usage
        for budget in self._budgets:
            budget.add(answer.usage, self._side.endpoint.price)
        return answer

    def _is_decided(self) -> bool:
        case = self._plan.case
        sample = Sample(self._cycles(), None, Ending.RUNNING)
        return judge(case.expectation, sample, tools=self._plan.toolset, now=case.now).decided

    # What the loop asks about calls.

    async def _answer_call(self, record: CallRecord) -> Answered | None:
        call = _call_of(record)
        expectation = self._plan.case.expectation
        if expectation.first_cycle_only and not any(step.when for step in _steps(self._plan.case)):
            return None  # nobody will read the result
        result = self._shelf.answer(call)
        if result.source is Source.MISSED and self._run.settings.on_miss is OnMiss.LIVE:
            result = await self._live(record) or result
        self._results[record.cycle, record.index] = result
        if result.served is None or result.shown is None:
            return None
        return Answered(result.shown, is_error=result.served.is_error)

    async def _live(self, record: CallRecord) -> Result | None:
        live = self._run.live
        tool = live.tools.get(name_of(record.name)) if live else None
        if live is None or tool is None or tool.execute is None:
            return None
        outcome = await Registry([tool]).run(tool.name, record.arguments, live.context())
        return Result(Source.LIVE, Served(outcome.result, is_error=outcome.is_error), outcome.result)

    # What becomes of it.

    def _cycles(self) -> tuple[tuple[Call, ...], ...]:
        return tuple(
            tuple(
                self._made(number, index, call)
                for index, call in enumerate([*record.reply.calls, *record.reply.broken])
            )
            for number, record in sorted(self.replies.items())
        )

    def _made(self, cycle: int, index: int, asked: Any) -> Call:
        arguments = asked.raw_arguments
        if isinstance(asked, ToolCall):
            arguments = wire_arguments(asked.raw_arguments, asked.arguments)
        served = None
        if result := self._results.get((cycle, index)):
            served = result.served
        elif (record := self.calls.get((cycle, index))) and record.outcome is not None:
            served = Served(json.dumps(record.outcome.text), is_error=record.outcome.is_error)
        return Call(asked.name, arguments, served)

    def _sample(self, result: TurnResult) -> Sample:
        cycles = self._cycles()
        match result.outcome:
            case Outcome.ANSWERED | Outcome.EMPTY:
                return Sample(cycles, result.content or "", Ending.ANSWERED)
            case Outcome.AWAITING:
                missed = any(result.source is Source.MISSED for result in self._results.values())
                return Sample(cycles, None, Ending.DIVERGED if missed else Ending.RUNNING)
            case Outcome.EXHAUSTED | Outcome.BUDGET_EXCEEDED:
                return Sample(cycles, None, Ending.STOPPED)
            case Outcome.TIMED_OUT:
                for budget in self._budgets:
                    budget.check()  # the more telling reason, if it is one
                return Sample(cycles, None, Ending.ERROR, f"timed out: {result.error}")
        return Sample(cycles, None, Ending.ERROR, result.error or str(result.outcome))

    def _record(self, sample: Sample) -> Attempt:
        replies = [record for _, record in sorted(self.replies.items())]
        exchanges = [exchange for record in replies for exchange in record.exchanges]
        exchanges += [exchange for failure in self.failures for exchange in failure.exchanges]
        prints = (match[1] for exchange in exchanges if (match := _FINGERPRINT.search(exchange.body)))
        sources = tuple(
            tuple(
                str(result.source) if (result := self._results.get((cycle, index))) else None
                for index in range(len(calls))
            )
            for cycle, calls in enumerate(sample.cycles)
        )
        case = self._plan.case
        return Attempt(
            case=case.id,
            version=case.version,
            side=self._side.name,
            index=self._index,
            sample=sample,
            sources=sources,
            raw=tuple(exchange.body for exchange in exchanges),
            requests=self._num_requests,
            cached=self._num_cached,
            prompt_tokens=self._paid.prompt_tokens,
            completion_tokens=self._paid.completion_tokens,
            latencies_ms=tuple(record.duration_ms for record in replies) if not self._num_cached else (),
            models=tuple(dict.fromkeys(record.model for record in replies if record.model)),
            fingerprints=tuple(dict.fromkeys(prints)),
            request_sha256=self._plan.sha256(self._side, self._run.settings, self._index),
            notes=self._plan.opening.notes,
        )


def _call_of(record: CallRecord) -> Call:
    return Call(record.name, wire_arguments(record.raw_arguments, record.arguments))


def _steps(case: Case) -> Sequence[Any]:
    return (case.expectation.calls.steps if case.expectation.calls else None) or ()
