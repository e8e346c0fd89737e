"""Who may use a keeper: its own user, but nobody who descends from what an agent started."""

import asyncio
import os
import shlex
import subprocess
import sys

import pytest

from tests.helpers import wait_until
from tests.keeper.places import BOUND, everything, said, shell
from tether.keeper.client import open_keeper
from tether.keeper.home import Home
from tether.process.command import Pipes, Pty

LIST = shlex.join([sys.executable, "-m", "tether", "ps", "--json"])
# The way out of every mark that a child carries: no environment, no session, no parent.
ESCAPE = (
    'env -i PATH="$PATH" TETHER_HOME="$TETHER_HOME" setsid '
    f'sh -c "sleep 0.3; {LIST} >$TETHER_HOME/out 2>&1" </dev/null >/dev/null 2>&1 &'
)


@pytest.mark.requirement("design:keeper:peer-guest")
@pytest.mark.parametrize("stdio", [Pipes(), Pty()], ids=["pipes", "pty"])
async def test_a_process_of_an_agent_cannot_use_the_keeper(home: Home, stdio: Pipes | Pty) -> None:
    async with open_keeper(home) as keeper:
        guest = await keeper.start(shell(f"{LIST}; echo code $?; setsid -w {LIST}; echo code $?", stdio), guest=True)
        async with asyncio.timeout(BOUND):
            await guest.wait()
        text = (await everything(guest)).decode().replace("\r\n", "\n")
        lines = text.splitlines()
        assert [line for line in lines if line.startswith("code ")] == ["code 1", "code 1"], text
        assert all("agent" in line for line in lines if line.startswith("tether: ")), text
        assert guest.id not in text.replace(f"({guest.id})", "") or "[" not in text


@pytest.mark.requirement("design:keeper:peer-guest")
async def test_a_descendant_that_left_its_parents_and_environment_is_refused_all_the_same(home: Home) -> None:
    async with open_keeper(home) as keeper:
        guest = await keeper.start(shell(ESCAPE), guest=True)
        await guest.wait()
        out = os.path.join(home.path, "out")
        await wait_until(lambda: _content(out).endswith("\n"))
        assert "which an agent started" in _content(out)


def _content(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


@pytest.mark.requirement("design:keeper:peer")
async def test_a_process_of_the_person_may_use_the_keeper(home: Home) -> None:
    async with open_keeper(home) as keeper:
        process = await keeper.start(shell(f"{LIST}; echo code $?", Pty()))
        await said(process, "code 0")
        assert process.id in (await everything(process)).decode()


@pytest.mark.requirement("design:keeper:peer-user")
@pytest.mark.requirement("design:keeper:private")
async def test_another_user_can_neither_connect_nor_read_logs(home: Home) -> None:
    """As root a real other user tries; otherwise the modes say what the system will do."""
    async with open_keeper(home) as keeper:
        process = await keeper.start(shell("echo secret; sleep 1000"))
        await said(process, "secret")
        log = os.path.join(process.directory, f"{0:020d}.out")
        for path in (home.path, home.processes, process.directory):
            assert os.stat(path).st_mode & 0o077 == 0
        assert [os.stat(path).st_mode & 0o077 for path in (log, home.socket_path)] == [0, 0]
        if os.getuid() == 0:
            code = (
                "import os, socket, sys\nos.setgid(65534); os.setgroups([]); os.setuid(65534)\n"
                "for act in (lambda: open(sys.argv[1]), lambda: socket.socket(socket.AF_UNIX).connect(sys.argv[2]), "
                "lambda: os.listdir(sys.argv[3])):\n"
                "    try: act()\n"
                "    except PermissionError: print('refused')\n"
                "    else: print('LET IN')\n"
            )
            words = (sys.executable, "-S", "-c", code, log, home.socket_path, home.path)
            tried = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, check=False)
            assert tried.stdout.split() == ["refused"] * 3, tried
