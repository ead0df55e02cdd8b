"""A landing in a folder of another user is refused before anything is read or written."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.actions.storage import open_folder
from airflow_provider_sfstream.exceptions import ConfigurationError, LandingError
from airflow_provider_sfstream.landing.location import Landing, check_owner, mode_lets_write

OTHER, GROUP, WORKER = 54_321, 54_322, 50_000

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can create folders of other users")


@pytest.fixture
def folder() -> Iterator[Callable[..., Path]]:
    """Create a folder with an owner, a group and a mode. Its parents are open to all users, unlike pytest's folders."""
    with tempfile.TemporaryDirectory() as parent:
        Path(parent).chmod(0o755)

        def make(uid: int, gid: int, mode: int) -> Path:
            path = Path(parent) / "other"
            path.mkdir()
            os.chown(path, uid, gid)
            path.chmod(mode)
            return path

        yield make


def _run(uid: int, gid: int, groups: list[int], path: str, results: Any) -> None:
    os.setgroups(groups)
    os.setgid(gid)
    os.setuid(uid)
    try:
        Landing.from_url(path).check_writable()
        results.put("written")
    except Exception as error:
        results.put(f"{type(error).__name__}: {error}")


def check_as(uid: int, path: Path, *, groups: tuple[int, ...] = ()) -> str:
    """Check a landing in a process of another user, and return the outcome."""
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    process = context.Process(target=_run, args=(uid, uid, list(groups), str(path), results))
    process.start()
    outcome = str(results.get(timeout=30))
    process.join(30)
    return outcome


@pytest.mark.parametrize("below", ["", "lake", "lake/of/salesforce"])
@pytest.mark.parametrize("mode", [0o700, 0o755, 0o750, 0o575])
def test_root_is_refused_a_folder_of_another_user(folder: Callable[..., Path], mode: int, below: str) -> None:
    path = folder(OTHER, OTHER, mode)
    landing = Landing.from_url(str(path / below))
    with pytest.raises(ConfigurationError, match=rf"{path} belongs to the user {OTHER}.*Nothing was read") as caught:
        landing.check_writable()
    assert not isinstance(caught.value, LandingError)
    assert list(path.iterdir()) == []


@pytest.mark.parametrize(
    ("owner", "mode"), [((OTHER, 0), 0o775), ((OTHER, OTHER), 0o777), ((OTHER, OTHER), 0o1777), ((0, 0), 0o755)]
)
def test_root_may_land_in_its_own_folders_and_in_shared_ones(
    folder: Callable[..., Path], owner: tuple[int, int], mode: int
) -> None:
    path = folder(*owner, mode)
    Landing.from_url(str(path / "lake")).check_writable()
    assert (path / "lake").is_dir()


@pytest.mark.parametrize("below", ["", "lake"])
@pytest.mark.parametrize("owner", [(0, 0), (OTHER, OTHER)])
@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_a_worker_is_refused_a_folder_that_it_may_not_write(
    folder: Callable[..., Path], owner: tuple[int, int], mode: int, below: str
) -> None:
    path = folder(*owner, mode)
    outcome = check_as(WORKER, path / below)
    assert outcome.startswith(f"ConfigurationError: The landing file://{path / below} cannot be used"), outcome
    assert f"{path} belongs to the user" in outcome


@pytest.mark.parametrize(
    ("owner", "mode", "groups"),
    [
        pytest.param((0, 0), 0o775, (0,), id="a volume of root, group 0, as the image of Airflow has it"),
        pytest.param((0, GROUP), 0o2770, (GROUP,), id="a volume with fsGroup"),
        pytest.param((OTHER, GROUP), 0o770, (GROUP,), id="a folder of a group"),
        pytest.param((0, 0), 0o777, (), id="a volume that everybody may write"),
        pytest.param((0, 0), 0o1777, (), id="as /tmp"),
        pytest.param((WORKER, OTHER), 0o700, (), id="its own"),
    ],
)
def test_a_worker_may_land_where_it_may_write(
    folder: Callable[..., Path], owner: tuple[int, int], mode: int, groups: tuple[int, ...]
) -> None:
    assert check_as(WORKER, folder(*owner, mode) / "lake", groups=groups) == "written"


def test_own_folder_below_a_folder_of_another_user_is_accepted(folder: Callable[..., Path]) -> None:
    path = folder(OTHER, OTHER, 0o755)
    (path / "lake").mkdir()
    check_owner(str(path / "lake"), "file:///lake")
    with pytest.raises(ConfigurationError, match="belongs to"):
        check_owner(str(path / "lakes"), "file:///lakes")


def test_link_to_a_folder_of_another_user_is_refused(folder: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder(OTHER, OTHER, 0o755))
    with pytest.raises(ConfigurationError, match="belongs to"):
        check_owner(str(tmp_path / "link" / "lake"), "file:///lake")


def test_home_folder_of_another_user_is_refused(folder: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder(OTHER, OTHER, 0o755)
    open_folder("landing", str(path), None)  # imports Airflow, which uses the real home folder
    monkeypatch.setattr("os.path.expanduser", lambda text: text.replace("~other", str(path)))
    for url in ("~other/lake", "file://~other/lake"):
        with pytest.raises(ConfigurationError, match=f"{path} belongs to"):
            open_folder("landing", url, None).check_writable()
    with pytest.raises(ConfigurationError, match=r"no user with the home folder ~nobody-at-all\. .*Nothing was read"):
        open_folder("landing", "~nobody-at-all/lake", None).check_writable()


def test_own_home_folder_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_folder("landing", str(tmp_path), None)  # imports Airflow, which uses the real home folder
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    open_folder("landing", "~/lake", None).check_writable()
    open_folder("landing", "relative/lake", None).check_writable()
    assert (tmp_path / "home" / "lake").is_dir()
    assert (tmp_path / "relative" / "lake").is_dir()
    assert not (tmp_path / "~").exists()


@pytest.mark.parametrize(
    ("mode", "user", "groups", "writes"),
    [
        (0o755, OTHER, set(), True),
        (0o555, OTHER, set(), False),
        (0o775, WORKER, {GROUP}, True),
        (0o775, WORKER, {0}, False),
        (0o705, WORKER, {GROUP}, False),
        (0o707, WORKER, {GROUP}, False),
        (0o707, WORKER, {0}, True),
        (0o702, WORKER, {0}, False),
    ],
)
def test_mode_decides_write_access_of_owner_group_and_others(
    folder: Callable[..., Path], mode: int, user: int, groups: set[int], writes: bool
) -> None:
    assert mode_lets_write(folder(OTHER, GROUP, mode).stat(), user, groups) is writes
