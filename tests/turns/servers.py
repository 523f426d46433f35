"""A scripted model and a server that counts what tools ask of it, both on loopback in threads of their own."""

import asyncio
import contextlib
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from engine.providers.scripted import ScriptedServer
from engine.providers.wire import Completion


class _Server(ThreadingHTTPServer):
    request_queue_size = 256  # many turns call at once


class ToolServer:
    """`asked` holds method, path, idempotency key and body of each request. `hold` makes it answer only once set."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str | None, Any]] = []
        self.hold = threading.Event()
        self.hold.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                path = self.path.partition("?")[0]
                outer.asked.append((self.command, path, self.headers.get("Idempotency-Key"), json.loads(body or "{}")))
                outer.hold.wait(20)
                payload = json.dumps({"degrees": 21}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            do_GET = do_POST = _serve

            def log_message(self, *args: Any) -> None:
                """Tests look at `asked`."""

            def handle(self) -> None:
                with contextlib.suppress(ConnectionError):  # a worker was killed in the middle
                    super().handle()

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def count(self, path: str = "/notes") -> int:
        return sum(1 for asked in self.asked if asked[1] == path)

    def counts_by_key(self) -> Counter[str | None]:
        return Counter(key for _, path, key, _ in self.asked if path == "/notes")

    @contextmanager
    def running(self) -> Iterator["ToolServer"]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.hold.set()
            self._server.shutdown()
            self._server.server_close()
            thread.join()


@contextmanager
def scripted_model(*script: str | Completion) -> Iterator[ScriptedServer]:
    """The scripted server, in a loop of its own. Each request takes the next of the script."""
    loop = asyncio.new_event_loop()
    server = ScriptedServer(script)
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.start(), loop).result(5)
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(5)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
