"""Reading a body up to a cap, on the wire and after decompression, in constant memory."""

import zlib
from collections.abc import AsyncIterable

from engine.net.codes import Code, Refused

_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
_RAW_DEFLATE = -zlib.MAX_WBITS


async def read_body(chunks: AsyncIterable[bytes], encoding: str, max_bytes: int) -> bytes:
    """The body, decompressed if its encoding is gzip or deflate; other encodings are kept as they came.

    Raises `Refused` as soon as either form outgrows `max_bytes`.
    """
    decode = _Inflater(max_bytes) if encoding in ("gzip", "x-gzip", "deflate") else None
    body, on_wire = bytearray(), 0
    async for chunk in chunks:
        on_wire += len(chunk)
        body += decode(chunk, len(body)) if decode else chunk
        if on_wire > max_bytes or len(body) > max_bytes:
            raise Refused(Code.TOO_LARGE, f"the answer is larger than {max_bytes} bytes")
    return bytes(body)


class _Inflater:
    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._inflate = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._begun = False

    def __call__(self, chunk: bytes, so_far: int) -> bytes:
        room = self._max_bytes - so_far + 1  # one byte too many tells "full" from "more to come"
        try:
            data = self._decompress(chunk, room)
        except zlib.error as exc:
            raise Refused(Code.PROTOCOL_ERROR, "the answer is not compressed as it says") from exc
        self._begun = True
        return data

    def _decompress(self, chunk: bytes, room: int) -> bytes:
        try:
            return self._inflate.decompress(chunk, room)
        except zlib.error:
            if self._begun:
                raise
            # Some servers mean bare deflate when they say "deflate".
            self._inflate = zlib.decompressobj(_RAW_DEFLATE)
            return self._inflate.decompress(chunk, room)
