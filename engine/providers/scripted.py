"""A chat server that follows a script: OpenAI's protocol on loopback, for tests, benchmarks and the demo.

    python -m engine.providers.scripted --port 18100

Which behaviour answers a request: the header `X-Script`, else the next of the script handed in, else the model's name,
else the rule-based chooser. A list (`one_call,plain_text`) is followed reply by reply within a turn, its last name
stays. `X-Delay` holds an answer back by so many seconds. `GET /asked` tells what was asked. For loopback only.
"""

import argparse
import asyncio
import json
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from engine.providers.behaviours import BEHAVIOURS, Ask, Behaviour, saying
from engine.providers.wire import Completion

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 16 * 1024 * 1024
REMEMBERED = 1000


class ClientGone(Exception):
    """The client hung up, or sent what is no HTTP request: nobody is there to answer."""


class Reader(asyncio.StreamReader):
    """A reader that tells when the client hangs up, even while nobody reads."""

    def __init__(self) -> None:
        super().__init__(limit=MAX_HEAD_BYTES)
        self.hung_up = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.hung_up.set()

    def set_exception(self, exc: BaseException) -> None:
        super().set_exception(exc)  # type: ignore[arg-type]  # asyncio hands in what the transport gives it
        self.hung_up.set()


class HTTPLine:
    """One answer over one HTTP/1.1 connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.is_cut = False

    async def whole(
        self, status: int, body: Any, headers: Mapping[str, str] | None = None, content_type: str = "application/json"
    ) -> None:
        payload = (body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)).encode()
        self._head(status, {"Content-Type": content_type, "Content-Length": str(len(payload)), **(headers or {})})
        self._writer.write(payload)
        await self._writer.drain()

    async def begin(self) -> None:
        self._head(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
        await self._writer.drain()

    async def write(self, text: str) -> None:
        for payload in [text.encode()] if len(text) != 1 else [bytes([byte]) for byte in text.encode()]:
            self._writer.write(b"%x\r\n%b\r\n" % (len(payload), payload))
        await self._writer.drain()

    async def end(self) -> None:
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    def cut(self) -> None:
        self.is_cut = True

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
        self._writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())


class ScriptedServer:
    """`async with ScriptedServer(["one_call", Completion("Fine.")]) as server:` serves at `server.base_url`.

    Each request takes the next of the script; `server.asked` remembers the requests, oldest first.
    """

    def __init__(
        self, script: Iterable[str | Completion | Behaviour] = (), *, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        self.asked: deque[Ask] = deque(maxlen=REMEMBERED)
        self.num_open = 0  # connections: a test sees here that a cancelled turn closed its own
        self._script = deque(script)
        self._host, self._port = host, port
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def base_url(self) -> str:
        return f"http://{self._host}:{self._port}/v1"

    async def start(self) -> None:
        self._server = await asyncio.get_running_loop().create_server(
            lambda: asyncio.StreamReaderProtocol(Reader(), self._serve), self._host, self._port
        )
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self.num_open += 1
        try:
            while await self._answer(reader, writer):
                pass
        except (ClientGone, ConnectionError, asyncio.CancelledError):
            pass  # the client left or the server stops: either way this connection is over
        finally:
            self._connections.discard(task)
            self.num_open -= 1
            writer.transport.abort() if task.cancelling() else writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answers one request; whether the connection may carry another."""
        method, path, headers, body = await read_request(reader)
        line = HTTPLine(writer)
        if method == "POST" and path.endswith("/chat/completions"):
            ask = Ask(path, headers, json.loads(body))
            self.asked.append(ask)
            assert isinstance(reader, Reader)
            await self._run(ask, line, reader.hung_up)
        elif path.endswith("/models"):
            await line.whole(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in BEHAVIOURS]})
        elif path == "/asked":
            await line.whole(200, [{"body": ask.body} for ask in self.asked])
        else:
            await line.whole(404, {"error": {"message": f"nothing at {path}", "code": 404}})
        if line.is_cut:
            writer.transport.abort()
        return not line.is_cut and headers.get("connection", "").lower() != "close"

    async def _run(self, ask: Ask, line: HTTPLine, hung_up: asyncio.Event) -> None:
        """Runs the behaviour; a client that hangs up ends it, as an inference server stops generating."""
        behaviour, argument = self._choose(ask)

        async def behave() -> None:
            await asyncio.sleep(float(ask.headers.get("x-delay", 0)))
            await behaviour(replace(ask, argument=argument), line)

        work = asyncio.ensure_future(behave())
        gone = asyncio.ensure_future(hung_up.wait())
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise ClientGone
            await work
        finally:
            work.cancel()
            gone.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)

    def _choose(self, ask: Ask) -> tuple[Behaviour, str]:
        if named := ask.headers.get("x-script"):
            return _behaviour(named, ask)
        if self._script:
            planned = self._script.popleft()
            if isinstance(planned, Completion):
                return saying(lambda _: planned), ""
            return _behaviour(planned, ask) if isinstance(planned, str) else (planned, "")
        return _behaviour(str(ask.body.get("model", "")), ask)


def _behaviour(script: str, ask: Ask) -> tuple[Behaviour, str]:
    names = script.split(",")
    name, _, argument = names[min(ask.cycle, len(names) - 1)].strip().partition(":")
    return BEHAVIOURS.get(name, BEHAVIOURS["choose"]), argument if name in BEHAVIOURS else ""


async def read_request(reader: asyncio.StreamReader) -> tuple[str, str, dict[str, str], bytes]:
    """Method, path, headers in lower case, body; ClientGone where no whole request comes."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")
        method, path, _ = first.split(" ")
        pairs = (line.partition(":") for line in lines if line)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        length = int(headers.get("content-length", 0))
        if length > MAX_BODY_BYTES:
            raise ClientGone
        return method, path, headers, await reader.readexactly(length)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
        raise ClientGone from error


async def serve(host: str, port: int) -> None:
    async with ScriptedServer(host=host, port=port) as server:
        sys.stdout.write(f"stand-in model on {server.base_url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m engine.providers.scripted", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=18100, help="0: any free one, printed at start")
    options = parser.parse_args(arguments)
    try:
        asyncio.run(serve(options.host, options.port))
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
