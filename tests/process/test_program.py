"""Which program a name means, and what is said when it means none."""

import contextlib
import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from tether.errors import ProgramNotFoundError, ProgramNotRunnableError
from tether.process.program import MOST_NAMES_COMPARED, find_program, locate


def executable(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def plain_file(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("text\n", encoding="utf-8")
    path.chmod(0o644)
    return str(path)


def search_path(*directories: Path | str) -> dict[str, str]:
    return {"PATH": ":".join(map(str, directories))}


def windows_path(*directories: Path | str, **more: str) -> dict[str, str]:
    return {"Path": ";".join(map(str, directories)), **more}


@contextlib.contextmanager
def closed_directory(path: Path) -> Generator[str]:
    """A directory that this process may not look into meanwhile, even where the tests run as root."""
    was_root = sys.platform == "linux" and os.geteuid() == 0
    path.mkdir()
    path.chmod(0)
    if was_root:
        os.setresuid(65534, 65534, 0)
    try:
        yield str(path)
    finally:
        if was_root:
            os.setresuid(0, 0, 0)
        path.chmod(0o755)


def remedy(name: str, *, env: dict[str, str], cwd: Path, platform: str = "linux") -> str:
    with pytest.raises(ProgramNotFoundError) as caught:
        find_program(name, env=env, cwd=str(cwd), platform=platform)
    assert caught.value.program == name
    assert repr(name) in str(caught.value)
    return caught.value.remedy


@pytest.mark.requirement("design:start:path-resolution")
def test_first_runnable_file_in_the_childs_path_wins(tmp_path: Path) -> None:
    plain_file(tmp_path / "a" / "tool")
    (tmp_path / "b" / "tool").mkdir(parents=True)
    wanted = executable(tmp_path / "c" / "tool")
    executable(tmp_path / "d" / "tool")
    env = search_path(tmp_path / "missing", *(tmp_path / name for name in "abcd"))
    assert find_program("tool", env=env, cwd=str(tmp_path), platform="linux") == wanted


@pytest.mark.requirement("design:start:path-resolution")
@pytest.mark.parametrize("entry", ["bin", "./bin"])
def test_relative_path_entry_starts_at_the_childs_directory(tmp_path: Path, entry: str) -> None:
    wanted = executable(tmp_path / "bin" / "tool")
    found = find_program("tool", env=search_path(entry), cwd=str(tmp_path), platform="linux")
    assert os.path.normpath(found) == wanted


@pytest.mark.requirement("design:start:path-resolution")
@pytest.mark.parametrize("path", ["", ":/nowhere", "/nowhere:", "/nowhere::/nowhere"])
def test_empty_path_entry_is_the_childs_directory(tmp_path: Path, path: str) -> None:
    wanted = executable(tmp_path / "tool")
    assert find_program("tool", env={"PATH": path}, cwd=str(tmp_path), platform="linux") == wanted


@pytest.mark.requirement("design:start:path-resolution")
def test_unset_path_is_the_systems_default(tmp_path: Path) -> None:
    found = find_program("sh", env={}, cwd=str(tmp_path), platform="linux")
    assert found in [f"{directory}/sh" for directory in os.defpath.split(":")]


@pytest.mark.requirement("003:5:direct-resolution")
@pytest.mark.parametrize("name", ["./tool", "bin/../tool", "bin/inner"])
def test_name_with_a_slash_is_taken_from_the_childs_directory_alone(tmp_path: Path, name: str) -> None:
    executable(tmp_path / "tool")
    executable(tmp_path / "bin" / "inner")
    executable(tmp_path / "elsewhere" / "tool")
    env = search_path(tmp_path / "elsewhere")
    assert find_program(name, env=env, cwd=str(tmp_path), platform="linux") == os.path.join(tmp_path, name)


@pytest.mark.requirement("003:5:direct-resolution")
def test_absolute_path_and_link_are_taken_as_they_are(tmp_path: Path) -> None:
    wanted = executable(tmp_path / "tool")
    link = tmp_path / "link"
    link.symlink_to(wanted)
    assert find_program(wanted, env={}, cwd="/", platform="linux") == wanted
    assert find_program(str(link), env={}, cwd="/", platform="linux") == str(link)


@pytest.mark.requirement("design:start:path-resolution")
def test_locate_gives_an_absolute_path_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = executable(tmp_path / "bin" / "tool")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "bin")
    assert locate("tool") == wanted
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert locate("tool") == wanted
    assert locate("no-such-tool") is None
    assert locate("") is None


@pytest.mark.requirement("design:start:errors:no-permission")
@pytest.mark.parametrize("name", ["tool", "./bin/tool"])
def test_file_that_is_not_executable_is_named_with_chmod(tmp_path: Path, name: str) -> None:
    path = plain_file(tmp_path / "bin" / "tool")
    with pytest.raises(ProgramNotRunnableError, match="is not executable; run chmod") as caught:
        find_program(name, env=search_path(tmp_path / "bin"), cwd=str(tmp_path), platform="linux")
    assert repr(name) in str(caught.value)
    assert os.path.basename(path) in str(caught.value)


@pytest.mark.requirement("design:start:errors:no-permission")
def test_directory_dangling_link_and_socket_are_no_programs(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "dangling").symlink_to("gone")
    os.mkfifo(tmp_path / "fifo")
    for name, reason in (
        ("folder", "is a directory"),
        ("dangling", "'gone', which is missing"),
        ("fifo", "regular"),
    ):
        for spelled in (name, f"./{name}"):
            with pytest.raises(ProgramNotRunnableError, match=reason):
                find_program(spelled, env=search_path(tmp_path), cwd=str(tmp_path), platform="linux")


@pytest.mark.requirement("design:start:errors:no-permission")
def test_directory_closed_to_us_matters_only_to_a_program_named_inside_it(tmp_path: Path) -> None:
    with closed_directory(tmp_path / "closed") as closed:
        with pytest.raises(ProgramNotRunnableError, match="closed to this user"):
            find_program(f"{closed}/tool", env={}, cwd="/", platform="linux")
        assert find_program("sh", env=search_path(closed, "/bin"), cwd="/", platform="linux") == "/bin/sh"
        with pytest.raises(ProgramNotFoundError) as caught:
            find_program("zzz-missing", env=search_path(closed), cwd="/", platform="linux")
    assert caught.value.searched == (closed,)


@pytest.mark.requirement("000:errors:start:diagnosis")
def test_missing_program_names_each_searched_place_once(tmp_path: Path) -> None:
    env = search_path("/nowhere/a", "bin", "/nowhere/a", "")
    with pytest.raises(ProgramNotFoundError) as caught:
        find_program("zzz-missing", env=env, cwd=str(tmp_path), platform="linux")
    assert caught.value.searched == ("/nowhere/a", str(tmp_path / "bin"), str(tmp_path))
    assert caught.value.remedy == "install it, or pass its absolute path"


@pytest.mark.requirement("000:errors:start:remedy")
@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("claude", "npm install -g @anthropic-ai/claude-code"),
        ("npm", "install Node.js"),
        ("python", "python3"),
        ("cargo", "rustup"),
        ("ls -l", "whole command line"),
        ("/bin/ls -l", "whole command line"),
        ("cd", "shell builtin"),
        (".", "shell builtin"),
        ("source", "shell builtin"),
        ("export", "shell builtin"),
        ("DEBUG=1", "set 'DEBUG' in the environment"),
        ("./missing", "no such file"),
        ("/no/such/program", "no such file"),
        ("", "install it"),
        ("x" * 5000, "install it"),
    ],
)
def test_missing_program_comes_with_a_likely_remedy(tmp_path: Path, name: str, advice: str) -> None:
    assert advice in remedy(name, env=search_path(tmp_path / "empty"), cwd=tmp_path)


