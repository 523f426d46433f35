"""Which cases of a source are run. Nothing is left out without a word."""

import argparse
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from quality.cases.record import Case, CaseFile, LineFault
from quality.cases.report import Entry, Outcome, faulty, skipped
from quality.cases.results import tags_of
from quality.cases.toolset import name_of

OF_THE_WHOLE: Final = ("no_end", "wrong_count", "wrong_checksum", "bad_end", "after_end")

_MARK: Final = re.compile(r"\{masked:[a-z0-9-]+:[0-9a-f]{8}\}")  # in the place of a value that was not exported


@dataclass
class Selected:
    """The cases that are run, and the entries of those that are not."""

    cases: list[Case] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    @property
    def has_faults(self) -> bool:
        return bool(self.faults) or any(entry.outcome is Outcome.FAILED for entry in self.entries)


def select(found: CaseFile, options: argparse.Namespace) -> Selected:
    """The cases that the options ask for."""
    selected = Selected(notices=[str(warning) for warning in found.warnings])
    of_the_whole = [fault for fault in found.faults if fault.code in OF_THE_WHOLE]
    selected.faults += map(str, of_the_whole)
    selected.entries += _of_lines(fault for fault in found.faults if fault not in of_the_whole)
    supported = None if options.tools is None else {name_of(name) for name in options.tools}
    for case in found.cases:
        if (options.case and case.id not in options.case) or (
            options.tag and not set(options.tag) & set(tags_of(case))
        ):
            continue
        if case.status == "archived" and not options.include_archived:
            selected.entries.append(skipped(case, "archived"))
        elif supported is None or case.tool is None or name_of(case.tool) in supported:
            selected.cases.append(case)
        else:
            selected.entries.append(_unsupported(case, is_skipped=options.skip_unsupported))
    if missing := set(options.case) - {case.id for case in found.cases}:
        selected.faults.append(f"There is no case {', '.join(sorted(missing))}.")
    if archived := sum(entry.headline == "archived" for entry in selected.entries):
        selected.notices.append(f"Archived cases that were skipped: {archived}. --include-archived takes them in.")
    if masked := [case.id for case in selected.cases if _MARK.search(str(case.record))]:
        named = f"{', '.join(masked[:10])}{' …' if len(masked) > 10 else ''}"
        told = "Values in them were masked; the model is given the marks, and what it makes of them is judged"
        selected.notices.append(f"{told}: {named}.")
    if not selected.cases and not selected.entries:
        selected.notices.append("There are no cases.")
    return selected


def _of_lines(faults: Iterable[LineFault]) -> list[Entry]:
    by_line: dict[int, list[LineFault]] = {}
    for fault in faults:
        by_line.setdefault(fault.line, []).append(fault)
    return [faulty(told) for _, told in sorted(by_line.items())]


def _unsupported(case: Case, *, is_skipped: bool) -> Entry:
    message = f"the tool {case.tool} is not supported"
    if is_skipped:
        return skipped(case, message)
    code, path = "unsupported_tool", "/toolName"
    return faulty([LineFault(line=case.line, code=code, message=message, case=case.id, tool=case.tool, path=path)])
