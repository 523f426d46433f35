"""`pytest --qlab-cases cases.jsonl`: one test for each regression case.

Without a model server a test says whether its case is valid; with `--qlab-base-url` and `--qlab-model` it replays it.
Archived and quarantined cases are skipped. Loaded with every pytest that finds it, so what it needs is imported late.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from quality.cases.record import Case, LineFault
    from quality.cases.replay import Settings, Side


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("quality lab", "regression cases of tool calls")
    group.addoption("--qlab-cases", metavar="FILE", help="an export of cases: one test for each")
    group.addoption("--qlab-base-url", metavar="URL", help="replay them against this server, up to /v1")
    group.addoption("--qlab-model", metavar="NAME")
    group.addoption("--qlab-api-key-env", metavar="NAME", help="the environment variable that holds the server's key")
    group.addoption("--qlab-samples", type=int, metavar="K", help="a case (default: what it asks for, else 1)")


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("--qlab-cases")
    if not file:
        return
    if bool(config.getoption("--qlab-base-url")) != bool(config.getoption("--qlab-model")):
        raise pytest.UsageError("--qlab-base-url and --qlab-model belong together.")
    if not Path(file).is_file():
        raise pytest.UsageError(f"--qlab-cases: there is no file {file}.")
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args.clear()  # the cases alone, unless other tests are named too
    config.args.append(file)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    wanted = parent.config.getoption("--qlab-cases")
    if wanted and file_path == Path(wanted).resolve():
        return CaseFile.from_parent(parent, path=file_path)
    return None


class CaseFailed(Exception):
    """What is wrong with a case, or what a replay of it showed."""


class CaseFile(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        from quality.cases.sources import read_file

        found = read_file(self.path)
        for number, fault in enumerate(found.faults, 1):
            yield FaultItem.from_parent(self, name=fault.case or f"fault {number}", fault=fault)
        for case in found.cases:
            yield CaseItem.from_parent(self, name=case.id, case=case)


class _Item(pytest.Item):
    line: int

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, CaseFailed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.line - 1, self.name


class FaultItem(_Item):
    def __init__(self, *, fault: LineFault, **more: Any) -> None:
        super().__init__(**more)
        self.fault, self.line = fault, max(1, fault.line)

    def runtest(self) -> None:
        raise CaseFailed(str(self.fault))


class CaseItem(_Item):
    def __init__(self, *, case: Case, **more: Any) -> None:
        super().__init__(**more)
        self.case, self.line = case, case.line

    def runtest(self) -> None:
        from quality.cases.results import QUARANTINE, tags_of

        if self.case.status == "archived":
            pytest.skip("archived")
        if QUARANTINE in tags_of(self.case):
            pytest.skip("quarantined")
        if self.config.getoption("--qlab-base-url"):
            self._replay()

    def _replay(self) -> None:
        from engine.net import Guard, Policy
        from engine.visible import visible
        from quality.cases.gate import gate_of
        from quality.cases.replay import Replay
        from quality.cases.report import replayed
        from quality.cases.results import Standing, SuiteResult, results_of

        side, settings = self._asked()
        attempts = asyncio.run(Replay([self.case], [side], settings, guard=Guard(Policy.local())).run())
        expected = {self.case.id: settings.samples_of(self.case)}
        [result] = results_of([self.case], attempts, expected=expected)
        if result.standing is not Standing.PASSED:
            entry = replayed(result, gate_of(SuiteResult(results=[result])), None)
            lines = [f"{self.case.id}: {self.case.behavior}", entry.headline, *entry.details]
            raise CaseFailed("\n".join(map(visible, lines)))

    def _asked(self) -> tuple[Side, Settings]:
        from quality.cases.replay import Endpoint, Settings, Side

        option = self.config.getoption
        name = option("--qlab-api-key-env")
        if name and not os.environ.get(name):
            raise CaseFailed(f"The environment variable {name} is not set.")
        endpoint = Endpoint(
            base_url=option("--qlab-base-url"),
            model=option("--qlab-model"),
            key=os.environ[name] if name else None,
        )
        return Side(name="candidate", endpoint=endpoint), Settings(samples=option("--qlab-samples"))
