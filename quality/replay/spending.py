"""What a replay has used of its budgets since they last began: a retry begins them anew.

All functions need an open tenant scope.
"""

from collections.abc import Mapping
from typing import Any, Final

from django.db.models import Max, Sum

from quality.cases.budgets import Spent
from quality.models import Replay, ReplaySample

_SAMPLE: Final = "sample"  # the last one of before


def begun_anew(replay: Replay) -> dict[str, Any]:
    """`Replay.spent_before`, for budgets that begin now."""
    newest = ReplaySample.objects.filter(replay=replay).aggregate(pk=Max("pk"))["pk"]
    return {
        "calls": replay.requests,
        "prompt_tokens": replay.prompt_tokens,
        "completion_tokens": replay.completion_tokens,
        "cost": replay.cost,
        "time": replay.seconds,
        _SAMPLE: newest or 0,
    }


def of_run(replay: Replay) -> Spent:
    """By the run, its judge included."""
    before = Spent(**{name: value for name, value in replay.spent_before.items() if name != _SAMPLE})
    return Spent(
        calls=replay.requests - before.calls,
        prompt_tokens=replay.prompt_tokens - before.prompt_tokens,
        completion_tokens=replay.completion_tokens - before.completion_tokens,
        cost=replay.cost - before.cost,
        time=replay.seconds - before.time,
    )


def of_cases(replay: Replay) -> Mapping[tuple[str, str], Spent]:
    """By each case, by the names of side and case."""
    samples = ReplaySample.objects.filter(replay=replay, pk__gt=replay.spent_before.get(_SAMPLE, 0)).order_by()
    used = samples.values_list("side", "replay_case__number").annotate(
        Sum("requests"), Sum("prompt_tokens"), Sum("completion_tokens"), Sum("cost"), Sum("duration_ms")
    )
    return {
        (side, f"REG-{number}"): Spent(calls, prompt, completion, cost, duration_ms / 1000)
        for side, number, calls, prompt, completion, cost, duration_ms in used
    }
