"""The engine is a plain library: httpx and jsonschema are all it needs."""

import importlib.metadata
import re
import subprocess
import venv
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("httpx", "jsonschema")
BY_THE_JUDGE = ("google-re2",)  # quality.cases matches patterns with it; the engine does not

EVERY_MODULE = """
import importlib, pkgutil, sys, engine
names = [module.name for module in pkgutil.walk_packages(engine.__path__, "engine.")]
for name in names:
    importlib.import_module(name)
print(len(names), sorted(name for name in ("django", "celery", "psycopg", "rest_framework") if name in sys.modules))
"""


def distributions(names: tuple[str, ...]) -> dict[str, importlib.metadata.Distribution]:
    """These and all that they need, as installed here."""
    found: dict[str, importlib.metadata.Distribution] = {}
    queue = list(names)
    while queue:
        name = re.sub(r"[-_.]+", "-", queue.pop()).lower()
        if name in found:
            continue
        found[name] = importlib.metadata.distribution(name)
        needed = [Requirement(text) for text in found[name].requires or ()]
        queue += [r.name for r in needed if r.marker is None or r.marker.evaluate({"extra": ""})]
    return found


def clean_environment(folder: Path) -> Path:
    """A virtual environment that holds what the wheel requires and nothing else; gives its interpreter."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    for distribution in distributions(NEEDED).values():
        for file in distribution.files or ():
            top = Path(file.parts[0])
            source = Path(str(distribution.locate_file(top)))
            if ".." not in file.parts and not (site / top).exists():
                (site / top).symlink_to(source)
    (site / "engine").symlink_to(ROOT / "engine")
    return folder / "bin" / "python"


def test_every_module_imports_where_there_is_no_django(tmp_path: Path) -> None:
    python = clean_environment(tmp_path / "venv")
    missing = subprocess.run([python, "-I", "-c", "import django"], capture_output=True, text=True, check=False)
    assert "ModuleNotFoundError" in missing.stderr
    ran = subprocess.run([python, "-I", "-c", EVERY_MODULE], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    count, frameworks = ran.stdout.split(" ", 1)
    assert int(count) > 40
    assert frameworks.strip() == "[]"


def test_the_wheel_requires_no_more() -> None:
    required = re.search(r"^dependencies = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.MULTILINE | re.DOTALL)
    assert required is not None
    names = tuple(re.findall(r'^\s*"([A-Za-z0-9-]+)', required[1], re.MULTILINE))
    assert names == NEEDED + BY_THE_JUDGE


def test_the_command_line_starts_there(tmp_path: Path) -> None:
    python = clean_environment(tmp_path / "venv")
    example = tmp_path / "tools.json"
    example.write_text('[{"name": "ping", "description": "Pings.", "url": "https://api.example.com/ping"}]')
    command = [python, "-I", "-m", "engine.cli", "tools", "check", str(example)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.endswith("1 valid definition\n")
