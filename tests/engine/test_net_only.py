"""Nothing but the guard opens a connection to the outside."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUARD = ROOT / "engine/net"
SPEAKERS = (ROOT / "engine/providers", ROOT / "quality/gateway")  # speak httpx, with clients that the guard made

MODULES = ("requests", "aiohttp", "urllib3", "httpcore", "urllib.request", "http.client", "smtplib", "ftplib", "httpx")
CALLS = (
    "socket.create_connection",
    "socket.socket",
    "asyncio.open_connection",
    "loop.create_connection",
    "loop.sock_connect",
)
HARMLESS = (  # what a provider may take from httpx: nothing that could send by itself
    "httpx.AsyncClient",  # as a type; see CONSTRUCTED
    "httpx.Request",
    "httpx.Response",
    "httpx.Timeout",
    "httpx.URL",
    "httpx.Headers",
    "httpx.codes",
)
CONSTRUCTED = {"httpx.AsyncClient", "httpx.Client"}


def sources() -> list[Path]:
    found = [path for room in ("engine", "tenants", "quality") for path in (ROOT / room).rglob("*.py")]
    return sorted(path for path in found if GUARD not in path.parents)


def breaches(source: str, *, may_speak_httpx: bool) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        for name in _imported(node):
            if _within(name, MODULES) and not (may_speak_httpx and name == "httpx"):
                yield f"line {node.lineno}: imports {name}"  # type: ignore[attr-defined]
        if isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            is_error = name.startswith("httpx.") and name.endswith(("Error", "Exception", "Timeout"))
            if name in CALLS or (name.startswith("httpx.") and not _within(name, HARMLESS) and not is_error):
                yield f"line {node.lineno}: uses {name}"
        if isinstance(node, ast.Call) and ast.unparse(node.func) in CONSTRUCTED:
            yield f"line {node.lineno}: makes a client of its own"


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def _within(name: str, modules: tuple[str, ...]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_gets_its_connections_from_the_guard(path: Path) -> None:
    found = list(breaches(path.read_text("utf-8"), may_speak_httpx=not set(SPEAKERS).isdisjoint(path.parents)))

    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "import requests",
        "import httpx",
        "from httpx import AsyncClient",
        "import urllib.request",
        "from urllib import request",
        "from urllib.request import urlopen",
        "import socket\nsocket.create_connection(('a', 1))",
        "import asyncio\nasyncio.open_connection('a', 1)",
        "import http.client",
        "import httpcore",
    ],
)
def test_the_check_sees_each_way_out(source: str) -> None:
    assert list(breaches(source, may_speak_httpx=False))


@pytest.mark.parametrize(
    "source",
    ["import httpx\nhttpx.get('x')", "import httpx\nhttpx.AsyncClient()", "import httpx\nhttpx.AsyncHTTPTransport()"],
)
def test_a_provider_makes_no_client_of_its_own(source: str) -> None:
    assert list(breaches(source, may_speak_httpx=True))
    assert not list(breaches("import httpx\nclient: httpx.AsyncClient", may_speak_httpx=True))
