"""Real servers on loopback, and the two things a guard can be handed: a resolver and a dialler that keep a record."""

import datetime as dt
import ipaddress
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpcore
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass
class Seen:
    """One request as the server read it."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


@dataclass
class Answer:
    status: int = 200
    body: bytes = b"ok"
    headers: Mapping[str, str] = field(default_factory=dict)
    send: Callable[[BaseHTTPRequestHandler], None] | None = None  # instead of an answer: do as you like


class Server:
    """Answers from a list in order, the last one again and again; keeps what it was asked."""

    def __init__(self, answers: Sequence[Answer] = (Answer(),), *, tls: "Authority | None" = None) -> None:
        self.seen: list[Seen] = []
        self.answers = list(answers)
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except (ConnectionError, ssl.SSLError):
                    self.close_connection = True

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                server.seen.append(Seen(self.command, self.path, list(self.headers.items()), body))
                answer = server.answers.pop(0) if len(server.answers) > 1 else server.answers[0]
                if answer.send:
                    answer.send(self)
                    return
                self.send_response(answer.status)
                for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer.body)

            def __getattr__(self, name: str) -> Callable[[], None]:
                if name.startswith("do_"):
                    return self.answer
                raise AttributeError(name)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._http = _QuietServer(("127.0.0.1", 0), Handler)
        if tls:
            self._http.socket = tls.server_context().wrap_socket(self._http.socket, server_side=True)
        self.port: int = self._http.server_address[1]
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # clients that hang up are what half of these tests are about


@contextmanager
def serving(*answers: Answer, tls: "Authority | None" = None) -> Iterator[Server]:
    server = Server(answers or (Answer(),), tls=tls)
    try:
        yield server
    finally:
        server.close()


class Authority:
    """A certificate authority that gives any name a certificate."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="test-ca-"))
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Test authority")])
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)  # signs certificates, lists
        certificate = self._certificate(
            self._name, self._key, (x509.BasicConstraints(ca=True, path_length=None), True), (usage, True)
        )
        self.ca_file = self._folder / "ca.pem"
        self.ca_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def server_context(self, always: str | None = None) -> ssl.SSLContext:
        """Presents the certificate of whatever name is asked for, or of `always`."""
        context = self._context(always or "8.8.8.8")
        if always is None:
            context.sni_callback = lambda connection, name, _context: setattr(
                connection, "context", self._context(name or "8.8.8.8")
            )
        return context

    def _context(self, name: str) -> ssl.SSLContext:
        path = self._folder / f"{name.replace(':', '_')}.pem"
        if not path.exists():
            key = ec.generate_private_key(ec.SECP256R1())
            try:
                san: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(name))
            except ValueError:
                san = x509.DNSName(name)
            subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "server")])
            certificate = self._certificate(subject, key, (x509.SubjectAlternativeName([san]), False))
            path.write_bytes(
                key.private_bytes(
                    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
                )
                + certificate.public_bytes(serialization.Encoding.PEM)
            )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context

    def _certificate(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *extensions: tuple[x509.ExtensionType, bool]
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=2))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(self._key, hashes.SHA256())


@cache
def authority() -> Authority:
    return Authority()


class FakeResolver:
    """Gives its answers in order and keeps the names it was asked for; asked once too often, it fails the test."""

    def __init__(self, *answers: Sequence[str] | Exception) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        if not self._answers:
            raise AssertionError(f"{host} was looked up, and it should not have been")
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class RecordingDialler:
    """Keeps the addresses it is told to dial, and connects to servers on loopback instead (by the port asked for)."""

    def __init__(self, ports: Mapping[int, int]) -> None:
        self._ports = ports
        self._backend = httpcore.AnyIOBackend()
        self.dialled: list[tuple[str, int]] = []

    async def connect_tcp(self, host: str, port: int, timeout: float | None = None) -> httpcore.AsyncNetworkStream:
        self.dialled.append((host, port))
        return await self._backend.connect_tcp("127.0.0.1", self._ports[port], timeout)