@pytest.mark.requirement("000:errors:start:remedy")
@pytest.mark.parametrize(("slip", "meant"), [("grpe", "grep"), ("gti", "git"), ("pytho3", "python3")])
def test_slip_of_the_fingers_is_recognised(tmp_path: Path, slip: str, meant: str) -> None:
    for name in ("grep", "git", "python3", "awk", "unrelated"):
        executable(tmp_path / "bin" / name)
    assert f"did you mean {meant!r}" in remedy(slip, env=search_path(tmp_path / "bin"), cwd=tmp_path)


@pytest.mark.requirement("000:errors:start:remedy")
def test_number_of_names_compared_is_bounded(tmp_path: Path) -> None:
    crowd = tmp_path / "crowd"
    crowd.mkdir()
    for number in range(MOST_NAMES_COMPARED):
        (crowd / f"a-long-and-unrelated-name-{number}").touch()
    executable(tmp_path / "bin" / "grep")
    assert "grep" in remedy("grpe", env=search_path(tmp_path / "bin", crowd), cwd=tmp_path)
    assert "grep" not in remedy("grpe", env=search_path(crowd, tmp_path / "bin"), cwd=tmp_path)


@pytest.mark.requirement("000:errors:start:remedy")
@pytest.mark.parametrize("place", ["", "node_modules/.bin/", ".venv/bin/", "venv/bin/"])
def test_program_of_the_project_itself_is_pointed_at(tmp_path: Path, place: str) -> None:
    executable(tmp_path / place / "eslint")
    assert f"'./{place}eslint'" in remedy("eslint", env=search_path("/nowhere"), cwd=tmp_path)


