"""Starting a child on POSIX: posix_spawn with every detail as a file action, fork only where it cannot do it."""

import contextlib
import ctypes
import errno
import fcntl
import os
import resource
import signal
import sys
import termios
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from tether.errors import (
    InvalidCommandError,
    ProgramNotRunnableError,
    StartError,
    TooManyOpenFilesError,
    TooManyProcessesError,
)

_libc = ctypes.CDLL(None, use_errno=True)
_DARWIN = sys.platform == "darwin"
_SETSIGDEF, _SETSIGMASK = 0x04, 0x08
_SETSID = 0x0400 if _DARWIN else 0x80
_CLOEXEC_DEFAULT = 0x4000
_OPAQUE_BYTES = 512  # larger than posix_spawn's opaque types anywhere
_MANY_FILES = (65536, 10240)  # the second is as many as macOS gives

_children_open_files: int | None = None


@dataclass(frozen=True, slots=True)
class Streams:
    """What the child's descriptors 0, 1 and 2 become: a terminal's name, or three descriptors (None: ours)."""

    terminal: str | None = None
    stdin: int | None = None
    stdout: int = -1
    stderr: int = -1


def raise_open_files(children: int | None = None) -> None:
    """Let this process, which must have one thread, have many files open; its children get the limit it had.

    `children` is that limit where it was raised already, by the program this process was before.
    """
    global _children_open_files
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    _children_open_files = soft if children is None else children
    for wanted in _MANY_FILES:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if 0 <= soft < most:
            with contextlib.suppress(OSError, ValueError):  # fewer will do
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
                return


def children_open_files() -> int | None:
    """How many files children may have open, where that is not what we may; for `raise_open_files` to be told."""
    return _children_open_files


@contextlib.contextmanager
def _open_files_of_children() -> Generator[None]:
    if _children_open_files is None:
        yield
        return
    ours = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_children_open_files, ours[1]), ours[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, ours)


def spawn(program: str, argv: Sequence[str], env: Mapping[str, str], directory: int, streams: Streams) -> int:
    """Start `program` as leader of a new session in the open `directory`; returns its pid.

    Raises:
        StartError: of the kind that says why; nothing is left behind.
    """
    if streams.terminal is not None and _DARWIN:
        # A terminal becomes the controlling one there only by an ioctl made in the child itself.
        return _fork_spawn(program, argv, env, directory, streams)
    if not hasattr(_libc, "posix_spawn_file_actions_addfchdir_np"):
        return _fork_spawn(program, argv, env, directory, streams)
    failure, pid = _posix_spawn(program, argv, env, directory, streams)
    if failure:
        raise start_error(failure, program)
    return pid


@contextlib.contextmanager
def born_with(umask: int | None) -> Generator[None]:
    """Children are started with that umask, if one is given; for a process of one thread."""
    if umask is None:
        yield
        return
    ours = os.umask(umask)
    try:
        yield
    finally:
        os.umask(ours)


def start_error(number: int, program: str) -> StartError | InvalidCommandError:
    """The typed error for a start that the system refused with errno `number`."""
    reason = os.strerror(number)
    if number in (errno.EMFILE, errno.ENFILE):
        return TooManyOpenFilesError(
            f"cannot start {program!r}: {reason}; close processes that are not needed or raise `ulimit -n`"
        )
    if number in (errno.EAGAIN, errno.ENOMEM):
        return TooManyProcessesError(f"cannot start {program!r}: {reason}; end other processes or raise `ulimit -u`")
    if number == errno.E2BIG:
        return InvalidCommandError(
            f"arguments and environment of {program!r} are too long for this system; pass data by stdin or a file"
        )
    if number == errno.ENOENT:
        return ProgramNotRunnableError(
            f"cannot run {program!r}: it or the interpreter in its first line (#!) does not exist"
        )
    if number == errno.ENOEXEC:
        return ProgramNotRunnableError(
            f"cannot run {program!r}: not a program for this machine; a script needs a first line such as #!/bin/sh"
        )
    if number in (errno.EACCES, errno.EPERM):
        return ProgramNotRunnableError(
            f"cannot run {program!r}: {reason}; check its mode (chmod +x), its file system and who may run it"
        )
    return StartError(f"cannot start {program!r}: {reason}")


