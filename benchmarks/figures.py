"""One figure of a benchmark: a line of JSON, told beside a yardstick that was measured in the same run."""

import statistics
from collections.abc import Sequence
from typing import Any


def figure(
    name: str, unit: str, ours: Sequence[float], theirs: Sequence[float], yardstick: str, **more: Any
) -> dict[str, Any]:
    """`ours` and `theirs` are one value a round, at least two; `spread` is the middle half of ours."""
    quarters = statistics.quantiles(ours, n=4)
    median, other = statistics.median(ours), statistics.median(theirs)
    return {
        "name": name,
        "value": round(median, 3),
        "unit": unit,
        "compared_with": {"name": yardstick, "value": round(other, 3), "ratio": round(median / other, 4)},
        "n": len(ours),
        "median": round(median, 3),
        "spread": [round(quarters[0], 3), round(quarters[2], 3)],
        **more,
    }
