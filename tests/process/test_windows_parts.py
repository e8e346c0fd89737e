"""The parts of the Windows side that need no Windows: its strings, its layouts, its errors."""

import ctypes
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.errors import (
    InvalidCommandError,
    ProgramNotFoundError,
    ProgramNotRunnableError,
    StartError,
    TooManyOpenFilesError,
    TooManyProcessesError,
    WorkingDirectoryError,
)
from tether.process import _job_windows as job_windows
from tether.process._child_windows import directory_beneath
from tether.process._command_line_windows import (
    command_line,
    environment_block,
    is_batch_file,
    windows_environment,
)
from tether.process._ends_windows import startup_answer
from tether.process._refusal_windows import start_error

CMD = "C:\\Windows\\System32\\cmd.exe"
PROGRAM = "C:\\Program Files\\tool.exe"
SCRIPT = "C:\\npm dir\\npx.cmd"
pure_parts = pytest.mark.requirement("design:windows:pure-parts")

words = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=12)
tricky_words = st.text(st.sampled_from('a \\"\t&|<>^%!()=,;'), max_size=10)


def c_runtime_argv(line: str) -> list[str]:
    """What a program's C runtime makes of its command line, after Microsoft's description."""
    found: list[str] = []
    position = 0
    while position < len(line):
        if line[position] in " \t":
            position += 1
            continue
        word, quoted = "", False
        while position < len(line) and (quoted or line[position] not in " \t"):
            slashes = len(line) - position - len(line[position:].lstrip("\\"))
            position += slashes
            if line[position : position + 1] != '"':
                word += "\\" * slashes
                if not slashes:
                    word += line[position]
                    position += 1
                continue
            word += "\\" * (slashes // 2)
            position += 1
            if slashes % 2:
                word += '"'
            else:
                quoted = not quoted
        found.append(word)
    return found


@pure_parts
@given(st.lists(words | tricky_words, max_size=5))
def test_a_program_receives_exactly_the_arguments_given(arguments: list[str]) -> None:
    line = command_line([PROGRAM, *arguments], CMD)
    assert line.program == f'"{PROGRAM}"'
    assert c_runtime_argv(line.text) == [PROGRAM, *arguments]


@pure_parts
@given(st.lists(words | tricky_words, max_size=5))
def test_a_batch_file_receives_its_arguments_unchanged_or_none_at_all(arguments: list[str]) -> None:
    unsafe = any(re.search(r'["%\r\n]', argument) for argument in arguments)
    try:
        line = command_line([SCRIPT, *arguments], CMD)
    except InvalidCommandError:
        assert unsafe
        return
    assert not unsafe
    prefix = '/d /e:on /v:off /s /c "'
    assert line.program == f'"{CMD}"'
    assert line.arguments.startswith(prefix)
    assert line.arguments.endswith('"')
    inner = line.arguments[len(prefix) : -1]
    assert c_runtime_argv(inner) == [SCRIPT, *arguments]
    # cmd.exe acts on these only outside quotes, and there are as many quotes as open and close.
    outside = "".join(inner.split('"')[::2])
    assert inner.count('"') % 2 == 0
    assert not re.search(r"[&|<>^()%!,;=]", outside)


@pure_parts
@pytest.mark.parametrize("argument", ['"&calc.exe', "%PATH%", "100%", "a\nb", "a\rb"])
def test_what_cmd_would_change_is_refused_with_a_way_out(argument: str) -> None:
    with pytest.raises(InvalidCommandError, match="run the program behind the batch file"):
        command_line([SCRIPT, argument], CMD)


@pure_parts
@pytest.mark.parametrize("character", list("&|<>^()!,;= \t'`~{}[]"))
def test_what_cmd_acts_on_reaches_a_batch_file_in_quotes(character: str) -> None:
    line = command_line([SCRIPT, f"a{character}"], CMD)
    assert line.arguments.endswith(f' "a{character}""')


@pure_parts
@pytest.mark.parametrize("path", ["a.bat", "A.BAT", "a.Cmd", "a.cmd.", "a.bat . .", "C:\\x y\\z.cmd "])
def test_batch_files_are_known_in_every_spelling_windows_accepts(path: str) -> None:
    assert is_batch_file(path)
    assert not is_batch_file(path.replace("a.", "a.x").replace("z.", "z.x") + "x")


@pure_parts
def test_plain_words_reach_a_batch_file_without_quotes() -> None:
    line = command_line([SCRIPT, "install", "--save-dev", "@types/node", "a b", "x=y", ""], CMD)
    assert line.arguments.endswith('/c ""C:\\npm dir\\npx.cmd" install --save-dev @types/node "a b" "x=y" """')


@pure_parts
def test_text_for_cmd_stays_as_written() -> None:
    text = 'echo "a b" & dir "C:\\x y\\"'
    line = command_line(["C:\\Windows\\System32\\CMD.EXE", "/d", "/s", "/c", text], CMD)
    assert line.text == f'"C:\\Windows\\System32\\CMD.EXE" /d /s /c "{text}"'
    # Without /s cmd.exe guesses what the quotes mean, so the ordinary quoting is kept.
    assert command_line(["cmd", "/c", 'say "x"'], CMD).text == r'"cmd" /c "say \"x\""'


@pure_parts
def test_lines_longer_than_windows_takes_are_refused_before_the_start() -> None:
    room = 32_766 - len(f'"{PROGRAM}" ')
    assert len(command_line([PROGRAM, "a" * room], CMD).text) == 32_766
    with pytest.raises(InvalidCommandError, match="32767 characters and Windows takes 32766"):
        command_line([PROGRAM, "a" * (room + 1)], CMD)
    with pytest.raises(InvalidCommandError, match="Windows takes 32766"):
        command_line([PROGRAM, "\N{GRINNING FACE}" * 16_380], CMD)
    with pytest.raises(InvalidCommandError, match="Windows takes 8191"):
        command_line([SCRIPT, "a" * 8_191], CMD)


@pure_parts
def test_nul_in_an_argument_is_refused() -> None:
    with pytest.raises(InvalidCommandError, match=r"'a\\x00b'"):
        command_line([PROGRAM, "a\0b"], CMD)


@pure_parts
def test_the_environment_block_is_sorted_terminated_and_without_duplicates() -> None:
    env = {
        "path": "1",
        "B_": "2",
        "=C:": "C:\\",
        "Path": "3",
        "ba": "4",
        "\N{LATIN SMALL LETTER SHARP S}": "5",
    }
    assert windows_environment(env) == {
        "=C:": "C:\\",
        "ba": "4",
        "B_": "2",
        "Path": "3",
        "\N{LATIN SMALL LETTER SHARP S}": "5",
    }
    assert environment_block(env) == ("=C:=C:\\\0ba=4\0B_=2\0Path=3\0\N{LATIN SMALL LETTER SHARP S}=5\0\0")
    assert list(windows_environment(env))[1:3] == ["ba", "B_"]
    assert environment_block({}) == "\0\0"


@pure_parts
@pytest.mark.parametrize(("name", "value"), [("", "x"), ("A=B", "x"), ("A\0", "x"), ("A", "x\0y")])
def test_an_environment_windows_cannot_hold_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidCommandError, match="not an environment variable"):
        environment_block({name: value})


