"""The service as its users meet it: a granian process on a free port, in front of the test's own database."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
START_LIMIT_S = 120.0


@dataclass(frozen=True)
class Service:
    """A running web server. `url` has no slash at its end; `log` is where its output goes."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def memory_bytes(self) -> int:
        """Resident memory of the server's processes together."""
        return sum(_resident(pid) for pid in family(self.process.pid))


def family(pid: int) -> list[int]:
    """A process, its children and theirs."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(member for child in children for member in family(int(child)))]


def _resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _collect_static() -> None:
    """Once a run: pages name their files by content, as in production."""
    command = [sys.executable, "manage.py", "collectstatic", "--noinput", "--verbosity=0"]
    subprocess.run(command, cwd=ROOT, check=True)


def _await_answer(service: Service) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        if service.process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"{service.url}/healthz", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    pytest.fail(f"The service did not start:\n{service.log.read_text()[-4000:]}", pytrace=False)


@contextmanager
def running_service(folder: Path, *, interface: str = "asginl", workers: int = 1) -> Iterator[Service]:
    """Serve the test database until the block ends. `interface` is granian's: asginl (as `make run`) or wsgi."""
    port = _free_port()
    target = "quality.wsgi:application" if interface == "wsgi" else "quality.asgi:application"
    command = [sys.executable, "-m", "granian", f"--interface={interface}", f"--port={port}", f"--workers={workers}"]
    log = folder / f"service-{port}.log"
    with log.open("wb") as output:
        process = subprocess.Popen([*command, target], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
    service = Service(url=f"http://127.0.0.1:{port}", process=process, log=log)
    try:
        _await_answer(service)
        yield service
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def collected_static(django_db_setup: None) -> None:
    _collect_static()


@pytest.fixture(scope="session")
def live_service(
    django_db_setup: None, collected_static: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """One ASGI server for the whole run, as `make run` starts it. A test that writes data also takes `db`."""
    with running_service(tmp_path_factory.mktemp("asgi")) as service:
        yield service


@pytest.fixture(scope="session")
def live_wsgi_service(
    django_db_setup: None, collected_static: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """One WSGI server for the whole run, as production serves pages and API."""
    with running_service(tmp_path_factory.mktemp("wsgi"), interface="wsgi") as service:
        yield service
