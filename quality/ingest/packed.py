"""Files as they are packed: plain, gzip, or a zip of many; unpacked step by step, and never to a path.

Bounds hold for the whole file: what comes out of it, what comes out per byte that went in (bombs are stopped within a
few blocks), and how many members it has. Names of members are words for people.
"""

import errno
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO

from quality.ingest.compressed import GZIP_SIGNATURE, gunzip, gzip_members
from quality.ingest.reader import CHUNK_BYTES, Unreadable

type Read = Callable[[int], bytes]

MAX_MEMBERS = 10_000
MAX_DIRECTORY_BYTES = 4 * 1024 * 1024  # a member's entry takes some 100; each is some 500 in memory
MAX_RATIO = 250  # logs reach some 50, deflate alone up to 1,032
FREE_BYTES = 16 * 1024 * 1024  # unpacked before anybody asks for the ratio

_ZIP_SIGNATURES = (b"PK\x03\x04", b"PK\x05\x06")  # the second is that of an archive without members
_LEFT_BEHIND = ("__MACOSX/", ".DS_Store", "Thumbs.db")
_FAULTS = (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error, EOFError, OverflowError, RuntimeError)


class TooMuch(Unreadable):
    """More than is taken of one file: nothing further of it is read."""


@dataclass(frozen=True, slots=True)
class Part:
    """What reads as one file; `name` is a member's, and empty where the file is no archive."""

    name: str
    read: Read


@dataclass(frozen=True, slots=True)
class RefusedPart:
    """A member that is not read, and why."""

    name: str
    code: str
    message: str


class Packed:
    """Iterate for the parts of a file, in its order, each to be read before the next; raises Unreadable. `bytes_read`
    counts bytes of the file itself."""

    def __init__(self, file: IO[bytes], *, max_unpacked: int) -> None:
        self._file = _Counted(file)
        self._max_unpacked = max_unpacked
        self._unpacked = 0
        self._gzip_members = gzip_members()
        self.is_packed = False

    @property
    def bytes_read(self) -> int:
        return self._file.bytes_read

    def __iter__(self) -> Iterator[Part | RefusedPart]:
        head = self._file.read(4)
        self.is_packed = head in _ZIP_SIGNATURES or head.startswith(GZIP_SIGNATURE)
        if head in _ZIP_SIGNATURES:
            yield from self._members()
        elif self.is_packed:
            yield Part("", self._metered(gunzip(_after(head, self._file.read), self._gzip_members)))
        else:
            yield Part("", _after(head, self._file.read))

    def _members(self) -> Iterator[Part | RefusedPart]:
        try:
            if not self._file.seekable():
                raise Unreadable("malformed_zip", "A zip archive cannot be read from a pipe. Name a file.")
            archive = zipfile.ZipFile(self._file)
        except _FAULTS as error:
            if self._file.was_asked_too_much:
                raise _too_many("too many files") from error
            raise Unreadable("malformed_zip", "The archive is damaged or cut off. Pack it again.") from error
        with archive:
            wanted = [info for info in archive.infolist() if not info.is_dir() and not _is_left_behind(info.filename)]
            if not wanted:
                raise Unreadable("malformed_zip", "There is no file in the archive.")
            if len(wanted) > MAX_MEMBERS:
                raise _too_many(f"{len(wanted):,} files")
            for info in wanted:
                yield self._member(archive, info)

    def _member(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Part | RefusedPart:
        name = "".join(character if character.isprintable() else "\ufffd" for character in info.filename)[:255]
        if info.flag_bits & 0x1:
            return RefusedPart(name, "encrypted", "It is encrypted. Pack it without a password.")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            method = zipfile.compressor_names.get(info.compress_type, info.compress_type)  # type: ignore[attr-defined]
            return RefusedPart(
                name, "unsupported_compression", f"It is compressed by {method}. Pack it with deflate, zip's own way."
            )
        if stat.S_ISLNK(info.external_attr >> 16):
            return RefusedPart(name, "not_a_file", "It is a link. Pack the file that it points at.")
        try:
            read = _told(archive.open(info).read)
            head = read(CHUNK_BYTES)
        except Unreadable as error:
            return RefusedPart(name, error.code, error.message)
        except _FAULTS:
            return RefusedPart(name, "malformed_zip", _DAMAGED)
        whole = self._metered(_after(head, read))
        is_gzip = head.startswith(GZIP_SIGNATURE)
        return Part(name, self._metered(gunzip(whole, self._gzip_members)) if is_gzip else whole)

    def _metered(self, read: Read) -> Read:
        def read_metered(size: int) -> bytes:
            piece = read(size)
            self._unpacked += len(piece)
            if self._unpacked > self._max_unpacked:
                limit = self._max_unpacked / (1024 * 1024)
                raise TooMuch("too_large", f"It unpacks to more than {limit:g} MiB. Split it and import the parts.")
            if self._unpacked > max(FREE_BYTES, MAX_RATIO * self.bytes_read):
                raise TooMuch(
                    "too_large",
                    f"It unpacks to more than {MAX_RATIO} times its size, as logs do not. Unpack it and import what is "
                    "in it.",
                )
            return piece

        return read_metered


_DAMAGED = "It is damaged in the archive. Pack it again."


def _told(read: Read) -> Read:
    """The same read, with faults of an archive in words."""

    def read_told(size: int) -> bytes:
        try:
            return read(size)
        except (*_FAULTS, zlib.error) as error:
            raise Unreadable("malformed_zip", _DAMAGED) from error
        except OSError as error:
            if error.errno != errno.EINVAL:  # a seek to nowhere
                raise
            raise Unreadable("malformed_zip", _DAMAGED) from error

    return read_told


def _after(head: bytes, read: Read) -> Read:
    """A read that gives `head` first."""

    def read_on(size: int) -> bytes:
        nonlocal head
        if head:
            piece, head = head[:size], head[size:]
            return piece
        return read(size)

    return read_on


def _too_many(found: str) -> TooMuch:
    return TooMuch("too_many_members", f"The archive holds {found}; at most {MAX_MEMBERS:,} are read. Split it.")


def _is_left_behind(name: str) -> bool:
    """What operating systems put beside files without being asked."""
    last = name.rpartition("/")[2]
    return name.startswith(_LEFT_BEHIND[0]) or last in _LEFT_BEHIND or last.startswith("._")


class _Counted:
    """A file that counts what was read of it, and gives no more at once than an archive's directory may take."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.bytes_read = 0
        self.was_asked_too_much = False

    def read(self, size: int = -1) -> bytes:
        """At most so many bytes; a negative size is asked for at the end of a file only."""
        self.was_asked_too_much |= size > MAX_DIRECTORY_BYTES
        piece = self._file.read(min(size, MAX_DIRECTORY_BYTES) if size >= 0 else MAX_DIRECTORY_BYTES)
        self.bytes_read += len(piece)
        return piece

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return self._file.seekable()
