"""How test turns are set up: the model's label is the script of the scripted server, the style names the tools.

Read from variables, because crash tests run workers as processes of their own.
"""

import os

from engine.limits import Limits
from engine.net import Guard, Policy
from engine.tools import FunctionTool, Mode, Safety, Tool
from engine.tools.definitions import HttpDefinition
from engine.tools.http import HttpTool
from engine.tools.pending import in_mode
from quality.turns.setup import Asked, Endpoint, Setup, SetupRefused

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def look_up(guard: Guard, safety: Safety = Safety.SAFE) -> Tool:
    method = "GET" if safety is Safety.SAFE else "POST"
    url = os.environ["TEST_TOOL_URL"] + ("/weather" if safety is Safety.SAFE else "/notes")
    name = "get_weather" if safety is Safety.SAFE else "send_note"
    return HttpTool(HttpDefinition(name, f"The tool {name}.", url, method, CITY, safety=safety), guard)


def from_variables(asked: Asked) -> Setup:
    if asked.style_id == "refused":
        raise SetupRefused("no_model", "No model is set up.")
    guard = Guard(Policy.local(), tenant=str(asked.tenant_id))
    tools: dict[str, list[Tool]] = {
        "": [],
        "safe": [look_up(guard)],
        "unsafe": [look_up(guard, Safety.UNSAFE)],
        "approve": [in_mode(look_up(guard, Safety.UNSAFE), Mode.APPROVE)],
        "mixed": [look_up(guard), in_mode(look_up(guard, Safety.UNSAFE), Mode.APPROVE)],
        "mixed_approve": [in_mode(look_up(guard, safety), Mode.APPROVE) for safety in (Safety.UNSAFE, Safety.SAFE)],
        "client": [FunctionTool("ask_user", "Asks the caller.", CITY, None, Mode.CLIENT, Safety.SAFE)],
    }
    delay = os.environ.get("TEST_MODEL_DELAY_S", "0")
    return Setup(
        Endpoint(
            os.environ["TEST_MODEL_URL"], asked.model_label or "choose", key="sk-test-1234", headers={"X-Delay": delay}
        ),
        guard,
        tools[asked.style_id],
        system="You help.",
        limits=Limits(wall_time_s=float(os.environ.get("TEST_WALL_TIME_S", "60"))),
        style_id=asked.style_id,
        prompt_version="7",
    )
