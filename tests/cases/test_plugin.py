"""`pytest --qlab-cases FILE`, in a pytest of its own."""

import os
import subprocess
import sys
from pathlib import Path

from tests.cases.suite import ROOT, look, made, playing, written


def pytest_ran(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """In an empty folder, so that nothing of this suite is configured there."""
    plugin = ["-p", "quality.cases.pytest_plugin", "-p", "no:cacheprovider", "-p", "no:django", "-rA"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    command = [sys.executable, "-m", "pytest", *plugin, *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, env=environment)


def test_each_case_is_a_test(tmp_path: Path) -> None:
    written(tmp_path / "cases.jsonl", made(1), made(2, label="bad"), made(3, status="archived"))
    ran = pytest_ran(tmp_path, "--qlab-cases", "cases.jsonl")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "1 failed, 1 passed, 1 skipped" in ran.stdout
    assert "PASSED cases.jsonl::REG-1" in ran.stdout
    assert "line 2, REG-2, get_order, /label: " in ran.stdout


def test_cases_are_replayed(tmp_path: Path) -> None:
    written(tmp_path / "cases.jsonl", made(1), made(2), made(3, tags=["quarantine"]))
    (tmp_path / "test_own.py").write_text("def test_own():\n    pass\n")
    with playing(look(), look(), look("7713"), look("7713")) as play:
        options = ["--qlab-base-url", play.base_url, "--qlab-model", "m", "--qlab-samples", 2]
        ran = pytest_ran(tmp_path, "--qlab-cases", "cases.jsonl", *options, "test_own.py")
    assert "1 failed, 2 passed, 1 skipped" in ran.stdout, ran.stdout + ran.stderr
    assert "get_order was called with order_number 7713; expected 7731." in ran.stdout
    assert "Traceback" not in ran.stdout


def test_options_are_checked(tmp_path: Path) -> None:
    assert "there is no file" in pytest_ran(tmp_path, "--qlab-cases", "none.jsonl").stderr
    written(tmp_path / "cases.jsonl", made(1))
    assert "belong together" in pytest_ran(tmp_path, "--qlab-cases", "cases.jsonl", "--qlab-model", "m").stderr
    (tmp_path / "test_own.py").write_text("def test_own():\n    pass\n")
    assert "1 passed" in pytest_ran(tmp_path).stdout
