"""What `import tether` promises: these names, little to load, and an example that works."""

import ast
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

import tether
from tests.helpers import python
from tether.process.run import run

FORBIDDEN = ("mcp", "pydantic", "starlette", "uvicorn", "pyghostty", "click", "msgspec", "acp")


def example() -> tuple[str, str]:
    """The synchronous and the asynchronous half of the example in the package's docstring."""
    assert tether.__doc__ is not None
    indented = [line for line in tether.__doc__.splitlines() if line.startswith("    ") or not line]
    first, mark, second = textwrap.dedent("\n".join(indented)).partition("async with")
    return first, mark + second


@pytest.mark.requirement("design:library:async")
def test_every_public_name_is_there_and_no_other() -> None:
    assert sorted(tether.__all__) == tether.__all__
    assert dir(tether) == tether.__all__
    for name in tether.__all__:
        assert getattr(tether, name).__name__.rpartition(".")[2] == name


@pytest.mark.requirement("design:library:async")
def test_the_type_checker_is_told_the_same_names() -> None:
    source = ast.parse(Path(tether.__file__).read_text(encoding="utf-8"))
    imported = [alias.name for node in ast.walk(source) if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(name for name in imported if name != "TYPE_CHECKING") == tether.__all__


@pytest.mark.requirement("design:library:async")
def test_every_public_name_says_what_it_is() -> None:
    assert [name for name in tether.__all__ if not getattr(tether, name).__doc__] == []


@pytest.mark.requirement("design:library:async")
def test_a_name_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(AttributeError, match=r"'spawn'; it has .*open_process"):
        getattr(tether, "spawn")  # noqa: B009 - a type checker would refuse the plain spelling


@pytest.mark.requirement("design:library:light")
def test_importing_everything_loads_nothing_heavy() -> None:
    code = f"""
    import sys
    from tether import *
    assert callable(run)
    print(*[name for name in {FORBIDDEN!r} if name in sys.modules])
    """
    result = run(python(code))
    assert (result.stdout, result.stderr, result.exit_code) == ("\n", "", 0)


@pytest.mark.requirement("design:library:light")
def test_running_a_command_loads_nothing_heavy() -> None:
    code = f"""
    import sys, tether
    assert tether.run("true").exit_code == 0
    print(*[name for name in {FORBIDDEN!r} if name in sys.modules])
    """
    result = run(python(code))
    assert (result.stdout, result.stderr, result.exit_code) == ("\n", "", 0)


@pytest.mark.requirement("design:library:sync")
def test_the_synchronous_example_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "Makefile").write_text("test:\n\t@echo all passed\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    exec(compile(example()[0], "example", "exec"), {})
    assert capfd.readouterr().out == "all passed\n\n"


@pytest.mark.requirement("design:library:async")
async def test_the_asynchronous_example_works() -> None:
    body = textwrap.indent(example()[1], "    ").rstrip()
    source = f"import re\nimport tether\nasync def example():\n{body}\n        return process.output.read(0).data\n"
    names: dict[str, object] = {}
    exec(compile(source, "example", "exec"), names)
    shown = await cast("Callable[[], Awaitable[bytes]]", names["example"])()
    assert b"6 * 7" in shown
    assert b"\n42" in shown