@pytest.mark.requirement("003:5:pathext")
@pytest.mark.parametrize(
    ("name", "present", "found"),
    [
        ("tool", ("tool.exe",), "tool.exe"),
        ("tool", ("tool.bat", "tool.cmd"), "tool.bat"),
        ("npm", ("npm", "npm.cmd", "npm.ps1"), "npm.cmd"),
        ("tool", ("tool.js", "tool.cmd"), "tool.cmd"),
        ("tool.exe", ("tool.exe", "tool.exe.exe"), "tool.exe"),
        ("tool.cmd", ("tool.cmd.exe",), "tool.cmd.exe"),
        ("python3.11", ("python3.11", "python3.11.exe"), "python3.11.exe"),
    ],
)
def test_windows_search_completes_the_extension(
    tmp_path: Path, name: str, present: tuple[str, ...], found: str
) -> None:
    for file in present:
        plain_file(tmp_path / "bin" / file)
    env = windows_path("", '"' + str(tmp_path / "bin") + '"')
    assert find_program(name, env=env, cwd=str(tmp_path), platform="win32") == str(tmp_path / "bin" / found)


@pytest.mark.requirement("design:start:pathext")
@pytest.mark.parametrize(
    ("extensions", "found"),
    [
        (".COM;.EXE;.BAT;.CMD;.JS", "tool.exe"),
        (".CMD;.EXE", "tool.cmd"),
        (".JS", "tool.exe"),
        ("", "tool.exe"),
    ],
)
def test_windows_search_follows_the_order_of_pathext_in_any_case(tmp_path: Path, extensions: str, found: str) -> None:
    for file in ("tool.js", "tool.exe", "tool.cmd"):
        plain_file(tmp_path / "bin" / file)
    env = windows_path(tmp_path / "bin", PathExt=extensions)
    assert find_program("tool", env=env, cwd="/nowhere", platform="win32") == str(tmp_path / "bin" / found)


@pytest.mark.requirement("003:3.1:resolution")
def test_windows_looks_in_the_current_directory_first_unless_told_not_to(tmp_path: Path) -> None:
    here = plain_file(tmp_path / "work" / "tool.exe")
    installed = plain_file(tmp_path / "bin" / "tool.exe")
    cwd = str(tmp_path / "work")
    env = windows_path(tmp_path / "bin")
    assert find_program("tool", env=env, cwd=cwd, platform="win32") == here
    env["NODEFAULTCURRENTDIRECTORYINEXEPATH"] = "1"
    assert find_program("tool", env=env, cwd=cwd, platform="win32") == installed


@pytest.mark.requirement("003:3.1:resolution")
@pytest.mark.parametrize("name", ["sub\\tool", "sub/tool.exe", ".\\sub\\tool"])
def test_windows_path_with_either_separator_starts_at_the_childs_directory(tmp_path: Path, name: str) -> None:
    wanted = plain_file(tmp_path / "sub" / "tool.exe")
    plain_file(tmp_path / "bin" / "tool.exe")
    found = find_program(name, env=windows_path(tmp_path / "bin"), cwd=str(tmp_path), platform="win32")
    assert os.path.normpath(found) == wanted


@pytest.mark.requirement("design:start:errors:missing-program")
def test_windows_failures_say_where_and_what(tmp_path: Path) -> None:
    plain_file(tmp_path / "bin" / "script")
    plain_file(tmp_path / "bin" / "Grep.EXE")
    plain_file(tmp_path / "bin" / "manual.txt")
    plain_file(tmp_path / "node_modules" / ".bin" / "eslint.cmd")
    env = windows_path(tmp_path / "bin", NoDefaultCurrentDirectoryInExePath="1")
    with pytest.raises(ProgramNotRunnableError, match="not a program"):
        find_program("script", env=env, cwd=str(tmp_path), platform="win32")
    with pytest.raises(ProgramNotFoundError) as caught:
        find_program("sub\\tool", env=env, cwd=str(tmp_path), platform="win32")
    assert caught.value.searched == (str(tmp_path / "sub"),)
    assert "did you mean 'grep'" in remedy("GRPE", env=env, cwd=tmp_path, platform="win32")
    assert "shell builtin" in remedy("DIR", env=env, cwd=tmp_path, platform="win32")
    assert "PowerShell 7" in remedy("pwsh.exe", env=env, cwd=tmp_path, platform="win32")
    assert "node_modules" in remedy("eslint", env=env, cwd=tmp_path, platform="win32")


@pytest.mark.requirement("003:3.1:resolution")
def test_default_platform_is_this_one() -> None:
    assert os.path.samefile(find_program(sys.executable, env={}, cwd="/"), sys.executable)
