"""How turns of the benchmark are set up: a tool that costs nothing, a model that takes its time."""

import os

from engine.limits import Limits
from engine.net import Guard, Policy
from engine.tools import Arguments, FunctionTool, Safety, ToolContext, ToolOutcome
from quality.turns.setup import Asked, Endpoint, Setup

SCRIPT = "one_call,plain_text"


async def weather(arguments: Arguments, context: ToolContext) -> ToolOutcome:
    return ToolOutcome("21 degrees", "21 degrees")


TOOL = FunctionTool(
    "get_weather",
    "Current weather in a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    weather,
    safety=Safety.SAFE,
)


def setup(asked: Asked) -> Setup:
    endpoint = Endpoint(os.environ["BENCH_MODEL_URL"], SCRIPT, headers={"X-Delay": os.environ["BENCH_DELAY_S"]})
    return Setup(endpoint, Guard(Policy.local()), [TOOL], limits=Limits(wall_time_s=120))
