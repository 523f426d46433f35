"""`make run`: everything on one machine, ended by Ctrl-C."""

import argparse
import os
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from launch.errors import LaunchError
from launch.household import Household, Step, Stopped
from launch.ports import DEFAULT_PORT, choose_port, free_port
from launch.postgres import EmbeddedPostgres
from launch.prepare import Site, base_environment, collect_static, migrate, prepare_embedded
from launch.redis import SERVERS, find_server, start_redis
from launch.state import State

DEFAULT_HOST = "127.0.0.1"
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
WEB_PATIENCE_S = 60
WORKER_STOP = ((signal.SIGTERM, 15.0), (signal.SIGQUIT, 3.0))  # Celery's "warm", then "cold" shutdown
OTHER_STOP = ((signal.SIGTERM, 8.0),)
CELERY = ("celery", "-A", "quality.celery:app")
ANY_ADDRESS = {"0.0.0.0", "::", ""}  # noqa: S104


def tell(line: str) -> None:
    print(line, flush=True)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bin/run", description="Start Quality Lab; Ctrl-C ends it.")
    parser.add_argument("--host", default=DEFAULT_HOST, help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, help="port to listen on (default: 8787, or the next free one)")
    options = parser.parse_args(arguments)
    root = Path(__file__).resolve().parents[2]
    try:
        state = State(Path(os.environ.get("STATE_DIR") or root / ".state"))
        with state.lock(), Household(tell) as household:
            try:
                serve(root, state, household, options.host, options.port)
            except Stopped:
                tell("Stopping")
    except LaunchError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def serve(root: Path, state: State, household: Household, host: str, wanted_port: int | None) -> None:
    """Start all in order, tell the address, and stay."""
    begun = time.monotonic()
    port = choose_port(host, wanted_port)
    env = base_environment(state)
    if host not in LOOPBACK:
        env.setdefault("ALLOWED_HOSTS", ",".join((*LOOPBACK, *names_of(host))))
    elif not env.get("DATABASE_URL") and not env.get("SECURE"):
        env.setdefault("DEMO_ON_LOOPBACK", "true")  # one may try /ws before one has a token
    address = f"http://{bracketed(names_of(host)[-1])}:{port}"
    env.setdefault("PUBLIC_URL", address)
    site = Site(root, state, env)
    static = collect_static(site, household)
    env |= database(site, household)
    env |= broker(site, household)
    model_url = stand_in_model(site, household)
    steps = [
        site.manage(household, "demo_model", f"--base-url={model_url}"),
        site.manage(household, "new_deployment"),
    ]
    if static:
        static.output()
    start_services(site, household, first_services(host, port))
    link = site.manage(household, "signin_link")
    for step in steps:
        step.output()
    health = f"http://{'127.0.0.1' if host in ANY_ADDRESS else bracketed(host)}:{port}/healthz"
    household.wait_for(lambda: answers(health), WEB_PATIENCE_S, f"{health} did not answer")
    start_services(site, household, later_services(site))
    announce(site, address, link)
    if wanted_port is None and port != DEFAULT_PORT:
        tell(f"Port {DEFAULT_PORT} was taken, so this is {port}.")
    tell(f"Ready in {time.monotonic() - begun:.1f} s. Ctrl-C stops everything.")
    household.watch()


def database(site: Site, household: Household) -> dict[str, str]:
    """The database named by DATABASE_URL, or our own server; ready to serve."""
    if site.env.get("DATABASE_URL"):
        tell("Using the database of DATABASE_URL")
        if site.env.get("DATABASE_OWNER_URL"):
            migrate(site, household, {})
        return {}
    tell("Starting PostgreSQL")
    server = EmbeddedPostgres.kept(site.state)
    household.at_end(server.stop)
    admin_url, child = server.start()
    household.heed(child)
    return prepare_embedded(site, household, server, admin_url)


