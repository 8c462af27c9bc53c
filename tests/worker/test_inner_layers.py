"""The worker's packages import one way: what runs unknown code never reaches for the driver's side."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "kernelsearch" / "worker"
LAYERS = (
    "messages isolation patience",
    "launcher",
    "judging",
    "interpreter gpu compiler",
    "child processes",
    "cache running",
    "bench",
    "findings descriptor interpreted",
    "estimating confirm",
)
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer.split()}


def package(path):
    return path.relative_to(ROOT).with_suffix("").parts[0]


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kernelsearch.worker"):
            yield from [node.module] if node.module.count(".") > 1 else [f"{node.module}.{a.name}" for a in node.names]
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("kernelsearch.worker."))


@pytest.mark.parametrize("name", sorted(RANK))
def test_a_package_imports_from_the_left_only(name):
    files = [p for p in ROOT.rglob("*.py") if package(p) == name]
    assert files, f"{name} is gone: mend LAYERS"
    found = {other.split(".")[2] for path in files for other in imported(path)} - {name}
    assert not [other for other in found if RANK[other] >= RANK[name]]


def test_every_module_has_a_place():
    assert {package(p) for p in ROOT.rglob("*.py")} - {"__init__"} == set(RANK)
