"""The loop against the same requests by bare httpx, in one run: overhead per cycle, and many turns in flight.

    python -m benchmarks.engine_loop [--turns 200] [--delay 1.0] [--rounds 5]

The scripted server runs in a process of its own. "Bare" sends byte for byte what the engine sends and reads the answers
without looking at them. Rates depend on the machine; the ratios are what counts. The overhead is processor time of this
process, which is what a cycle costs also where other programs compete for the cores. Lines are of the same shape as
those of `benchmarks.engine`.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from engine.limits import Limits
from engine.loop import Outcome, run_turn
from engine.net import Guard, Policy
from engine.providers.openai import OpenAIModel
from engine.tools import Arguments, FunctionTool, Safety, ToolContext, ToolOutcome

NUM_CYCLES = 10
NUM_TURNS = 10  # of the overhead's measurement, one after the other
KEPT_CONNECTIONS = 16  # the engine keeps no more either
QUESTION = [{"role": "user", "content": "What is the weather in Rome?"}]
DONE = ToolOutcome("21 degrees", "21 degrees")


async def weather(arguments: Arguments, context: ToolContext) -> ToolOutcome:
    return DONE


TOOL = FunctionTool(
    "get_weather",
    "Current weather in a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    weather,
    safety=Safety.SAFE,
)


@contextmanager
def scripted_server() -> Iterator[str]:
    command = [sys.executable, "-m", "engine.providers.scripted", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def turn_of(base_url: str, client: httpx.AsyncClient, cycles: int, delay_s: float) -> Callable[[], Awaitable[None]]:
    """One turn of so many cycles: a call in each but the last, which answers."""
    script = ",".join([*["one_call"] * (cycles - 1), "plain_text"])
    model = OpenAIModel(base_url, script, client, headers={"X-Delay": str(delay_s)})
    limits = Limits(max_cycles=cycles, identical_calls=0)

    async def turn() -> None:
        result = await run_turn(model, [TOOL], QUESTION, limits=limits)
        assert result.outcome is Outcome.ANSWERED, result
        assert result.num_cycles == cycles

    return turn


async def bodies_of(base_url: str, turn: Callable[[], Awaitable[None]], cycles: int) -> list[bytes]:
    """What one such turn sends, to send it again without the engine."""
    await turn()
    async with httpx.AsyncClient(trust_env=False) as client:
        asked: list[dict[str, Any]] = (await client.get(base_url.removesuffix("/v1") + "/asked")).json()
    return [json.dumps(ask["body"], ensure_ascii=False).encode() for ask in asked[-cycles:]]


def bare_of(
    base_url: str, client: httpx.AsyncClient, bodies: list[bytes], delay_s: float
) -> Callable[[], Awaitable[None]]:
    headers = {"Content-Type": "application/json", "X-Delay": str(delay_s)}

    async def bare() -> None:
        for body in bodies:
            url = f"{base_url}/chat/completions"
            async with client.stream("POST", url, content=body, headers=headers) as response:
                async for _ in response.aiter_raw():
                    pass

    return bare


async def seconds(work: Callable[[], Awaitable[None]], times: int, *, at_once: bool) -> float:
    """Of the clock for work done at once, of the processor for work done one after the other."""
    clock = time.perf_counter if at_once else time.process_time
    started = clock()
    if at_once:
        await asyncio.gather(*(work() for _ in range(times)))
    else:
        for _ in range(times):
            await work()
    return clock() - started


async def compare(
    base_url: str, *, cycles: int, times: int, delay_s: float, at_once: bool, rounds: int
) -> tuple[list[float], list[float]]:
    """Seconds of each round, of the engine and of bare httpx. They take turns: a busy machine troubles both alike."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=KEPT_CONNECTIONS)
    async with (
        Guard(Policy.local()).client(base_url) as guarded,
        httpx.AsyncClient(trust_env=False, limits=limits, timeout=60) as client,
    ):
        bodies = await bodies_of(base_url, turn_of(base_url, guarded, cycles, 0), cycles)
        engine, bare = turn_of(base_url, guarded, cycles, delay_s), bare_of(base_url, client, bodies, delay_s)
        engine_s, bare_s = [], []
        for _ in range(rounds):
            engine_s.append(await seconds(engine, times, at_once=at_once))
            bare_s.append(await seconds(bare, times, at_once=at_once))
    return engine_s, bare_s


def figure(name: str, unit: str, ours: list[float], theirs: list[float], **more: Any) -> dict[str, Any]:
    quarters = statistics.quantiles(ours, n=4)
    median, other = statistics.median(ours), statistics.median(theirs)
    compared = {"name": "bare httpx", "value": round(other, 3), "ratio": round(median / other, 4)}
    return {
        "name": name,
        "value": round(median, 3),
        "unit": unit,
        "compared_with": compared,
        "n": len(ours),
        "median": round(median, 3),
        "spread": [round(quarters[0], 3), round(quarters[2], 3)],
        **more,
    }


async def overhead(base_url: str, rounds: int) -> dict[str, Any]:
    engine_s, bare_s = await compare(
        base_url, cycles=NUM_CYCLES, times=NUM_TURNS, delay_s=0, at_once=False, rounds=rounds
    )
    num_cycles = NUM_TURNS * NUM_CYCLES
    engine_ms, bare_ms = ([s / num_cycles * 1000 for s in series] for series in (engine_s, bare_s))
    beyond = round(statistics.median(engine_ms) - statistics.median(bare_ms), 3)
    return figure(
        "loop, one cycle", "ms of processor time", engine_ms, bare_ms, beyond_bare=beyond, target="< 2 beyond"
    )


async def in_flight(base_url: str, num_turns: int, delay_s: float, rounds: int) -> dict[str, Any]:
    engine_s, bare_s = await compare(base_url, cycles=2, times=num_turns, delay_s=delay_s, at_once=True, rounds=rounds)
    name = f"{num_turns} turns in flight, the model takes {delay_s:g} s"
    target = {"target": "ratio 0.7"} if delay_s else {}
    return figure(name, "turns/s", [num_turns / s for s in engine_s], [num_turns / s for s in bare_s], **target)


def run(num_turns: int, delay_s: float, rounds: int) -> Iterator[dict[str, Any]]:
    with scripted_server() as base_url:
        yield asyncio.run(overhead(base_url, rounds))
        yield asyncio.run(in_flight(base_url, num_turns, delay_s, rounds))
        yield asyncio.run(in_flight(base_url, num_turns, 0, rounds))


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description="The loop against the same requests by bare httpx.")
    options.add_argument("--turns", type=int, default=200, help="in flight at once")
    options.add_argument("--delay", type=float, default=1.0, help="seconds that the model takes for each reply")
    options.add_argument("--rounds", type=int, default=5, help="measurements per figure, at least 2")
    chosen = options.parse_args(arguments)
    for line in run(chosen.turns, chosen.delay, chosen.rounds):
        print(json.dumps(line))


if __name__ == "__main__":
    main()
