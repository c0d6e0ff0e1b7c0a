"""The installed package: what it needs, what importing it costs, and that its parts agree."""

import ast
import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import kafkalite
from kafkalite import _native, errors

ROOT = Path(__file__).resolve().parents[2]
WHEEL_BYTES_MAX = 20 * 1024 * 1024


def modules_after(statement: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded once the statement has run."""
    before = "import sys; known = set(sys.modules)"
    after = "print(*sorted({name.split('.')[0] for name in set(sys.modules) - known}))"
    told = subprocess.run(
        [sys.executable, "-I", "-c", f"{before}; {statement}; {after}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(told.stdout.split())


def test_a_bare_install_pulls_nothing() -> None:
    needs = importlib.metadata.requires("kafkalite") or []
    assert [need for need in needs if "extra ==" not in need] == []


def test_importing_the_package_loads_the_compiled_module_and_little_else() -> None:
    assert modules_after("import kafkalite") <= {"kafkalite", "typing", "importlib", "warnings"} | {
        # What typing itself imports.
        *modules_after("import typing, importlib"),
    }


def test_the_versions_agree() -> None:
    assert kafkalite.__version__ == _native.__version__ == importlib.metadata.version("kafkalite")


@pytest.mark.parametrize("package", [kafkalite, kafkalite.client])
def test_every_public_name_can_be_imported(package: ModuleType) -> None:
    for name in package.__all__:
        assert getattr(package, name) is not None
    assert set(package.__all__) <= set(dir(package))


@pytest.mark.parametrize("package", [kafkalite, kafkalite.client])
def test_type_checkers_see_what_a_program_gets(package: ModuleType) -> None:
    """Every name was `Any` to them, since none but the version was imported for them."""
    tree = ast.parse(Path(str(package.__file__)).read_text(encoding="utf-8"))
    (block,) = (each for each in tree.body if isinstance(each, ast.If))
    imports = [each for each in block.body if isinstance(each, ast.ImportFrom)]
    homes = {name.name: each.module for each in imports for name in each.names}
    assert homes == package._HOMES
    assert set(homes) == set(package.__all__)


def test_the_program_with_types_uses_every_public_name() -> None:
    program = (Path(__file__).parent / "typed_program.py").read_text(encoding="utf-8")
    words = set(re.findall(r"\w+", program))
    assert {*kafkalite.__all__, *kafkalite.client.__all__} <= words


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(kafkalite, "no_such_name")


def test_the_compiled_module_is_small() -> None:
    path = Path(str(_native.__file__))
    assert path.stat().st_size < WHEEL_BYTES_MAX


def test_the_compiled_module_works_with_every_python_from_3_11() -> None:
    assert str(_native.__file__).endswith(".abi3.so")


def test_every_rust_error_has_its_exception_with_the_same_code() -> None:
    door = (ROOT / "rust/src/py/door.rs").read_text()
    classes = dict(re.findall(r'Error::(\w+)[^=\n]*=> "(\w+)"', door))
    text = (ROOT / "rust/src/error.rs").read_text()
    body = text.split("fn kafka_code", 1)[1].split("impl fmt::Display", 1)[0]
    arms = re.findall(r"((?:\|?\s*Error::\w+[^=|]*)+)=> \{?\s*codes::(\w+)", body)
    numbers = (ROOT / "rust/src/codes.rs").read_text()
    value_of = dict(re.findall(r"const (\w+): i16 = (-?\d+);", numbers))
    codes = {
        variant: int(value_of[code])
        for arm, code in arms
        for variant in re.findall(r"Error::(\w+)", arm)
    }
    assert codes
    assert codes.keys() == classes.keys()
    for variant, code in codes.items():
        exception = getattr(errors, classes[variant])
        assert issubclass(exception, errors.KafkaliteError)
        assert (variant, exception.kafka_code) == (variant, code)
