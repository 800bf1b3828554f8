"""Ports: what is asked for is given or refused with the flag's name; what is only usual gives way."""

import socket
from collections.abc import Iterator

import pytest

from activity_core.dev.ports import is_free, preferred_port, required_port
from activity_core.errors import ConfigurationError


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield int(listener.getsockname()[1])


def test_a_usual_port_that_is_taken_gives_way(taken: int) -> None:
    found = preferred_port(None, default=taken, flag="--some-port")
    assert found != taken
    assert is_free(found)
    assert preferred_port(None, default=found, flag="--some-port") == found


def test_a_port_that_was_asked_for_does_not(taken: int) -> None:
    with pytest.raises(ConfigurationError, match=f"port {taken} .*--some-port 0"):
        required_port(taken, flag="--some-port")
    with pytest.raises(ConfigurationError, match=f"port {taken} .*--some-port 0"):
        preferred_port(taken, default=0, flag="--some-port")


def test_zero_is_any_free_one() -> None:
    assert is_free(required_port(0, flag="--some-port"))
