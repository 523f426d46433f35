"""Places where a crash test kills or stops a worker: `CRASH_AT=call_begun` (or `stop:call_begun`), test builds only.

`CRASH_AT=@path` reads that from a file at each step, so that one worker meets many faults. Without `TEST_BUILD=1` in
the environment nothing here ever happens.
"""

import os
import signal
import threading
from pathlib import Path

STEPS = (
    "claiming",  # in the middle of the claim's transaction, with its locks in hand
    "claimed",  # the claim is committed, nothing was read yet
    "loaded",  # rows read, the model not asked yet
    "reply_came",  # the model answered, the reply is not written down
    "writing",  # in the middle of the transaction that writes the reply down
    "reply_kept",  # the reply is written down, no call began
    "call_begun",  # calls are written down as running, none was sent
    "call_ran",  # a tool ran, its outcome is not written down
    "call_kept",  # its outcome is written down
    "ending",  # all is done, the end is not written down
    "ended",  # the end is written down
)

_wanted = os.environ.get("CRASH_AT", "") if os.environ.get("TEST_BUILD") == "1" else ""


def may_strike(step: str) -> None:
    """Kill this process, or stop it, if the test wants it here."""
    if not _wanted:
        return
    assert step in STEPS, step
    wanted = Path(_wanted[1:]).read_text() if _wanted.startswith("@") else _wanted
    if wanted == step:
        os.kill(os.getpid(), signal.SIGKILL)
    if wanted == f"stop:{step}":
        # To this very thread: sent to the process, the signal may reach it when it is some steps further on.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