@pure_parts
def test_job_structures_have_the_layout_of_64_bit_windows() -> None:
    basic, extended = job_windows.BasicLimits, job_windows.ExtendedLimits
    assert ctypes.sizeof(basic) == 64
    assert ctypes.sizeof(job_windows.IoCounters) == 48
    assert ctypes.sizeof(extended) == 144
    offsets = {name: getattr(basic, name).offset for name in ("limit_flags", "minimum_working_set", "affinity")}
    assert offsets == {"limit_flags": 16, "minimum_working_set": 24, "affinity": 48}
    offsets = {name: getattr(extended, name).offset for name in ("basic", "io", "process_memory_limit")}
    assert offsets == {"basic": 0, "io": 64, "process_memory_limit": 112}


@pure_parts
def test_process_ids_are_read_from_a_list_that_may_be_cut_short() -> None:
    head = b"\x03\0\0\0" + b"\x02\0\0\0"
    ids = (4242).to_bytes(8, "little") + (7).to_bytes(8, "little")
    assert job_windows.process_ids_in(head + ids + bytes(64)) == ([4242, 7], 3)


@pure_parts
def test_every_refusal_of_windows_becomes_the_error_that_names_it() -> None:
    kinds = {
        2: ProgramNotFoundError,
        4: TooManyOpenFilesError,
        5: ProgramNotRunnableError,
        8: TooManyProcessesError,
        193: ProgramNotRunnableError,
        206: InvalidCommandError,
        267: WorkingDirectoryError,
        740: ProgramNotRunnableError,
        1455: TooManyProcessesError,
        9999: StartError,
    }
    assert {code: type(start_error(code, PROGRAM, "C:\\d")) for code in kinds} == kinds
    for code in kinds:
        assert repr(PROGRAM) in str(start_error(code, PROGRAM, "C:\\d"))


@pure_parts
def test_the_console_hosts_first_questions_are_answered_and_nothing_else() -> None:
    assert startup_answer(b"\x1b[6n\x1b[c\x1b[?1004h") == b"\x1b[1;1R\x1b[?62;22c"
    assert startup_answer(b"\x1b[c\x1b[?9001h") == b"\x1b[?62;22c"
    assert startup_answer(b"\x1b[>c hello \x1b[2J") == b""


@pytest.mark.requirement("001:risk:cross-platform")
def test_the_working_directory_may_not_leave_its_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "inner").mkdir(parents=True)
    (root / "file").touch()
    (tmp_path / "root2").mkdir()
    (root / "out").symlink_to(tmp_path / "root2")
    (root / "within").symlink_to(root / "inner")
    assert directory_beneath(str(root), ".") == str(root)
    assert directory_beneath(str(root), "within") == str(root / "inner")
    for relative, words in (("out", "leads outside"), ("file", "not a directory"), ("gone", "create it")):
        with pytest.raises(WorkingDirectoryError, match=words):
            directory_beneath(str(root), relative)
