"""Runs the installed `tether` program as a person or a script would, and looks at what is left."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping

TETHER = os.path.join(os.path.dirname(sys.executable), "tether")
BOUND = 40.0
_POLL_SECONDS = 0.01

# A test run in the background of a script inherits ignored signals; the program under test must not.
_WITH_DEFAULT_SIGNALS = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""

Finished = subprocess.CompletedProcess[bytes]


def tether(
    *words: str | bytes,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
) -> Finished:
    """Run `tether` to its end; `env` is added to ours."""
    environment = None if env is None else {**os.environ, **env}
    return subprocess.run(
        (TETHER, *words), cwd=cwd, env=environment, input=stdin, capture_output=True, timeout=BOUND, check=False
    )


def in_shell(script: str, *words: str) -> Finished:
    """Run `script` in sh with `tether` as $0 and `words` as $1 and on."""
    return subprocess.run(
        ("sh", "-c", script, TETHER, *words),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=BOUND,
        check=False,
    )


@contextlib.contextmanager
def started(
    *words: str, stdout: int = subprocess.PIPE, stderr: int = subprocess.PIPE
) -> Generator[subprocess.Popen[bytes], None, None]:
    """A `tether` that runs beside the test, with its streams on pipes; ended with the block."""
    launcher = (sys.executable, "-c", _WITH_DEFAULT_SIGNALS)
    with subprocess.Popen(
        (*launcher, TETHER, *words), stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, bufsize=0
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def read_line(running: subprocess.Popen[bytes]) -> bytes:
    """The next line of its stdout."""
    assert running.stdout is not None
    return running.stdout.readline()


def say(running: subprocess.Popen[bytes], line: bytes) -> None:
    """Write a line to its stdin."""
    assert running.stdin is not None
    running.stdin.write(line + b"\n")


def eventually(predicate: Callable[[], object]) -> None:
    """Return as soon as `predicate()` is true; fail the test when it never is."""
    deadline = time.monotonic() + BOUND
    while not predicate():
        assert time.monotonic() < deadline, f"not true within {BOUND} s"
        time.sleep(_POLL_SECONDS)


def is_full(pipe: int) -> bool:
    """Whether nothing more fits into the pipe whose reading end this is."""
    writing = os.open(f"/proc/self/fd/{pipe}", os.O_WRONLY | os.O_NONBLOCK)
    try:
        return not select.select((), (writing,), (), 0)[1]
    finally:
        os.close(writing)


def kill(pid: int) -> None:
    """End a process that a test left running on purpose."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def one_line(finished: Finished) -> str:
    """What it said on stderr, which must be one line of ours without a traceback."""
    text = finished.stderr.decode()
    assert text.startswith("tether: ")
    assert text.count("\n") == 1
    assert text.endswith("\n")
    return text.removeprefix("tether: ").rstrip("\n")
