"""Messages as files in a folder, for one machine without Redis: kombu's transport, with messages that appear whole.

Kombu creates the file and then writes it; a worker that looks in between takes an empty message and ends with an error.
Here the file is written under another name first.
"""

import os
import uuid
from pathlib import Path
from time import monotonic
from typing import Any

from kombu.exceptions import ChannelError
from kombu.transport import TRANSPORT_ALIASES, filesystem
from kombu.utils.json import dumps

SCHEME = "files"
TRANSPORT_ALIASES[SCHEME] = f"{__name__}:Transport"


class Channel(filesystem.Channel):
    """A channel whose messages are there whole or not at all."""

    def _put(self, queue: str, payload: Any, **_: Any) -> None:  # type: ignore[override]  # as kombu calls it
        name = f"{round(monotonic() * 1000)}_{uuid.uuid4()}"  # readers sort by it, and go by what follows the dot
        folder = Path(self.data_folder_out)
        unfinished = folder / f"{name}.unfinished"
        try:
            unfinished.write_text(dumps(payload))
            os.replace(unfinished, folder / f"{name}.{queue}.msg")
        except OSError as error:
            unfinished.unlink(missing_ok=True)
            raise ChannelError(f"Cannot add a message to {folder}") from error


class Transport(filesystem.Transport):
    Channel = Channel
