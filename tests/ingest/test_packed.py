"""Files as gzip and zip: what is in them is read, what cannot be is named, bombs stop early."""

import gzip
import io
import json
import random
import struct
import tracemalloc
import zipfile
from collections.abc import Callable

import pytest

from quality.ingest import compressed, packed
from quality.ingest.files import TraceFile
from quality.ingest.items import Parsed
from quality.ingest.reader import ItemError, Unreadable
from tests.ingest.helpers import NEUTRAL, lines

MEGABYTE = 1024 * 1024


def records(count: int, first: int = 0) -> bytes:
    return lines(*({**NEUTRAL, "external_id": f"run-{n}"} for n in range(first, first + count)))


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def read(data: bytes, max_bytes: int = 512 * MEGABYTE) -> tuple[list[str], list[ItemError]]:
    """External ids that came out, and what was refused."""
    traces = TraceFile(io.BytesIO(data), max_bytes=max_bytes)
    found = list(traces)
    ids = [turn.calls[0].external_id for item in found if isinstance(item, Parsed) for turn in item.turns]
    return ids, [traces.named(item) for item in found if isinstance(item, ItemError)]


def ids(count: int, first: int = 0) -> list[str]:
    return [f"run-{n}" for n in range(first, first + count)]


def test_gzip_of_lines_or_an_array_reads_like_the_file_itself() -> None:
    array = b"[" + records(5).replace(b"\n", b",\n") + b"]"
    for data in (records(5), array, records(5) + b"\n{"):
        assert read(gzip.compress(data)) == read(data)
    assert read(gzip.compress(records(2)) + gzip.compress(b"\n" + records(3, 2)))[0] == ids(5)


def test_every_file_of_an_archive_is_read_and_refusals_name_theirs() -> None:
    data = zipped(
        {
            "a.jsonl": records(2),
            "deep/er/": b"",
            "deep/er/b.json": b"[" + records(1, 2) + b"]",
            "deep/c.jsonl.gz": gzip.compress(records(2, 3) + b'\n{"tool_name": "t", "cycle": -1}'),
            "../../etc/passwd": records(1, 5),
            "readme.txt": b"These are logs.",
            "empty.json": b"",
            "__MACOSX/._a.jsonl": b"\0\1",
            ".DS_Store": b"\0",
            "inner.zip": zipped({"x.json": records(1)}),
        }
    )
    found, refused = read(data)
    assert sorted(found) == ids(6)
    told = {issue.message.partition(": ")[0]: issue for issue in refused}
    assert list(told) == ["deep/c.jsonl.gz", "readme.txt", "empty.json", "inner.zip"]
    assert (told["deep/c.jsonl.gz"].line, told["deep/c.jsonl.gz"].path) == (3, "cycle")
    assert "Expected a JSON object" in told["readme.txt"].message
    assert "Unpack it first" in told["inner.zip"].message
    indexes = [issue.index for issue in refused]
    assert indexes == sorted(set(indexes))
    assert indexes[-1] == len(found) + len(refused) - 1


def test_members_that_cannot_be_read_are_named_and_the_others_read() -> None:
    data = bytearray(zipped({"secret.json": records(1), "b.json": records(1)}))
    entry = data.index(b"PK\x01\x02")
    data[entry + 8] |= 1  # encrypted, the directory says
    other = zipped({"lzma.json": records(1)}, zipfile.ZIP_LZMA)
    found, refused = read(bytes(data))
    assert (found, refused[0].code) == (["run-0"], "encrypted")
    assert refused[0].message.startswith("secret.json: It is encrypted.")
    found, refused = read(other)
    assert (found, refused[0].code) == ([], "unsupported_compression")
    assert "lzma" in refused[0].message


def test_a_damaged_member_costs_no_other() -> None:
    good = zipped({"a.json": records(50), "b.json": records(1, 50)}, zipfile.ZIP_STORED)
    place = good.index(b"run-7")
    found, refused = read(good[:place] + b"ruin!" + good[place + 5 :])
    assert "run-50" in found
    assert [(issue.code, issue.message.partition(":")[0]) for issue in refused] == [("malformed_zip", "a.json")]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (zipped({"a.json": records(9)})[:-30], "damaged or cut off"),
        (zipped({}), "no file in the archive"),
        (zipped({"only/": b""}), "no file in the archive"),
        (gzip.compress(records(9))[:-9], "ends too early"),
        (b"\x1f\x8b" + b"x" * 100, "not gzip, or damaged"),
        (gzip.compress(gzip.compress(records(1))), "Unpack it first"),
    ],
)
def test_what_is_damaged_as_a_whole_says_so(data: bytes, words: str) -> None:
    with pytest.raises(Unreadable, match=words):
        read(data)


