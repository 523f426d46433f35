"""Tools: `base` says what one is, `registry` runs calls, each other module makes one kind."""

from engine.tools.base import (
    RESULT_LIMIT,
    TIMEOUT_S,
    Arguments,
    Execute,
    FunctionTool,
    Mode,
    Safety,
    SecretSource,
    Tool,
    ToolContext,
    ToolOutcome,
    failed,
    succeeded,
    told_in_json,
)
from engine.tools.registry import Registry, invalid_arguments, unknown_tool

__all__ = [
    "RESULT_LIMIT",
    "TIMEOUT_S",
    "Arguments",
    "Execute",
    "FunctionTool",
    "Mode",
    "Registry",
    "Safety",
    "SecretSource",
    "Tool",
    "ToolContext",
    "ToolOutcome",
    "failed",
    "invalid_arguments",
    "succeeded",
    "told_in_json",
    "unknown_tool",
]
