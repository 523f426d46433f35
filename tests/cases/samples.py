"""Samples and expectations in few words."""

import json
from typing import Any

from quality.cases.judge import judge
from quality.cases.sample import Call, Ending, Judgement, Sample, Served, Verdict


def call(tool: str, served: Any = None, *, error: bool = False, **arguments: Any) -> Call:
    """A call with these arguments; `served` is what it was answered with."""
    answered = None if served is None and not error else Served(json.dumps(served), is_error=error)
    return Call(tool, json.dumps(arguments), answered)


def sample(*cycles: list[Call] | Call, reply: str | None = "Done.", ending: Ending = Ending.ANSWERED) -> Sample:
    """One list of calls a reply; a call alone is a reply with one call."""
    return Sample(
        tuple(tuple(cycle) if isinstance(cycle, list) else (cycle,) for cycle in cycles), reply=reply, ending=ending
    )


def calls(mode: str, *steps: Any, **more: Any) -> dict[str, Any]:
    """An expectation of calls; a text is a step with that tool and any arguments."""
    read = [{"tool": step, "extra_args": "allow"} if isinstance(step, str) else step for step in steps]
    return {"version": 1, "calls": {"mode": mode, **({"steps": read} if read else {}), **more}}


def verdict(expectation: Any, given: Sample, **more: Any) -> Verdict:
    return judge(expectation, given, **more).verdict


def codes(judgement: Judgement) -> list[str]:
    return [reason.code for reason in judgement.reasons]


def tool(name: str, required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    """A tool as a request offers it."""
    parameters = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}