def test_what_came_before_the_end_of_a_cut_gzip_is_read() -> None:
    whole = records(20_000)
    traces = TraceFile(io.BytesIO(gzip.compress(whole)[:-2_000]), max_bytes=512 * MEGABYTE)
    found: list[Parsed | ItemError] = []
    with pytest.raises(Unreadable, match="ends too early"):
        _collect(traces, found)
    assert len(found) > 1_000
    chats = b"\n".join(
        json.dumps({"request": {"messages": [{"role": "user", "content": str(n)}]}, "response": {"choices": [
            {"message": {"role": "assistant", "content": "x" * 50}}]}}).encode() for n in range(5_000)
    )  # fmt: skip
    found.clear()
    traces = TraceFile(io.BytesIO(gzip.compress(chats)[:-500]), max_bytes=512 * MEGABYTE)
    with pytest.raises(Unreadable, match="ends too early"):
        _collect(traces, found)
    assert len(found) > 1_000


def _collect(traces: TraceFile, found: list[Parsed | ItemError]) -> None:
    for item in traces:
        found.append(item)


def bomb(size: int) -> bytes:
    """An array that goes on and on before its first item."""
    return b"[" + b" " * size + b"]"


@pytest.mark.parametrize("pack", [gzip.compress, lambda data: zipped({"bomb.json": data})])
def test_a_bomb_stops_early_and_is_named(pack: Callable[[bytes], bytes]) -> None:
    data = pack(bomb(400 * MEGABYTE))
    tracemalloc.start()
    with pytest.raises(packed.TooMuch, match="more than 250 times its size"):
        read(data)
    assert tracemalloc.get_traced_memory()[1] < 64 * MEGABYTE
    tracemalloc.stop()


def test_many_members_of_the_same_bomb_are_one_bomb() -> None:
    data = zipped({f"{number}.json": bomb(8 * MEGABYTE) for number in range(8)})
    with pytest.raises(packed.TooMuch, match="times its size"):
        read(data)


def test_gzip_members_of_nothing_are_counted_over_the_whole_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    """They cost time, and nothing comes out that another bound would see."""
    monkeypatch.setattr(compressed, "MAX_GZIP_MEMBERS", 50)
    some = gzip.compress(records(1)) + gzip.compress(b"") * 30
    assert read(some)[0] == ids(1)
    with pytest.raises(Unreadable, match="more than 50 gzip members"):
        read(some * 2)
    _, refused = read(zipped({f"{n}.json.gz": some for n in range(3)}))
    assert [issue.message.partition(":")[0] for issue in refused if issue.code == "too_many_members"] == [
        "1.json.gz",
        "2.json.gz",
    ]


def test_what_an_archive_makes_of_gzip_counts_even_if_nothing_comes_out_of_that() -> None:
    blocks_of_nothing = gzip.compress(b"")[:10] + b"\0\0\0\xff\xff" * 4 * MEGABYTE
    with pytest.raises(packed.TooMuch, match="250 times its size"):
        read(zipped({"a.gz": blocks_of_nothing}))


def test_what_unpacks_to_more_than_is_taken_stops_there() -> None:
    chance = random.Random(1)
    noise = lines(*({**NEUTRAL, "external_id": f"{n}", "result": chance.randbytes(10_000).hex()} for n in range(300)))
    with pytest.raises(packed.TooMuch, match="more than 4 MiB"):
        read(gzip.compress(noise, 1), max_bytes=MEGABYTE)


def test_an_archive_of_too_many_files_is_refused_before_one_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "MAX_MEMBERS", 3)
    with pytest.raises(packed.TooMuch, match="holds 4 files; at most 3"):
        read(zipped({f"{n}.json": records(1) for n in range(4)}))
    monkeypatch.setattr(packed, "MAX_DIRECTORY_BYTES", 8 * 1024)
    with pytest.raises(packed.TooMuch, match="too many files"):
        read(zipped({f"{n}.json": b"" for n in range(1_000)}))


def test_members_that_overlap_are_refused() -> None:
    """One stream of bytes under many names, as bombs do it."""
    single = zipped({"a.json": records(100)})
    entry, end = single.index(b"PK\x01\x02"), single.index(b"PK\x05\x06")
    size = struct.pack("<HHII", 5, 5, 5 * (end - entry), entry)
    data = single[:entry] + 5 * single[entry:end] + single[end : end + 8] + size + b"\0\0"
    found, refused = read(data)
    assert len(found) == 100
    assert {issue.code for issue in refused} == {"malformed_zip"}


def test_nonsense_is_an_answer() -> None:
    """Flipped bits anywhere in an archive: an answer, never an exception of another kind."""
    good = zipped({"a.json": records(3), "b/c.json": records(2, 3)})
    for place in range(0, len(good), 3):
        for bit in (0x01, 0x80):
            data = bytearray(good)
            data[place] ^= bit
            try:
                read(bytes(data))
            except Unreadable:
                continue