def _strings(values: Sequence[str]) -> "ctypes.Array[ctypes.c_char_p]":
    # Encoded in one go: none holds a NUL, and a call per word costs as much as the rest of the start.
    encoded = os.fsencode("\0".join(values)).split(b"\0")
    return (ctypes.c_char_p * (len(values) + 1))(*encoded, None)


def _attributes() -> "ctypes.Array[ctypes.c_char]":
    """New session, default signal handling and nothing blocked: the same for every child."""
    attributes = ctypes.create_string_buffer(_OPAQUE_BYTES)
    signals = ctypes.create_string_buffer(256)
    _libc.posix_spawnattr_init(attributes)
    flags = _SETSID | _SETSIGDEF | _SETSIGMASK | (_CLOEXEC_DEFAULT if _DARWIN else 0)
    _libc.posix_spawnattr_setflags(attributes, ctypes.c_short(flags))
    _libc.sigemptyset(signals)
    _libc.posix_spawnattr_setsigmask(attributes, signals)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        _libc.sigaddset(signals, int(number))
    _libc.posix_spawnattr_setsigdefault(attributes, signals)
    return attributes


_ATTRIBUTES = _attributes()


def _posix_spawn(
    program: str, argv: Sequence[str], env: Mapping[str, str], directory: int, streams: Streams
) -> tuple[int, int]:
    actions = ctypes.create_string_buffer(_OPAQUE_BYTES)
    failure = _libc.posix_spawn_file_actions_init(actions)
    if failure:
        return failure, 0
    try:
        if streams.terminal is not None:
            name = os.fsencode(streams.terminal)
            _libc.posix_spawn_file_actions_addopen(actions, 0, name, os.O_RDWR, 0)
            _libc.posix_spawn_file_actions_adddup2(actions, 0, 1)
            _libc.posix_spawn_file_actions_adddup2(actions, 0, 2)
        else:
            if streams.stdin is not None:
                _libc.posix_spawn_file_actions_adddup2(actions, streams.stdin, 0)
            _libc.posix_spawn_file_actions_adddup2(actions, streams.stdout, 1)
            _libc.posix_spawn_file_actions_adddup2(actions, streams.stderr, 2)
        _libc.posix_spawn_file_actions_addfchdir_np(actions, directory)
        if hasattr(_libc, "posix_spawn_file_actions_addclosefrom_np"):
            _libc.posix_spawn_file_actions_addclosefrom_np(actions, 3)
        pid = ctypes.c_int()
        path, words = os.fsencode(program), _strings(argv)
        variables = _strings([f"{name}={value}" for name, value in env.items()])
        # Only around the start itself: an action on a descriptor beyond the limit could not even be added.
        with _open_files_of_children():
            failure = _libc.posix_spawn(ctypes.byref(pid), path, actions, _ATTRIBUTES, words, variables)
        return failure, pid.value
    finally:
        _libc.posix_spawn_file_actions_destroy(actions)


def _fork_spawn(program: str, argv: Sequence[str], env: Mapping[str, str], directory: int, streams: Streams) -> int:
    """The same by fork and exec; the child's errno comes back through a pipe that exec closes."""
    report, say = os.pipe()
    try:
        pid = os.fork()
        if pid == 0:
            _become(program, argv, env, directory, streams, say)
        os.close(say)
        say = -1
        answer = os.read(report, 16)
    except OSError as error:
        raise start_error(error.errno or errno.EAGAIN, program) from error
    finally:
        os.close(report)
        if say >= 0:
            os.close(say)
    if answer:
        os.waitpid(pid, 0)
        raise start_error(int(answer), program)
    return pid


def _become(
    program: str, argv: Sequence[str], env: Mapping[str, str], directory: int, streams: Streams, say: int
) -> None:
    """In the forked child: set everything up and exec; never returns."""
    try:
        os.setsid()
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if streams.terminal is not None:
            terminal = os.open(streams.terminal, os.O_RDWR)
            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
            sources = (terminal, terminal, terminal)
        else:
            sources = (0 if streams.stdin is None else streams.stdin, streams.stdout, streams.stderr)
        for target, source in enumerate(sources):
            os.dup2(source, target)
        os.fchdir(directory)
        os.closerange(3, say)
        os.closerange(say + 1, os.sysconf("SC_OPEN_MAX"))
        with _open_files_of_children():
            os.execve(program, list(argv), dict(env))
    except OSError as error:
        os.write(say, str(error.errno).encode())
    finally:
        os._exit(127)
