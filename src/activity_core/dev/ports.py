"""Ports on loopback."""

import socket

from activity_core.errors import ConfigurationError

LOOPBACK = "127.0.0.1"


def is_free(port: int) -> bool:
    """Whether a server could bind `port` on loopback now."""
    with socket.socket() as probe:
        # As servers do: a port in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A port that is free on loopback at this moment."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def required_port(port: int, *, flag: str) -> int:
    """`port` itself (0: a free one). Raises `ConfigurationError` naming `flag` when it is taken."""
    if port == 0:
        return free_port()
    if not is_free(port):
        raise ConfigurationError(
            f"port {port} on {LOOPBACK} is taken. Give another with {flag} PORT, or {flag} 0 for any free one."
        )
    return port


def preferred_port(port: int | None, *, default: int, flag: str) -> int:
    """`port` as in `required_port`; None means `default`, or any free one where `default` is taken."""
    if port is not None:
        return required_port(port, flag=flag)
    return default if is_free(default) else free_port()
