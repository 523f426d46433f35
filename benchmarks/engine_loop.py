"""The loop against the same requests by bare httpx, in one run: overhead per cycle, and many turns in flight.

    python -m benchmarks.engine_loop [--turns 200] [--delay 1.0]

The scripted server runs in a process of its own. "Bare" sends byte for byte what the engine sends and reads the answers
without looking at them. Rates depend on the machine; the ratios are what counts. The overhead is processor time of this
process, which is what a cycle costs also where other programs compete for the cores.
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
ROUNDS = 5
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


async def compare(base_url: str, *, cycles: int, times: int, delay_s: float, at_once: bool) -> tuple[float, float]:
    """Medians in seconds: the engine, bare httpx. They take turns, so that a busy machine troubles both alike."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=KEPT_CONNECTIONS)
    async with (
        Guard(Policy.local()).client(base_url) as guarded,
        httpx.AsyncClient(trust_env=False, limits=limits, timeout=60) as client,
    ):
        bodies = await bodies_of(base_url, turn_of(base_url, guarded, cycles, 0), cycles)
        engine, bare = turn_of(base_url, guarded, cycles, delay_s), bare_of(base_url, client, bodies, delay_s)
        engine_s, bare_s = [], []
        for _ in range(ROUNDS):
            engine_s.append(await seconds(engine, times, at_once=at_once))
            bare_s.append(await seconds(bare, times, at_once=at_once))
    return statistics.median(engine_s), statistics.median(bare_s)


async def run(num_turns: int, delay_s: float) -> None:
    with scripted_server() as base_url:
        engine_s, bare_s = await compare(base_url, cycles=NUM_CYCLES, times=10, delay_s=0, at_once=False)
        num_cycles = 10 * NUM_CYCLES
        engine_ms, bare_ms = engine_s / num_cycles * 1000, bare_s / num_cycles * 1000
        sys.stdout.write(
            f"overhead of the loop            {engine_ms - bare_ms:6.2f} ms a cycle  "
            f"(engine {engine_ms:.2f}, bare httpx {bare_ms:.2f}; target under 2)\n"
        )
        for seconds_held in (delay_s, 0.0):
            engine_s, bare_s = await compare(base_url, cycles=2, times=num_turns, delay_s=seconds_held, at_once=True)
            target = "; target 0.7" if seconds_held else "; no wait: both cores are the limit"
            sys.stdout.write(
                f"{num_turns} turns in flight, {seconds_held:g} s wait  {bare_s / engine_s:6.2f} of bare httpx  "
                f"(engine {num_turns / engine_s:.0f} turns/s, bare {num_turns / bare_s:.0f}{target})\n"
            )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--delay", type=float, default=1.0, help="seconds that the model takes for each reply")
    options = parser.parse_args(arguments)
    asyncio.run(run(options.turns, options.delay))


if __name__ == "__main__":
    main()
