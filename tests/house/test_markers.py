"""A missing browser or Redis is told, and never passes for green in CI."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUITE = """
import pytest

@pytest.mark.{marker}
def test_needs_a_part(): pass

def test_needs_nothing(): pass
"""


def run_suite(folder: Path, marker: str, **variables: str) -> str:
    (folder / "test_parts.py").write_text(SUITE.format(marker=marker))
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    browser: x\n    redis: x\n")
    env = {k: v for k, v in os.environ.items() if k not in {"CI", "CHROMIUM", "TEST_REDIS_URL"}}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.house_markers", "-rs", "."],
        cwd=folder,
        env={**env, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


@pytest.mark.parametrize("marker", ["browser", "redis"])
def test_a_missing_part_skips_the_test_with_a_reason(tmp_path, marker):
    said = run_suite(tmp_path, marker)
    assert "1 passed, 1 skipped" in said
    assert "install" in said


@pytest.mark.parametrize("marker", ["browser", "redis"])
def test_a_missing_part_fails_in_ci(tmp_path, marker):
    said = run_suite(tmp_path, marker, CI="true")
    assert "1 passed, 1 error" in said
    assert "this machine lacks" in said


@pytest.mark.parametrize("marker", ["browser", "redis"])
def test_a_part_that_is_there_runs_the_test_in_ci(tmp_path, marker):
    said = run_suite(tmp_path, marker, CI="true", CHROMIUM="/opt/chromium", TEST_REDIS_URL="redis://127.0.0.1:1")
    assert "2 passed" in said
