"""Every built requirement has a test, and every test names a built requirement."""

import textwrap
from pathlib import Path

import pytest

from tests.manifest import Case, ManifestError, Row, problems, read_cases, read_rows, read_tree

pytestmark = pytest.mark.requirement("design:requirements")

HERE = Path(__file__).parent
BUILT = Row("003:dod:timeout", "003", "A timeout keeps the output.", "built")
PLANNED = Row("004:14:claude", "004", "The adapter talks.", "planned")


def cases(source: str) -> list[Case]:
    return read_cases(textwrap.dedent(source), "test_sample.py")


def named(source: str) -> list[tuple[str, ...]]:
    return [case.rows for case in cases(source)]


def test_manifest_and_tests_agree() -> None:
    rows = read_rows((HERE / "requirements.toml").read_text(encoding="utf-8"))
    found = problems(rows, read_tree(HERE))
    assert not found, "\n" + "\n".join(found)


def test_every_document_has_rows() -> None:
    rows = read_rows((HERE / "requirements.toml").read_text(encoding="utf-8"))
    assert {row.document for row in rows} == {"000", "001", "002", "003", "004", "design"}


def test_a_built_row_with_a_test_and_a_planned_row_without_agree() -> None:
    assert problems([BUILT, PLANNED], [Case("t", (BUILT.id,))]) == []


def test_a_built_row_without_a_test_is_told() -> None:
    (problem,) = problems([BUILT], [])
    assert problem.startswith("row '003:dod:timeout': built, but no test names it")


def test_a_test_without_a_row_is_told() -> None:
    (problem,) = problems([PLANNED], [Case("test_a.py::test_b", ())])
    assert problem.startswith("test test_a.py::test_b: names no row")


def test_a_test_of_an_unknown_row_is_told() -> None:
    (problem,) = problems([BUILT], [Case("t", (BUILT.id, "003:dod:tiemout"))])
    assert problem == "test t: names the unknown row '003:dod:tiemout'"


def test_a_test_of_a_planned_row_is_told() -> None:
    (problem,) = problems([BUILT, PLANNED], [Case("t", (BUILT.id, PLANNED.id))])
    assert problem == "row '004:14:claude': planned, but named by t; a row with a test is built"


def test_a_row_that_stands_twice_is_told() -> None:
    assert problems([PLANNED, PLANNED], []) == ["row '004:14:claude': the id stands 2 times"]


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (Row("003", "003", "A sentence.", "planned"), "malformed id"),
        (Row("003:", "003", "A sentence.", "planned"), "malformed id"),
        (Row("003:Timeout", "003", "A sentence.", "planned"), "malformed id"),
        (Row("003:a b", "003", "A sentence.", "planned"), "malformed id"),
        (Row("003:a:b-", "003", "A sentence.", "planned"), "malformed id"),
        (Row("003:a", "004", "A sentence.", "planned"), "document '004' is not the one"),
        (Row("003:a", "003", "", "planned"), "no sentence"),
        (Row("003:a", "003", "No stop", "planned"), "no sentence"),
        (Row("003:a", "003", "A sentence.", "done"), "state 'done' is neither"),
    ],
)
def test_a_malformed_row_is_told(row: Row, complaint: str) -> None:
    (problem,) = problems([row], [])
    assert complaint in problem


@pytest.mark.parametrize("identity", ["000:pty:create", "002:4.1", "004:8:ask-every-time", "design:scale:1000"])
def test_well_formed_ids_are_taken(identity: str) -> None:
    assert problems([Row(identity, identity.partition(":")[0], "A sentence.", "planned")], []) == []


@pytest.mark.parametrize(
    "manifest",
    [
        "",
        "requirement = 3",
        "[[requirement]]\nid = '003:a'",
        "[[requirement]]\nid = '003:a'\ndocument = '003'\ntext = 'A.'\nstate = 'built'\nnote = 'x'",
        "[[requirement]]\nid = 3\ndocument = '003'\ntext = 'A.'\nstate = 'built'",
    ],
)
def test_a_manifest_of_another_shape_is_refused(manifest: str) -> None:
    with pytest.raises(ManifestError, match=r"no \[\[requirement\]\] table|exactly the strings"):
        read_rows(manifest)


