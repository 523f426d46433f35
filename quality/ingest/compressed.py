"""Bodies and files that come compressed, unpacked step by step: never more than was asked for at a time."""

import zlib
from collections.abc import Callable, Iterator

from quality.ingest.reader import CHUNK_BYTES, Unreadable

GZIP_SIGNATURE = b"\x1f\x8b"
MAX_GZIP_MEMBERS = 100_000  # block-wise packers make one of 64 KiB; those of nothing cost time, and no bound sees them
_GZIP = zlib.MAX_WBITS | 16


def gzip_members() -> Iterator[int]:
    """An allowance of members, for one file or for all in an archive."""
    return iter(range(MAX_GZIP_MEMBERS))


def gunzip(read: Callable[[int], bytes], members: Iterator[int] | None = None) -> Callable[[int], bytes]:
    """A `read` of the unpacked bytes, at most as many as asked for; raises Unreadable. Several members may follow each
    other, as `cat a.gz b.gz` makes them, as long as there are some in the allowance."""
    allowed = members or gzip_members()
    unpacker = zlib.decompressobj(_GZIP)
    waiting = b""

    def read_unpacked(size: int) -> bytes:
        nonlocal unpacker, waiting
        try:
            while True:
                if unpacker.eof and (waiting := unpacker.unused_data or read(CHUNK_BYTES)):
                    if next(allowed, None) is None:
                        message = f"It is made of more than {MAX_GZIP_MEMBERS:,} gzip members. Pack it again as one."
                        raise Unreadable("too_many_members", message)
                    unpacker = zlib.decompressobj(_GZIP)
                elif not waiting and not unpacker.eof:
                    waiting = read(CHUNK_BYTES)
                    if not waiting:
                        raise Unreadable("truncated", "It is compressed with gzip, and ends too early.")
                elif unpacker.eof:
                    return b""
                unpacked = unpacker.decompress(waiting, size)
                waiting = unpacker.unconsumed_tail
                if unpacked:
                    return unpacked
        except zlib.error as error:
            raise Unreadable("malformed_gzip", "It is not gzip, or damaged.") from error

    return read_unpacked
