"""KernelBench's own check, for comparison with this project's referee.

    python studies/kernelbench/own_check.py PROBLEM.py NEW

NEW is a file with a ModelNew, or a folder that `kernelsearch export` wrote for such a file. As KernelBench does, both
models are made and given their inputs after the same seed, for five drawn seeds; shapes must be equal, and
`torch.allclose` hold with 1e-2. A GPU is used where there is one. Prints JSON; exit code 1 if the check fails.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

SEED, TRIALS, TOLERANCE = 42, 5, 1e-2


def load_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        sys.exit(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def load_new(path: Path) -> type[torch.nn.Module]:
    """ModelNew of a file, or the only module of an exported package, made not to fall back to the reference."""
    if path.is_file():
        return load_file(path).ModelNew  # type: ignore[no-any-return]
    (package,) = [p.parent for p in path.glob("*/__init__.py") if p.parent.name != "tests"]
    sys.path.insert(0, str(path))
    exported = importlib.import_module(package.name)
    found = {v for v in vars(exported).values() if isinstance(v, type) and issubclass(v, torch.nn.Module)}
    (kind,) = found

    class Strict(kind):  # type: ignore[misc,valid-type]
        """The exported module; NotVerified is raised where the reference would run in its place."""

        def forward(self, *inputs: Any) -> Any:
            return super().forward(*inputs, fallback=False)

    return Strict


def check(problem: ModuleType, new: type[torch.nn.Module], device: str) -> tuple[bool, str]:
    """(Whether KernelBench would call it correct, why not)."""

    def put(values: Any) -> list[Any]:
        return [v.to(device) if isinstance(v, torch.Tensor) else v for v in values]

    def make(kind: type[torch.nn.Module]) -> torch.nn.Module:
        torch.manual_seed(SEED)
        given = problem.get_init_inputs()
        return (kind(**given) if isinstance(given, Mapping) else kind(*put(given))).to(device)

    torch.manual_seed(SEED)
    seeds = [int(torch.randint(0, 2**32 - 1, (1,))) for _ in range(TRIALS)]
    model, other = make(problem.Model), make(new)
    for number, seed in enumerate(seeds):
        torch.manual_seed(seed)
        inputs = put(problem.get_inputs())
        with torch.no_grad():
            expected, got = model(*inputs), other(*inputs)
        if expected.shape != got.shape:
            return False, f"trial {number}: the shape is {tuple(got.shape)}, not {tuple(expected.shape)}"
        if not torch.allclose(expected, got, atol=TOLERANCE, rtol=TOLERANCE):
            return False, f"trial {number}: off by up to {(expected - got).abs().max().item():.3g}"
    return True, ""


def main(problem: str, new: str) -> int:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        correct, why = check(load_file(Path(problem)), load_new(Path(new)), device)
    except Exception as error:  # the candidate's own faults are its verdict, as in KernelBench
        correct, why = False, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    print(json.dumps({"correct": correct, "why": why}))
    return 0 if correct else 1


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit((__doc__ or "").partition("\n\n")[2].partition("\n\n")[0].strip())
    sys.exit(main(*sys.argv[1:]))
