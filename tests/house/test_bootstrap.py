"""bin/bootstrap takes a Python or a uv for working only after it has run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"
# Where a CI service unpacks Python, the interpreter finds its own library by this variable alone.
LIBRARIES = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH") if name in os.environ}
TOOLS = ("sh", "sed", "sort", "tr", "head", "tail", "dirname", "mkdir", "rm", "cat", "env", "touch")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A checkout with no .venv."""
    folder = tmp_path / "clone"
    (folder / "bin").mkdir(parents=True)
    shutil.copy(ROOT / "bin/bootstrap", folder / "bin")
    return folder


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A PATH folder with the usual tools, and neither Python nor uv."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name in TOOLS:
        (folder / name).symlink_to(str(shutil.which(name)))
    return folder


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def interpreter(path: Path) -> Path:
    """This Python under another name; it tells its real path, as every interpreter does."""
    return program(path, f'exec "{sys.executable}" "$@"')


def shown(clone: Path, *path: Path, **variables: str) -> dict[str, str]:
    done = subprocess.run(
        ["/bin/sh", "bin/bootstrap", "--show"],
        cwd=clone,
        env={"PATH": os.pathsep.join(map(str, path)), "HOME": "/nonexistent", **LIBRARIES, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


def test_a_shim_that_does_not_run_is_passed_over(clone, tools, tmp_path):
    shims = tmp_path / "shims"
    for name in ("python3.13", "python3.12", "python3.14", "python3", "uv"):
        program(shims / name, 'echo "pyenv: command not found" >&2; exit 127')
    good = interpreter(tmp_path / "good" / f"python{MINOR}")
    assert shown(clone, shims, good.parent, tools)["uv"] == "none yet"
    assert shown(clone, good.parent, shims, tools)["python"] == sys.executable


def test_pyenv_is_found_from_its_shims_when_home_is_empty(clone, tools, tmp_path):
    pyenv = tmp_path / "pyenv"
    program(pyenv / "shims/python3", "exit 127")
    program(pyenv / "versions" / f"{MINOR}.99" / "bin/python", "exit 1")  # newest, and broken
    interpreter(pyenv / "versions" / f"{MINOR}.9" / "bin/python")
    assert shown(clone, pyenv / "shims", tools)["python"] == sys.executable


@pytest.mark.parametrize("variable", ["PYENV_ROOT", "HOME"])
def test_pyenv_is_found_from_the_environment(clone, tools, tmp_path, variable):
    root = tmp_path if variable == "PYENV_ROOT" else tmp_path / ".pyenv"
    interpreter(root / "versions" / f"{MINOR}.9" / "bin/python")
    assert shown(clone, tools, **{variable: str(tmp_path)})["python"] == sys.executable


def test_an_interpreter_too_old_is_left_alone_and_uv_gets_one(clone, tools, tmp_path):
    for name in ("python3", "python"):
        program(tmp_path / "old" / name, "exit 1")  # what a version outside 3.12 to 3.14 answers to the question
    assert shown(clone, tmp_path / "old", tools)["python"] == "downloaded by uv"


def test_a_uv_that_runs_is_used(clone, tools, tmp_path):
    uv = program(tmp_path / "uv-bin/uv", "echo 'uv 99.1.0 (abc)'")
    assert shown(clone, uv.parent, tools)["uv"] == "uv"


def test_a_uv_too_old_is_not_used(clone, tools, tmp_path):
    uv = program(tmp_path / "uv-bin/uv", "echo 'uv 0.4.9'")
    assert shown(clone, uv.parent, tools)["uv"] == "none yet"


def test_a_healthy_environment_keeps_its_python(clone, tools, tmp_path):
    interpreter(clone / ".venv/bin/python")
    other = program(tmp_path / "other" / "python3", "exit 3")
    assert shown(clone, other.parent, tools)["python"] == str(clone / ".venv/bin/python")


def test_the_range_of_versions_is_that_of_the_project():
    project = (ROOT / "pyproject.toml").read_text()
    assert 'requires-python = ">=3.12,<3.15"' in project
    assert 'minors="3.13 3.14 3.12"' in (ROOT / "bin/bootstrap").read_text()


def test_no_python_version_file_is_kept():
    """It would break pyenv's shims, uv's own among them."""
    assert not (ROOT / ".python-version").exists()
