"""Messages as files: each appears whole, whoever reads while it is written."""

import os
import threading
from pathlib import Path

import pytest
from kombu import Connection
from kombu.exceptions import ChannelError

from quality import file_broker

LONG = "x" * 200_000


def connection(folder: Path) -> Connection:
    for name in ("messages", "control"):
        (folder / name).mkdir(exist_ok=True)
    options = {
        "data_folder_in": str(folder / "messages"),
        "data_folder_out": str(folder / "messages"),
        "control_folder": str(folder / "control"),
        "polling_interval": 0.01,
    }
    return Connection(f"{file_broker.SCHEME}://", transport_options=options)


def test_what_was_sent_while_others_read_is_read_whole_and_once(tmp_path: Path) -> None:
    number, got = 300, []

    def send() -> None:
        with connection(tmp_path) as line:
            queue = line.SimpleQueue("celery")
            for at in range(number):
                queue.put({"at": at, "text": LONG})
            queue.close()

    sender = threading.Thread(target=send)
    sender.start()
    with connection(tmp_path) as line:
        queue = line.SimpleQueue("celery")
        while len(got) < number:
            message = queue.get(timeout=20)
            assert message.payload["text"] == LONG
            got.append(message.payload["at"])
            message.ack()
        queue.close()
    sender.join()
    assert sorted(got) == list(range(number))
    assert list((tmp_path / "messages").iterdir()) == []


def test_a_message_takes_its_name_only_when_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    move = os.replace

    def looked_at(source: Path, target: Path) -> None:
        seen.append((list(target.parent.glob("*.msg")), Path(source).read_text().endswith("}")))
        move(source, target)

    monkeypatch.setattr(os, "replace", looked_at)
    with connection(tmp_path) as line:
        queue = line.SimpleQueue("another")
        queue.put({"text": LONG})
        message = queue.get(timeout=5)
        assert message.payload == {"text": LONG}
        message.ack()
        queue.close()
    assert seen == [([], True)]


def test_a_folder_that_is_gone_is_a_fault_of_the_channel(tmp_path: Path) -> None:
    with connection(tmp_path) as line:
        channel = line.channel()
        (tmp_path / "messages").rmdir()
        with pytest.raises(ChannelError):
            channel._put("celery", {})
