"""The pipelines in `spark/` as modules."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "spark"


def pipeline(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program as a module."""
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module(name)
