"""PostgreSQL refuses to run as root. As root we run it as an account without rights, in a folder which that can reach.

No mode of an existing folder is ever changed: a place is taken only if the account gets there already.
"""

import os
import pwd
import secrets
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from launch.errors import LaunchError

KEEPING_PLACES = (Path("/var/lib"), Path("/var/db"), Path("/var/tmp"))  # noqa: S108  (each is made 0700 and its own)


class AsUser(TypedDict, total=False):
    """The arguments of subprocess.Popen that give up root."""

    user: int
    group: int
    extra_groups: list[int]


@dataclass(frozen=True)
class Account:
    name: str
    uid: int
    gid: int


def running_as(account: Account | None) -> AsUser:
    """How to start a process as `account`; as ourselves when it is None."""
    return {"user": account.uid, "group": account.gid, "extra_groups": []} if account else {}


def service_account() -> Account | None:
    """The account to run the database as, or None when we are not root and run it ourselves."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name: entry for entry in pwd.getpwall() if entry.pw_uid != 0}
    entry = known.get("nobody") or next(iter(known.values()), None)
    if entry is None:
        raise LaunchError(
            "PostgreSQL does not run as root and there is no other account on this machine. "
            "Make one (useradd --system qlab), start as an ordinary user, or set DATABASE_URL."
        )
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def can_reach(folder: Path, account: Account) -> bool:
    """May `account` pass through `folder` and all of its parents?"""
    for step in (folder, *folder.parents):
        status = step.stat()
        bit = 0o100 if status.st_uid == account.uid else 0o010 if status.st_gid == account.gid else 0o001
        if not status.st_mode & bit:
            return False
    return True


def own_folder(account: Account, places: Sequence[Path]) -> Path:
    """A new folder of mode 0700 that belongs to `account`, in the first of `places` where that is possible."""
    for place in places:
        if not place.is_dir() or not os.access(place, os.W_OK) or not can_reach(place.resolve(), account):
            continue
        folder = place.resolve() / f"quality-lab-{secrets.token_hex(4)}"
        folder.mkdir(mode=0o700)
        os.chown(folder, account.uid, account.gid)
        return folder
    raise LaunchError(
        f"None of {', '.join(map(str, places))} is a folder in which account {account.name} could keep a database. "
        "Start as an ordinary user, or set DATABASE_URL."
    )


def kept_folder(account: Account, pointer: Path) -> Path:
    """The folder of `account` that the file `pointer` names; made, and written down there, when there is none."""
    if pointer.exists() and (folder := Path(pointer.read_text().strip())).is_dir():
        return folder
    folder = own_folder(account, KEEPING_PLACES)
    pointer.write_text(f"{folder}\n")
    return folder


def passing_folder(account: Account | None) -> Path:
    """A temporary folder, for the caller to remove."""
    if account is None:
        return Path(tempfile.mkdtemp(prefix="quality-lab-"))
    return own_folder(account, (Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")))  # noqa: S108


def copy_for(account: Account, source: Path, target: Path, ignore: Sequence[str] = ()) -> None:
    """Copy a tree so that `account` can read it. Half a copy never has the final name."""
    draft = target.with_name(f"{target.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(source, draft, symlinks=True, ignore=shutil.ignore_patterns(*ignore))
    for folder, _, files in os.walk(draft):
        for path in (Path(folder), *(Path(folder) / name for name in files)):
            os.chown(path, account.uid, account.gid, follow_symlinks=False)
    draft.rename(target)
