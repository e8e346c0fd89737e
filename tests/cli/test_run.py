"""`tether run`: a command under the keeper behaves as if it had been run directly, and can be left alone."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.cli.kept import at_terminal, ended, error_of, keeper_pid, listed, logs, record, shown
from tests.cli.running import BOUND, in_shell, one_line, read_line, say, started, tether
from tests.helpers import alive


@pytest.mark.requirement("design:cli:run-detach")
def test_detach_prints_the_id_alone_and_the_command_runs_on(home: Path) -> None:
    finished = tether("run", "--detach", "--", "sleep", "100")
    assert (finished.returncode, finished.stderr) == (0, b"")
    process_id = finished.stdout.decode().removesuffix("\n")
    assert re.fullmatch(r"[0-9a-f-]{36}", process_id)
    (found,) = listed()
    assert (found["id"], found["command"], found["status"]) == (process_id, ["sleep", "100"], "running")
    assert isinstance(found["pid"], int)
    assert alive(found["pid"])


@pytest.mark.requirement("design:cli:run-detach")
def test_an_id_that_cannot_be_printed_is_told_on_stderr(home: Path) -> None:
    finished = in_shell('exec "$0" run --detach -- sleep 100 >/dev/full')
    assert finished.returncode == 1
    assert str(listed()[0]["id"]) in one_line(finished)


@pytest.mark.requirement("design:cli:run-foreground")
def test_both_streams_and_the_exit_code_are_the_commands_own(home: Path) -> None:
    finished = tether("run", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (finished.returncode, finished.stdout, finished.stderr) == (3, b"out\n", b"err\n")


@pytest.mark.requirement("design:cli:run-foreground")
def test_words_reach_the_command_as_given_with_our_environment_and_directory(home: Path, tmp_path: Path) -> None:
    code = "import os, sys; print(sys.argv[1:], os.getcwd(), os.environ['MARK'])"
    words = (sys.executable, "-c", code, "a b", "$HOME", "*", "", "--json", "ü")
    finished = tether("run", "--cwd", str(tmp_path), "--", *words, env={"MARK": "seen"})
    assert finished.stdout.decode() == f"{list(words[3:])} {tmp_path} seen\n"


@pytest.mark.requirement("design:cli:run-foreground")
@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (("no-such-program-here",), 127, "'no-such-program-here'"),
        (("/etc/hostname",), 126, "/etc/hostname"),
        (("sh", "-c", "kill -9 $$"), 128 + 9, ""),
        (("sh", "-c", "exit 124"), 124, ""),
    ],
    ids=["not found", "not runnable", "signal", "own"],
)
def test_exit_codes_are_those_of_a_shell(home: Path, words: tuple[str, ...], code: int, named: str) -> None:
    finished = tether("run", "--", *words)
    assert (finished.returncode, finished.stdout) == (code, b"")
    assert named in finished.stderr.decode()
    assert finished.stderr.count(b"\n") == (1 if named else 0)


@pytest.mark.requirement("design:cli:run-foreground")
def test_after_a_timeout_the_exit_code_is_124_and_the_output_so_far_is_there(home: Path) -> None:
    finished = tether("run", "--timeout", "1", "--", "sh", "-c", "echo begun; sleep 100")
    assert (finished.returncode, finished.stdout) == (124, b"begun\n")
    assert one_line(finished).startswith("stopped after 1 s: sh -c ")
    assert listed("--all")[0]["status"] == "timed_out"


@pytest.mark.requirement("design:cli:run-whole")
def test_output_many_times_the_cap_comes_through_whole_and_the_rest_is_kept(home: Path) -> None:
    size = 30_000_000
    code = f"import sys; [sys.stdout.buffer.write(b'%015d\\n' % n) for n in range({size // 16})]"
    script = 'exec "$0" run --cap 1000000 -- "$1" -c "$2" | { sleep 0.5; cat; } | sha256sum'
    direct = in_shell('"$1" -c "$2" | sha256sum', sys.executable, code)
    through = in_shell(script, sys.executable, code)
    assert through.stdout == direct.stdout
    assert through.stderr == b""
    (found,) = listed("--all")
    assert (found["status"], found["exit_code"], found["output_bytes"]) == ("completed", 0, size)
    kept = tether("logs", str(found["id"]))
    assert kept.stdout.endswith(b"%015d\n" % (size // 16 - 1))
    assert 250_000 < len(kept.stdout) <= 1_000_000
    assert re.fullmatch(r"\d+ bytes dropped here", one_line(kept))


@pytest.mark.requirement("design:cli:run-stdin")
def test_what_is_piped_in_reaches_the_command_byte_for_byte(home: Path) -> None:
    content = os.urandom(12_000_000)
    finished = tether("run", "--", "cat", stdin=content)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, content, b"")


@pytest.mark.requirement("design:cli:run-stdin")
def test_a_command_that_reads_slowly_gets_everything(home: Path) -> None:
    code = "import sys, time\nwhile d := sys.stdin.buffer.read(3_000_000): print(len(d)); time.sleep(0.05)"
    finished = tether("run", "--", sys.executable, "-c", code, stdin=b"x" * 25_000_000)
    assert sum(map(int, finished.stdout.split())) == 25_000_000


@pytest.mark.requirement("design:cli:run-stdin")
def test_a_stdin_that_stays_open_keeps_nobody(home: Path) -> None:
    with started("run", "--", "sh", "-c", "echo done; exit 5") as running:
        assert read_line(running) == b"done\n"
        assert running.wait(BOUND) == 5


@pytest.mark.requirement("design:cli:run-stdin")
def test_a_command_that_closes_its_input_or_ends_first_is_no_error(home: Path) -> None:
    finished = tether("run", "--", "head", "-c", "3", stdin=b"y\n" * 5_000_000)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, b"y\ny", b"")


@pytest.mark.requirement("design:cli:run-pty")
def test_on_a_terminal_of_its_own_both_streams_are_one_and_its_size_is_as_told(home: Path) -> None:
    finished = tether("run", "--pty", "--size", "77x33", "--", "sh", "-c", "stty size; test -t 1 && echo tty >&2")
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, b"33 77\r\ntty\r\n", b"")


@pytest.mark.requirement("design:cli:run-pty")
def test_without_a_size_a_terminal_is_120_by_30(home: Path) -> None:
    finished = tether("run", "--pty", "--", "stty", "size")
    assert finished.stdout == b"30 120\r\n"


@pytest.mark.requirement("design:cli:run-signals")
def test_who_hangs_up_leaves_the_command_running_and_its_log_waits_for_nobody(home: Path) -> None:
    script = "echo ready; seq 1 1000000; echo over; exec sleep 100"
    with started("run", "--cap", "65536", "--", "sh", "-c", script) as running:
        assert read_line(running) == b"ready\n"
        running.send_signal(signal.SIGHUP)
        assert running.wait(BOUND) == 128 + signal.SIGHUP
    (found,) = listed()
    assert (found["status"], found["lease"]) == ("running", {"kind": "forever"})
    assert tether("wait", str(found["id"]), "--for", "text:over", "--timeout", str(BOUND)).returncode == 0


@pytest.mark.requirement("design:cli:run-signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_told_to_end_the_command_and_all_it_started_end_too(home: Path, number: signal.Signals) -> None:
    script = "sleep 100 & a=$!; setsid sleep 100 & echo $$ $a $!; wait"
    with started("run", "--", "sh", "-c", script) as running:
        pids = [int(word) for word in read_line(running).split()]
        running.send_signal(number)
        assert running.wait(BOUND) == 128 + number
    assert [alive(pid) for pid in pids] == [False, False, False]
    assert listed("--all")[0]["status"] == "killed"


@pytest.mark.requirement("design:cli:run-signals")
def test_an_interrupt_is_the_commands_to_answer(home: Path) -> None:
    script = "trap 'echo heard' INT; echo ready; until read line; do :; done; echo $line; exit 7"
    with started("run", "--", "sh", "-c", script) as running:
        assert read_line(running) == b"ready\n"
        running.send_signal(signal.SIGINT)
        assert read_line(running) == b"heard\n"
        say(running, b"still here")
        assert read_line(running) == b"still here\n"
        assert running.wait(BOUND) == 7


@pytest.mark.requirement("design:cli:run-signals")
def test_a_second_interrupt_at_once_stops_it(home: Path) -> None:
    script = "trap 'echo heard' INT; echo ready; while :; do sleep 0.05; done"
    with started("run", "--", "sh", "-c", script) as running:
        assert read_line(running) == b"ready\n"
        running.send_signal(signal.SIGINT)
        assert read_line(running) == b"heard\n"
        running.send_signal(signal.SIGINT)
        assert running.wait(BOUND) == 130
    assert listed() == []


@pytest.mark.requirement("design:cli:run-signals")
def test_killed_itself_the_command_runs_on_and_is_listed(home: Path) -> None:
    with started("run", "--name", "orphan", "--", "sh", "-c", "echo $$; read line; echo got $line") as running:
        pid = int(read_line(running))
        running.kill()
        running.wait(BOUND)
    assert alive(pid)
    (found,) = listed()
    assert (found["name"], found["pid"], found["status"]) == ("orphan", pid, "running")
    assert tether("send", "orphan", "there").returncode == 0
    assert tether("wait", "orphan").returncode == 0
    assert logs("orphan") == b"%d\ngot there\n" % pid


@pytest.mark.requirement("design:cli:keeper-lost")
def test_a_keeper_that_is_lost_meanwhile_is_one_line_and_exit_code_1(home: Path) -> None:
    with started("run", "--", "sh", "-c", "echo $$; exec sleep 100") as running:
        pid, keeper = int(read_line(running)), keeper_pid(home)
        assert keeper is not None
        os.kill(keeper, signal.SIGKILL)
        assert running.wait(BOUND) == 1
        assert running.stderr is not None
        said = running.stderr.read().decode()
    (found,) = listed("--all")
    assert found["status"] == "lost"
    assert said.startswith("tether: ")
    assert str(found["id"]) in said
    assert said.count("\n") == 1
    assert not alive(pid)


@pytest.mark.requirement("design:cli:run-foreground")
def test_when_nobody_reads_our_output_the_command_is_stopped_quietly(home: Path) -> None:
    finished = in_shell('{ "$0" run -- yes; echo $? >&2; } | head -n 1')
    assert (finished.stdout, finished.stderr) == (b"y\n", b"141\n")
    assert listed() == []


@pytest.mark.requirement("design:cli:run-foreground")
def test_a_stdout_that_takes_nothing_is_told(home: Path) -> None:
    finished = in_shell('exec "$0" run -- echo x >/dev/full')
    assert finished.returncode == 1
    assert "No space left on device" in one_line(finished)


@pytest.mark.requirement("design:cli:run-stdin")
async def test_typed_lines_reach_the_command_and_ctrl_d_ends_its_input(home: Path) -> None:
    async with at_terminal("run", "--", "cat") as process:
        await process.submit("hello there")
        await shown(process, r"hello there\n(?s:.*)hello there")
        await process.end_input()
        assert (await process.wait()).code == 0


@pytest.mark.requirement("design:cli:run-signals")
async def test_ctrl_c_at_a_terminal_reaches_the_command(home: Path) -> None:
    async with at_terminal("run", "--", "sh", "-c", "trap 'echo heard; exit 9' INT; echo ready; cat") as process:
        await shown(process, "ready")
        await process.send_keys(["C-c"])
        await shown(process, "heard")
        assert (await process.wait()).code == 9


@pytest.mark.requirement("design:cli:run-pty")
async def test_at_a_terminal_a_person_sits_at_the_commands_own_and_may_leave_it_running(home: Path) -> None:
    script = "stty size; read line; echo got $line; read line; exit 4"
    async with at_terminal("run", "--pty", "--name", "sat-at", "--", "sh", "-c", script, cols=99, rows=22) as process:
        await shown(process, "22 99")
        await process.submit("this")
        await shown(process, "got this")
        await process.send_keys(["C-]"])
        assert (await process.wait()).code == 0
    (found,) = listed()
    assert (found["name"], found["status"], found["lease"]) == ("sat-at", "running", {"kind": "forever"})
    assert tether("send", "sat-at", "").returncode == 0
    assert tether("wait", "sat-at").returncode == 4


@pytest.mark.requirement("design:cli:run-pty")
async def test_a_terminal_that_goes_away_leaves_the_command_running(home: Path) -> None:
    async with at_terminal("run", "--pty", "--", "sh", "-c", "echo ready; sleep 100") as process:
        await shown(process, "ready")
        os.kill(process.pid, signal.SIGHUP)
        assert (await process.wait()).code == 128 + signal.SIGHUP
    assert [(found["status"], found["lease"]) for found in listed()] == [("running", {"kind": "forever"})]


@pytest.mark.requirement("design:cli:run-pty")
async def test_at_a_terminal_the_exit_code_is_the_commands_own(home: Path) -> None:
    async with at_terminal("run", "--pty", "--", "sh", "-c", "exit 6") as process:
        assert (await process.wait()).code == 6


@pytest.mark.requirement("design:cli:errors")
@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), "No command given"),
        (("--",), "No command given"),
        (("--timeout", "0", "--", "true"), "'0'"),
        (("--timeout", "soon", "--", "true"), "'soon'"),
        (("--pty", "--size", "80", "--", "true"), "'80'"),
        (("--pty", "--size", "0x30", "--", "true"), "0"),
        (("--size", "80x24", "--", "true"), "--pty"),
        (("--cap", "0", "--", "true"), "0"),
        (("--cwd", "", "--", "true"), "--cwd"),
        (("--cwd", "/no/such/place", "--", "true"), "/no/such/place"),
        (("--", ""), "no program"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(home: Path, words: tuple[str, ...], named: str) -> None:
    code, message = error_of(tether("run", *words))
    assert code == 2
    assert named in message


@pytest.mark.requirement("design:cli:run-detach")
def test_a_home_that_cannot_be_one_is_told_in_one_line(home: Path) -> None:
    home.write_text("", encoding="ascii")
    code, message = error_of(tether("run", "--detach", "--", "true"))
    assert code == 1
    assert str(home) in message


@pytest.mark.requirement("design:cli:run-detach")
def test_names_and_options_are_on_record(home: Path, tmp_path: Path) -> None:
    process_id = ended("true", options=("--pty", "--size", "90x20", "--name", "web", "--cwd", str(tmp_path)))
    found = record(process_id)
    expected = {
        "name": "web",
        "pty": True,
        "cols": 90,
        "rows": 20,
        "cwd": str(tmp_path),
        "lease": {"kind": "forever"},
    }
    assert {key: found[key] for key in expected} == expected