def broker(site: Site, household: Household) -> dict[str, str]:
    """Celery's broker: REDIS_URL, a server found on PATH, or (with no variable) files in the state folder."""
    if site.env.get("REDIS_URL"):
        return {}
    program = find_server()
    if program is None:
        tell(f"No {' or '.join(SERVERS)} on PATH: jobs travel through files, which is fine on one machine")
        return {}
    tell(f"Starting {Path(program).name}")
    child, url = start_redis(program, site.state.new_log("redis"))
    household.adopt(child)
    return {"REDIS_URL": url}


def stand_in_model(site: Site, household: Household) -> str:
    """Rules that play a model, so that the demo runs turns with no key; gives its base URL. The outbound guard is told
    to let tenants reach it, and nothing else that is inside."""
    port = free_port()
    command = [sys.executable, "-m", "engine.providers.scripted", f"--port={port}"]
    household.start("model", command, log=site.state.new_log("model"), env=site.env, cwd=site.root)
    for name, value in {"OUTBOUND_ALLOW_CIDRS": "127.0.0.1/32", "OUTBOUND_ALLOW_PORTS": str(port)}.items():
        site.env[name] = ",".join(filter(None, (site.env.get(name), value)))
    return f"http://127.0.0.1:{port}/v1"


def start_services(site: Site, household: Household, services: Mapping[str, Sequence[str]]) -> None:
    """In this order; they end in the other one."""
    for name, command in services.items():
        household.start(
            name,
            [sys.executable, "-m", *command],
            log=site.state.new_log(name),
            env=site.env,
            cwd=site.root,
            stop_signals=WORKER_STOP if "worker" in command else OTHER_STOP,
        )


def first_services(host: str, port: int) -> dict[str, Sequence[str]]:
    """What a person who opens the first page needs."""
    web = ("--interface=asginl", f"--host={host}", f"--port={port}", "--workers=1", "--no-access-log")
    return {
        "turns": worker("turns", num_threads=2),
        "web": ("granian", *web, "--workers-kill-timeout=5", "quality.asgi:application"),
    }


def later_services(site: Site) -> dict[str, Sequence[str]]:
    """What may begin a moment later: an import waits, and keeps no turn waiting."""
    schedule = f"--schedule={site.state.folder / 'beat-schedule'}"
    return {
        "jobs": worker("celery", num_threads=4),
        "beat": (*CELERY, "beat", "--loglevel=INFO", schedule),
    }


def worker(queue: str, *, num_threads: int) -> Sequence[str]:
    """One Celery worker. Workers do not talk to each other: what they share is in the rows."""
    alone = ("--without-mingle", "--without-gossip", "--without-heartbeat", f"--hostname={queue}@%h")
    threads = ("--pool=threads", f"--concurrency={num_threads}")
    return (*CELERY, "worker", f"--queues={queue}", "--loglevel=INFO", *threads, *alone)


def announce(site: Site, address: str, link: Step) -> None:
    """Tell where to go. Only a database of one's own may lack the demo's admin."""
    try:
        path = next(line for line in link.output().splitlines() if line.startswith("/"))
        way_in = f"{address}{path}   (works once)"
    except LaunchError:
        if "DATABASE_OWNER_URL" in site.env and "DATABASE_URL" not in os.environ:
            raise
        way_in = f"{address}/ with your account; `manage.py signin_link --email …` prints a link that works once"
    tell(f"\n  Quality Lab  {address}\n  Sign in      {way_in}\n  Logs         {site.state.logs}\n")


def answers(url: str) -> bool:
    """Does the web process say that it is well?"""
    try:
        with urllib.request.urlopen(url, timeout=2) as response:  # noqa: S310  (our own address)
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def names_of(host: str) -> list[str]:
    """What a browser may call this machine when we listen on `host`; the last one is good to print."""
    if host not in ANY_ADDRESS:
        return [host]
    names = [socket.gethostname(), socket.getfqdn()]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: it asks the routing table which address would be ours
            names.append(str(probe.getsockname()[0]))
        except OSError:
            names.append("127.0.0.1")
    return list(dict.fromkeys(names))


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
