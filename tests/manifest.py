"""The manifest of requirements held against the tests, both read as text: nothing is imported or run."""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

DOCUMENTS = ("000", "001", "002", "003", "004", "design")
STATES = ("planned", "built")
_FIELDS = {"id", "document", "text", "state"}
_ID = re.compile(r"(?:00[0-4]|design)(?::[a-z0-9]+(?:[.-][a-z0-9]+)*)+")
_MARK = "requirement"


class ManifestError(ValueError):
    """The manifest, or a mark in a test, cannot be understood."""


@dataclass(frozen=True, slots=True)
class Row:
    """One promise: where it stands, what it says and whether it is kept yet."""

    id: str
    document: str
    text: str
    state: str


@dataclass(frozen=True, slots=True)
class Case:
    """One test function and the rows it names."""

    name: str
    rows: tuple[str, ...]


def read_rows(manifest: str) -> list[Row]:
    """The rows of a manifest."""
    tables = tomllib.loads(manifest).get("requirement")
    if not isinstance(tables, list) or not tables:
        raise ManifestError("the manifest has no [[requirement]] table")
    return [_row(table) for table in cast("list[object]", tables)]


def read_cases(source: str, file: str) -> list[Case]:
    """The test functions of one file, each with the rows that it, its class and its module name."""
    return list(_File(file, ast.parse(source, file)).cases())


def read_tree(directory: Path) -> list[Case]:
    """The test functions of every test file below `directory`."""
    return [
        case
        for path in sorted(directory.rglob("test_*.py"))
        for case in read_cases(path.read_text(encoding="utf-8"), path.relative_to(directory).as_posix())
    ]


def problems(rows: Sequence[Row], cases: Sequence[Case]) -> list[str]:
    """Everything on which manifest and tests disagree, one sentence each; empty when they agree."""
    return [*_malformed(rows), *_unsettled(rows, cases), *_misnamed(rows, cases)]


def _row(table: object) -> Row:
    fields = cast("dict[str, object]", table) if isinstance(table, dict) else {}
    if fields.keys() != _FIELDS or not all(isinstance(value, str) for value in fields.values()):
        raise ManifestError(f"a row needs exactly the strings id, document, text and state: {table!r}")
    return Row(**cast("dict[str, str]", fields))


def _malformed(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        if not _ID.fullmatch(row.id):
            yield f"row {row.id!r}: malformed id; write it like '003:dod:timeout'"
        if row.document not in DOCUMENTS or row.id.partition(":")[0] != row.document:
            yield f"row {row.id!r}: document {row.document!r} is not the one its id begins with"
        if row.text != row.text.strip() or not row.text.endswith("."):
            yield f"row {row.id!r}: the text is no sentence: {row.text!r}"
        if row.state not in STATES:
            yield f"row {row.id!r}: state {row.state!r} is neither of {', '.join(STATES)}"
    for identity, count in Counter(row.id for row in rows).items():
        if count > 1:
            yield f"row {identity!r}: the id stands {count} times"


def _unsettled(rows: Sequence[Row], cases: Sequence[Case]) -> Iterator[str]:
    named = {identity: case.name for case in cases for identity in case.rows}
    for row in rows:
        if row.state == "built" and row.id not in named:
            yield f"row {row.id!r}: built, but no test names it; write the test or call it planned"
        if row.state == "planned" and row.id in named:
            yield f"row {row.id!r}: planned, but named by {named[row.id]}; a row with a test is built"


def _misnamed(rows: Sequence[Row], cases: Sequence[Case]) -> Iterator[str]:
    known = {row.id for row in rows}
    for case in cases:
        if not case.rows:
            yield f"test {case.name}: names no row; add @pytest.mark.requirement(...)"
        for identity in case.rows:
            if identity not in known:
                yield f"test {case.name}: names the unknown row {identity!r}"


class _File:
    """One test file; marks may be written in place or kept under a name of the module."""

    def __init__(self, name: str, module: ast.Module) -> None:
        self._name = name
        self._body = module.body
        self._kept: dict[str, tuple[str, ...]] = {}
        for target, value in _assignments(module.body):
            self._kept[target] = self._marks([value], name)

    def cases(self) -> Iterator[Case]:
        return self._cases(self._body, self._name, self._kept.get("pytestmark", ()))

    def _cases(self, body: Iterable[ast.AST], owner: str, inherited: tuple[str, ...]) -> Iterator[Case]:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
                name = f"{owner}::{node.name}"
                yield Case(name, (*inherited, *self._marks(node.decorator_list, name)))
            elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
                name = f"{owner}::{node.name}"
                assigned = [value for target, value in _assignments(node.body) if target == "pytestmark"]
                own = self._marks([*node.decorator_list, *assigned], name)
                yield from self._cases(node.body, name, (*inherited, *own))
            elif isinstance(node, ast.If | ast.Try | ast.ExceptHandler | ast.With):
                yield from self._cases(ast.iter_child_nodes(node), owner, inherited)

    def _marks(self, expressions: Iterable[ast.expr], owner: str) -> tuple[str, ...]:
        """The rows of every requirement mark in `expressions`, also of those inside lists and parameters."""
        rows: list[str] = []
        for expression in expressions:
            for node in ast.walk(expression):
                if isinstance(node, ast.Name):
                    rows += self._kept.get(node.id, ())
                elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == _MARK:
                    rows += [_literal(argument, owner) for argument in node.args]
        return tuple(rows)


def _assignments(body: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    for node in body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value


def _literal(argument: ast.expr, owner: str) -> str:
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        return argument.value
    raise ManifestError(f"test {owner}: a row is named by a plain string, not by {ast.unparse(argument)!r}")
