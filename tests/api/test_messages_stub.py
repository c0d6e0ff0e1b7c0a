"""The types of messages say what the classes are that are made of the table."""

import ast
import importlib.util
from pathlib import Path
from types import ModuleType

from kafkalite.protocol import messages

ROOT = Path(__file__).resolve().parents[2]


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("stub", ROOT / "tools/make_messages_stub.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check(node: ast.ClassDef, kind: type[messages.Message]) -> int:
    """Compares a class and the structs within; returns how many."""
    assert node.name == kind._name
    fields = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
    assert [each.id for each in fields if isinstance(each, ast.Name)] == list(kind._fields)
    structs = [each for each in node.body if isinstance(each, ast.ClassDef)]
    assert {each.name for each in structs} == {each._name for each in kind._structs if each}
    return 1 + sum(check(each, getattr(kind, each.name)) for each in structs)


def test_every_class_of_the_stub_has_the_fields_of_the_one_that_is_made() -> None:
    tool = generator()
    tree = ast.parse(tool.stub(tool.TABLE.read_text(encoding="utf-8")))
    classes = [each for each in tree.body if isinstance(each, ast.ClassDef)]
    count = sum(check(each, getattr(messages, each.name)) for each in classes[1:])
    assert count > 500
