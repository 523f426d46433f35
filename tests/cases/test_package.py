"""What a user gets by `pip install quality-lab`: the runner and the engine, and nothing of the web application."""

import re
import subprocess
import sys
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cases.suite import ROOT, look, made, playing, written
from tests.engine.test_alone import BY_THE_JUDGE, NEEDED, distributions

LOADED = """
import sys
from quality.cases.cli import main
code = main(sys.argv[1:])
frameworks = {"django", "celery", "rest_framework", "psycopg", "redis", "tenants", "pytest"}
loaded = sorted(frameworks & {name.partition(".")[0] for name in sys.modules})
ours = [name for name in sys.modules if name.startswith("quality.") and not name.startswith("quality.cases")]
sys.exit(f"exit {code}, loaded: {loaded + ours}")
"""
ENTRY = """
import sys
from importlib.metadata import entry_points
[command] = entry_points(group="console_scripts", name="quality-tool-regressions")
sys.exit(command.load()(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what it requires; gives its interpreter."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    with zipfile.ZipFile(wheel) as files:
        files.extractall(site)
    for distribution in distributions(NEEDED + BY_THE_JUDGE).values():
        for file in distribution.files or ():
            top = Path(file.parts[0])
            if ".." not in file.parts and not (site / top).exists():
                (site / top).symlink_to(Path(str(distribution.locate_file(top))))
    return folder / "bin" / "python"


def test_the_wheel_holds_engine_and_cases_alone(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
        metadata = files.read(next(name for name in names if name.endswith("METADATA"))).decode()
        entries = files.read(next(name for name in names if name.endswith("entry_points.txt"))).decode()
    code = {name for name in names if ".dist-info/" not in name}
    assert all(name.startswith(("engine/", "quality/cases/")) or name == "quality/__init__.py" for name in code)
    here = {str(file.relative_to(ROOT)) for room in ("engine", "quality/cases") for file in (ROOT / room).rglob("*.py")}
    assert code == here | {"quality/__init__.py"}
    required = re.findall(r"^Requires-Dist: ([A-Za-z0-9-]+)", metadata, re.MULTILINE)
    assert sorted(required) == sorted(NEEDED + BY_THE_JUDGE)
    assert "quality-tool-regressions = quality.cases.cli:main" in entries


def ran(command: Sequence[object], cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, timeout=300)


def test_the_command_works_where_nothing_else_is(installed: Path, tmp_path: Path) -> None:
    file = written(tmp_path / "cases.jsonl", made(1))
    missing = ran([installed, "-I", "-c", "import django"], tmp_path)
    assert "ModuleNotFoundError" in missing.stderr
    checked = ran([installed, "-I", "-c", ENTRY, "--file", file], tmp_path)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "All cases are valid." in checked.stdout
    with playing(look()) as play:
        command = [
            installed,
            "-I",
            "-c",
            ENTRY,
            "--file",
            file,
            "--replay",
            "--base-url",
            play.base_url,
            "--model",
            "m",
        ]
        replayed = ran([*command, "--out-junit", tmp_path / "j.xml", "--out-json", tmp_path / "r.json"], tmp_path)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert "1 of 1 passed" in replayed.stdout


def test_the_command_loads_no_framework(tmp_path: Path) -> None:
    file = written(tmp_path / "cases.jsonl", made(1))
    with playing(look()) as play:
        for more in ([], ["--replay", "--base-url", play.base_url, "--model", "m", "--out-junit", tmp_path / "j.xml"]):
            told = ran([sys.executable, "-c", LOADED, "--file", file, *more], ROOT)
            assert told.stderr.endswith("exit 0, loaded: []\n"), told.stderr
