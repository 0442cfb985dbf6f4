"""The house style, as far as a program can read it: names that hide nothing, files and functions of a readable size."""

import ast
import importlib
import inspect
import pkgutil
from collections import defaultdict
from pathlib import Path

import pytest

import kappaflow

ROOT = Path(kappaflow.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
PACKAGES = sorted(str(p.parent.relative_to(ROOT.parent)).replace("/", ".") for p in ROOT.rglob("__init__.py"))
FILE_LINES, FUNCTION_LINES, PARAMETERS = 400, 60, 6
TWICE = {"tables"}  # folders: the readers of tables, and under `build` what makes them
# Still too long or with too many parameters; the list only gets shorter.


def functions(path):
    """Every function of a file with the class it is in, or None: (node, class)."""

    def walk(node, owner):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield child, owner
            yield from walk(child, child if isinstance(child, ast.ClassDef) else owner)

    yield from walk(ast.parse(path.read_text()), None)


def parameters(node, owner):
    """The names a caller gives: all but `self` or `cls`."""
    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
    static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in node.decorator_list)
    return [a.arg for a in given if a is not None][int(owner is not None and not static) :]


def is_command(node, path):
    """Whether typer makes a command of it, whose parameters are the list of its options."""
    return path.stem.endswith("_command") and not node.name.startswith("_")


def place(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("name", PACKAGES)
def test_no_public_name_of_a_package_hides_a_module_of_it(name):
    package = importlib.import_module(name)
    modules = {found.name for found in pkgutil.iter_modules(package.__path__)}
    public = getattr(package, "__all__", [n for n in vars(package) if not n.startswith("_")])
    for word in modules & set(public):
        assert inspect.ismodule(getattr(package, word)), f"{name}.{word} is a module and something else"


def test_no_two_modules_have_one_name():
    found = defaultdict(list)
    for path in FILES:
        if path.stem not in {"__init__", "__main__"}:
            found[path.stem].append(place(path))
    folders = defaultdict(list)
    for path in ROOT.rglob("__init__.py"):
        folders[path.parent.name].append(place(path))
    assert {k: v for k, v in found.items() if len(v) > 1} == {}
    assert {k: v for k, v in folders.items() if len(v) > 1 and k not in TWICE} == {}
    assert not found.keys() & folders.keys()


def test_no_two_public_classes_have_one_name():
    found = defaultdict(list)
    for path in FILES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(place(path))
    assert {k: v for k, v in found.items() if len(v) > 1} == {}


def test_completion_offers_everything_public():
    assert set(kappaflow.__all__) <= set(dir(kappaflow))
    for name in kappaflow.__all__:
        assert getattr(kappaflow, name) is not None


@pytest.mark.parametrize("path", FILES, ids=place)
def test_what_a_module_says_is_public_is_there(path):
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    module = importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    assert [name for name in getattr(module, "__all__", ()) if not hasattr(module, name)] == []


@pytest.mark.parametrize("path", FILES, ids=place)
def test_a_file_and_its_functions_are_short_and_take_few_arguments(path):
    assert len(path.read_text().splitlines()) < FILE_LINES
    for node, owner in functions(path):
        command = is_command(node, path)
        first = node.body[0].lineno if command else node.lineno
        assert node.end_lineno - first + 1 < FUNCTION_LINES, node.name
        if not command:
            assert len(parameters(node, owner)) <= PARAMETERS, (node.name, parameters(node, owner))


def test_the_reader_of_functions_counts_lines_and_parameters(tmp_path):
    file = tmp_path / "x.py"
    file.write_text("class A:\n    def f(self, a, *, b=1, **c):\n        def g(d): ...\n        return g\n")
    (f, owner), (g, inner) = functions(file)
    assert parameters(f, owner) == ["a", "b", "c"]
    assert f.end_lineno - f.lineno + 1 == 3
    assert (g.name, inner) == ("g", owner)
