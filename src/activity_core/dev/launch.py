"""Becomes another program: `python -I -S launch.py PARENT_PID SIGNAL UID GID REACH PROGRAM ARGUMENTS…`.

What has to happen between fork and exec, done by a program of its own because Python code there is unsafe beside
threads. It stands alone (no imports of ours), so that it costs some 15 ms.

- The program gets `SIGNAL` when the supervisor is gone, also after kill -9 (Linux; elsewhere the next start heals).
- With `UID` ≥ 0 it runs as that user: Postgres refuses to run as root. Where that user can't reach the program or the
  directory `REACH` (a checkout below /root, say), it keeps the right to pass by file modes: no mode is changed.
"""

import ctypes
import os
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_KEEPCAPS = 8
_PR_SET_SECUREBITS = 28
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_CAP_DAC_OVERRIDE = 1
_CAP_SETPCAP = 8
_SECBIT_NO_SETUID_FIXUP = 1 << 2
_CAPABILITY_VERSION_3 = 0x20080522


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Capabilities(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def main(arguments: list[str]) -> None:
    parent_pid, death_signal, uid, gid = (int(argument) for argument in arguments[:4])
    reach, program = arguments[4], arguments[5]
    on_linux = sys.platform == "linux"
    if uid >= 0:
        if on_linux:
            _prctl(_PR_SET_KEEPCAPS, 1)
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
        reachable = os.access(program, os.R_OK | os.X_OK) and os.access(reach, os.R_OK | os.X_OK)
        if on_linux:
            _drop_capabilities(keep_passage=not reachable)
        elif not reachable:
            sys.exit(f"user {uid} can't reach {program} and {reach}")
    if on_linux:
        # After setuid, which clears it.
        _prctl(_PR_SET_PDEATHSIG, death_signal)
        if os.getppid() != parent_pid:
            sys.exit("the parent is gone")
    # What a server writes holds users' data.
    os.umask(0o077)
    os.execv(program, arguments[5:])  # noqa: S606 - this is the point: no shell, an absolute path


def _prctl(option: int, first: int, second: int = 0) -> None:
    _check(_libc().prctl(option, first, second, 0, 0))


def _drop_capabilities(*, keep_passage: bool) -> None:
    passage = 1 << _CAP_DAC_OVERRIDE if keep_passage else 0
    if keep_passage:
        # Else access(2), by which Postgres looks for its own programs, goes by the user alone.
        _set_capabilities(passage | 1 << _CAP_SETPCAP)
        _prctl(_PR_SET_SECUREBITS, _SECBIT_NO_SETUID_FIXUP)
    _set_capabilities(passage)
    if keep_passage:
        _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_OVERRIDE)


def _set_capabilities(mask: int) -> None:
    header = _Header(_CAPABILITY_VERSION_3, 0)
    sets = (_Capabilities * 2)(_Capabilities(mask, mask, mask), _Capabilities(0, 0, 0))
    _check(_libc().capset(ctypes.byref(header), sets))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


if __name__ == "__main__":
    main(sys.argv[1:])
