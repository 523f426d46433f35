"""What the judge finds about one part of an expectation."""

from dataclasses import dataclass, field

from quality.cases.sample import Reason


@dataclass(slots=True, kw_only=True)
class Finding:
    """`reasons`: it fails, whatever may follow. `missing`: it fails if nothing more follows. `open`: it could not be
    decided. `settled`: it holds, whatever may follow. `pairs`: (step, call)."""

    reasons: list[Reason] = field(default_factory=list)
    missing: list[Reason] = field(default_factory=list)
    open: list[Reason] = field(default_factory=list)
    settled: bool = True
    pairs: tuple[tuple[int, int], ...] = ()
