"""Owner and mode of the local folder that a landing is written to."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Collection
from pathlib import Path

from airflow_provider_sfstream.exceptions import ConfigurationError

_REMEDY = "Choose another landing, run the worker as that user, or let the worker's user write there"
_STATE = "Nothing was read from Salesforce, and nothing was written."


def check_owner(folder: str, url: str) -> None:
    """Refuse a landing in a folder of another user who has not let this one write there.

    The folder itself is checked, or the first of its parents that exists. It may be this user's own, or one that its
    mode or an access control list lets this user write to: a shared folder of a group, a mounted volume. Root may write
    everywhere, so that for root the mode alone counts: the owner of a folder can replace what is landed in it.

    :param folder: the local path.
    :param url: of the landing, for the error.
    :raises ConfigurationError: naming the folder, its owner and the remedy.
    """
    if folder.startswith("~"):
        raise ConfigurationError(
            f"The landing {url} cannot be used: this machine has no user with the home folder "
            f"{folder.partition('/')[0]}. Choose another landing. {_STATE}"
        )
    path = Path(folder).absolute()
    for existing in (path, *path.parents):
        try:
            found = existing.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError:
            continue  # below a folder that this user may not enter, which is found next
        break
    else:
        return
    if not stat.S_ISDIR(found.st_mode) or found.st_uid == os.geteuid():
        return
    if mode_lets_write(found, os.geteuid(), {os.getegid(), *os.getgroups()}):
        return
    if os.geteuid() != 0 and _access_lets_write(existing):
        return
    raise ConfigurationError(
        f"The landing {url} cannot be used: the folder {existing} belongs to the user {_name(found.st_uid)}, and its "
        f"mode ({stat.filemode(found.st_mode)}) does not let the user {_name(os.geteuid())} write there. {_REMEDY} "
        f"(chown, or chmod g+w for a group of both). {_STATE}"
    )


def mode_lets_write(found: os.stat_result, user: int, groups: Collection[int]) -> bool:
    """Return whether the mode of a folder lets a user create files in it, whatever root may do besides."""
    if found.st_uid == user:
        needed = stat.S_IWUSR | stat.S_IXUSR
    elif found.st_gid in groups:
        needed = stat.S_IWGRP | stat.S_IXGRP
    else:
        needed = stat.S_IWOTH | stat.S_IXOTH
    return found.st_mode & needed == needed


def _access_lets_write(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids)


def _name(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name!r} ({uid})"
    except KeyError:
        return str(uid)
