"""`tether exec`: a timeout or a signal ends the command and everything it has started."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import BOUND, TETHER, eventually, is_full, one_line, read_line, say, started, tether
from tests.helpers import alive

DAEMON = """
import os, sys
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
with open(sys.argv[1], "w") as file:
    file.write(str(os.getpid()))
os.closerange(0, 3)
os.execlp("sleep", "sleep", "100")
"""

# Each member of the tree writes its pid into a file of its own name.
TREE = """
sleep 100 & echo $! >grandchild
setsid sh -c 'echo $$ >setsid; exec sleep 100' &
sh -c 'setsid sh -c "echo \\$\\$ >orphan; exec sleep 100" &'
sh -c 'trap "" TERM; echo $$ >term-ignorer; sleep 100' &
sh -c 'env -i PATH="$PATH" setsid sh -c "echo \\$\\$ >without-environment; exec sleep 100" &'
"$1" -c "$2" daemon
echo $$ >child
echo begun
wait
"""
MEMBERS = ("child", "daemon", "grandchild", "orphan", "setsid", "term-ignorer", "without-environment")


def survivors(directory: Path) -> list[str]:
    """Which members of the tree wrote their pid and are alive."""
    pids = {name: int((directory / name).read_text(encoding="ascii")) for name in MEMBERS}
    return [name for name, pid in pids.items() if alive(pid)]


@pytest.mark.requirement("design:tree:orphan")
def test_after_a_timeout_nobody_of_the_tree_is_left_and_the_output_so_far_is_kept(tmp_path: Path) -> None:
    words = ("sh", "-c", TREE, "sh", sys.executable, DAEMON)
    finished = tether("exec", "--direct", "--cwd", str(tmp_path), "--timeout", "4", "--", *words)
    assert survivors(tmp_path) == []
    assert (finished.returncode, finished.stdout) == (124, b"begun\n")
    assert one_line(finished).startswith("stopped after 4 s: sh -c ")


@pytest.mark.requirement("design:cli:exec-timeout")
def test_a_command_that_ends_in_time_is_not_touched() -> None:
    finished = tether("exec", "--timeout", "30", "--", "sh", "-c", "echo x; exit 3")
    assert (finished.returncode, finished.stdout, finished.stderr) == (3, b"x\n", b"")


@pytest.mark.requirement("design:cli:exec-timeout")
def test_a_command_may_end_by_itself_when_told_that_its_time_is_up() -> None:
    script = "trap 'echo tidied; exit 0' TERM; sleep 100 & wait"
    finished = tether("exec", "--direct", "--timeout", "1.5", "--", "sh", "-c", script)
    assert (finished.returncode, finished.stdout) == (124, b"tidied\n")


@pytest.mark.requirement("design:cli:exec-interrupted")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_ends_the_whole_tree_and_gives_128_and_its_number(number: signal.Signals) -> None:
    # The background child of such a shell ignores interrupts, the other is in a session of its own.
    script = "sleep 100 & a=$!; setsid sleep 100 & echo $$ $a $!; wait"
    with started("exec", "--", "sh", "-c", script) as running:
        pids = [int(word) for word in read_line(running).split()]
        assert [alive(pid) for pid in pids] == [True, True, True]
        running.send_signal(number)
        assert running.wait(BOUND) == 128 + number
        assert [alive(pid) for pid in pids] == [False, False, False]
        assert running.stderr is not None
        assert running.stderr.read() == b""


@pytest.mark.requirement("design:cli:exec-interrupted")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_ignores_the_signal_is_ended_by_force(number: signal.Signals) -> None:
    script = "trap '' INT TERM; echo $$; while :; do sleep 100; done"
    with started("exec", "--direct", "--", "sh", "-c", script) as running:
        pid = int(read_line(running))
        running.send_signal(number)
        assert running.wait(BOUND) == 128 + number
        assert not alive(pid)


@pytest.mark.requirement("design:cli:exec-interrupted")
def test_an_interrupted_command_is_told_by_an_interrupt_and_its_last_words_are_kept() -> None:
    script = "trap 'echo interrupted; exit 0' INT; echo ready; sleep 100 & wait"
    with started("exec", "--json", "--direct", "--", "sh", "-c", script) as running:
        eventually(lambda: _command_is_asleep(running.pid))
        running.send_signal(signal.SIGINT)
        stdout, stderr = running.communicate(timeout=BOUND)
        found = json.loads(stdout)
        assert (found["stdout"], found["exit_code"], running.returncode) == ("ready\ninterrupted\n", 130, 130)
        assert stderr == b""


@pytest.mark.requirement("design:cli:exec-interrupted")
def test_a_reader_who_does_not_read_cannot_keep_it_from_ending() -> None:
    with started("exec", "--direct", "--", "sh", "-c", "echo $$; exec yes") as running:
        pid = int(read_line(running))
        eventually(lambda: running.stdout is not None and is_full(running.stdout.fileno()))
        running.terminate()
        assert running.wait(BOUND) == 143
        assert not alive(pid)


@pytest.mark.requirement("design:cli:exec-interrupted")
def test_a_signal_that_was_ignored_on_purpose_stays_ignored() -> None:
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )
    words = ("exec", "--direct", "--", "sh", "-c", "echo $$; read line; echo $line")
    with subprocess.Popen(
        (sys.executable, "-c", ignoring, TETHER, *words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as running:
        try:
            pid = int(read_line(running))
            running.send_signal(signal.SIGHUP)
            say(running, b"still here")
            assert read_line(running) == b"still here\n"
            assert running.wait(BOUND) == 0
            assert not alive(pid)
        finally:
            running.kill()


@pytest.mark.requirement("design:start:signals-default")
def test_the_command_hears_signals_that_we_were_told_to_ignore() -> None:
    finished = subprocess.run(
        ("sh", "-c", "trap '' TERM INT; exec \"$0\" exec --direct -- sh -c 'kill -TERM $$'", TETHER),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=BOUND,
        check=False,
    )
    assert finished.returncode == 143


def _command_is_asleep(pid: int) -> bool:
    """Whether `sh`, the child of program `pid`, has started its own child and so has set its trap."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return any(Path(f"/proc/{child}/task/{child}/children").read_text(encoding="ascii").split() for child in children)
