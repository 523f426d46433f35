"""The judge runs where there is no framework and no service."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(path.stem for path in (ROOT / "quality" / "cases").glob("*.py") if path.stem != "__init__")
ALLOWED = {"engine", "quality", "jsonschema", "re2", "referencing"} | set(sys.stdlib_module_names)

SCRIPT = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(f"quality.cases.{name}")
loaded = {name.partition(".")[0] for name in sys.modules}
unwanted = loaded & {"django", "celery", "rest_framework", "psycopg", "redis", "tenants", "msgspec", "scipy"}
ours = {name for name in sys.modules if name.startswith("quality.") and not name.startswith("quality.cases")}
sys.exit(f"loaded: {sorted(unwanted | ours)}" if unwanted | ours else 0)
"""


def test_no_framework_is_loaded() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, *MODULES], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr


def test_the_package_itself_is_empty() -> None:
    assert (ROOT / "quality" / "__init__.py").read_text() == ""


@pytest.mark.parametrize("module", MODULES)
def test_only_the_engine_is_imported(module: str) -> None:
    tree = ast.parse((ROOT / "quality" / "cases" / f"{module}.py").read_text())
    for node in ast.walk(tree):
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            allowed = ALLOWED | {"pytest"} if module == "pytest_plugin" else ALLOWED
            assert name.partition(".")[0] in allowed
            assert not name.startswith("quality") or name.startswith("quality.cases")
