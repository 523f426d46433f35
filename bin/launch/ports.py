"""Free and taken ports."""

import errno
import socket

from launch.errors import LaunchError

DEFAULT_PORT = 8787
NUM_PORTS_TRIED = 50
NOT_OURS = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_free(host: str, port: int) -> bool:
    """Could a server listen on `host:port`? Raises LaunchError when `host` is no address of this machine."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise LaunchError(f"HOST={host}: {error.strerror}. Give an address of this machine, or 0.0.0.0.") from error
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the web server does: TIME_WAIT is no occupant
        try:
            probe.bind(address)
        except OSError as error:
            if isinstance(error, PermissionError):
                raise LaunchError(f"PORT={port}: only root may listen there. Choose one above 1023.") from error
            if error.errno in NOT_OURS:
                raise LaunchError(f"HOST={host} is no address of this machine. Try 127.0.0.1 or 0.0.0.0.") from error
            return False
    return True


def choose_port(host: str, wanted: int | None) -> int:
    """The port asked for, which must be free; with none asked for, the default or the next free one."""
    if wanted is not None:
        if not is_free(host, wanted):
            raise LaunchError(f"Port {wanted} of {host} is taken. Choose another: make run PORT={wanted + 1}")
        return wanted
    for port in range(DEFAULT_PORT, DEFAULT_PORT + NUM_PORTS_TRIED):
        if is_free(host, port):
            return port
    raise LaunchError(
        f"Ports {DEFAULT_PORT} to {DEFAULT_PORT + NUM_PORTS_TRIED - 1} are all taken. Choose one: make run PORT=…"
    )
