"""What happens between fork and exec of a server: the user it becomes, and what that user keeps of root."""

import os
import pwd
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from activity_core.dev.child import User, spawn_server
from tests.stack import temporary_home

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root has privileges to give up"
)

# In shell, because this Python may lie where only root can go.
TELL = """
echo "$(id -u) $(id -g) $(id -G) $(umask)"
grep -E '^Cap(Eff|Prm|Amb)' /proc/self/status | cut -f 2
[ -r "$1" ] && [ -x "$1" ] && ls "$1"
"""
NOTHING = "0" * 16
PASSAGE = "0" * 15 + "2"


@pytest.fixture
def home() -> Iterator[Path]:
    with temporary_home() as name:
        Path(name).chmod(0o755)
        yield Path(name)


async def _told(home: Path, directory: Path) -> list[str]:
    nobody = pwd.getpwnam("nobody")
    (directory / "inside").touch()
    child = await spawn_server(
        "teller",
        ["/bin/sh", "-c", TELL, "sh", str(directory)],
        log=home / "log",
        reach=directory,
        user=User(nobody.pw_uid, nobody.pw_gid),
    )
    assert await child.wait() == 0, child.tail()
    first, *rest = child.tail()
    assert first == f"{nobody.pw_uid} {nobody.pw_gid} {nobody.pw_gid} 0077"
    return rest


async def test_where_the_user_can_go_nothing_of_root_is_kept(home: Path) -> None:
    directory = home / "open"
    directory.mkdir()
    directory.chmod(0o755)
    assert await _told(home, directory) == [NOTHING, NOTHING, NOTHING, "inside"]


async def test_where_it_cannot_it_keeps_the_right_to_pass_and_no_other(home: Path) -> None:
    directory = home / "private" / "inner"
    directory.mkdir(parents=True)
    (home / "private").chmod(0o700)
    assert await _told(home, directory) == [PASSAGE, PASSAGE, PASSAGE, "inside"]
    assert (home / "private").stat().st_mode & 0o777 == 0o700