def test_rows_are_read() -> None:
    manifest = "[[requirement]]\nid = '003:a'\ndocument = '003'\ntext = 'A.'\nstate = 'built'"
    assert read_rows(manifest) == [Row("003:a", "003", "A.", "built")]


def test_marks_of_functions_are_read() -> None:
    source = """
        @pytest.mark.requirement("a")
        def test_one(): ...

        @pytest.mark.requirement("b", "c")
        @pytest.mark.requirement("d")
        async def test_several(): ...

        def test_none(): ...

        @pytest.mark.requirement("e")
        def helper(): ...
    """
    assert cases(source) == [
        Case("test_sample.py::test_one", ("a",)),
        Case("test_sample.py::test_several", ("b", "c", "d")),
        Case("test_sample.py::test_none", ()),
    ]


def test_marks_of_classes_and_their_methods_are_read() -> None:
    source = """
        @pytest.mark.requirement("a")
        class TestOuter:
            pytestmark = [pytest.mark.long, pytest.mark.requirement("b")]

            @pytest.mark.requirement("c")
            def test_method(self): ...

            class TestInner:
                def test_deep(self): ...

        class Helper:
            def test_like(self): ...
    """
    assert cases(source) == [
        Case("test_sample.py::TestOuter::test_method", ("a", "b", "c")),
        Case("test_sample.py::TestOuter::TestInner::test_deep", ("a", "b")),
    ]


@pytest.mark.parametrize(
    "marks", ['pytest.mark.requirement("a")', '[pytest.mark.requirement("a"), pytest.mark.long]']
)
def test_the_mark_of_a_module_holds_for_all_its_tests(marks: str) -> None:
    assert named(f"pytestmark = {marks}\ndef test_b(): ...\nasync def test_c(): ...") == [("a",), ("a",)]


def test_marks_of_parameters_are_read() -> None:
    source = """
        @pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.requirement("a")), 2])
        def test_x(x): ...
    """
    assert named(source) == [("a",)]


def test_a_mark_kept_under_a_name_is_read() -> None:
    source = """
        keeps_output = pytest.mark.requirement("a")
        both = [keeps_output, pytest.mark.requirement("b")]
        @keeps_output
        @pytest.mark.parametrize("x", LIMITS)
        def test_function(x): ...

        class TestClass:
            pytestmark = both
            def test_method(self): ...
    """
    assert [set(rows) for rows in named(source)] == [{"a"}, {"a", "b"}]


def test_tests_defined_on_a_condition_are_found() -> None:
    source = """
        if sys.platform == "linux":
            @pytest.mark.requirement("a")
            def test_here(): ...
        else:
            def test_elsewhere(): ...

        try:
            import curses
        except ImportError:
            @pytest.mark.requirement("b")
            def test_without(): ...
    """
    assert named(source) == [("a",), (), ("b",)]


def test_a_row_named_by_anything_but_a_plain_string_is_refused() -> None:
    with pytest.raises(
        ManifestError, match=r"test_sample\.py::test_x: a row is named by a plain string, not by 'ROW'"
    ):
        cases("@pytest.mark.requirement(ROW)\ndef test_x(): ...")


def test_test_files_are_found_in_every_folder(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "test_top.py").write_text("def test_a(): ...", encoding="utf-8")
    (tmp_path / "deep" / "er" / "test_low.py").write_text("def test_b(): ...", encoding="utf-8")
    (tmp_path / "deep" / "helpers.py").write_text("def test_c(): ...", encoding="utf-8")
    assert [case.name for case in read_tree(tmp_path)] == [
        "deep/er/test_low.py::test_b",
        "test_top.py::test_a",
    ]
