"""Reads from TorchInductor's source which configs it would try for each of its kernels, and adds larger products."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any
from unittest import mock

from torch._inductor.runtime import triton_heuristics

LARGE_PRODUCT = {"YBLOCK": 128, "R0_BLOCK": 64, "num_warps": 8, "num_stages": 3}
"""A tile that Inductor does not try for its own products. On an H100 it takes 1526 us for 1024x8192x8192 in tf32x3,
where the best of Inductor's 19 configs takes 1746 (float32 by the library: 2650)."""


def read_configs(text: str) -> dict[str, tuple[Mapping[str, int], ...]]:
    """The configs that Inductor would try, by kernel, and a larger tile for products."""
    found: dict[str, tuple[Mapping[str, int], ...]] = {}

    def keep(size_hints: Any, configs: Any, *args: Any, **kwargs: Any) -> Any:
        tried.extend({**c.kwargs, "num_warps": c.num_warps, "num_stages": c.num_stages} for c in configs)
        return lambda function: function

    for node in ast.parse(text).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Attribute(attr="triton"), args=args)):
                tried: list[Mapping[str, int]] = []
                tree = ast.parse(source := ast.literal_eval(args[1]))
                function = [n for n in tree.body if isinstance(n, ast.FunctionDef)][-1]
                imports = [n for n in tree.body if isinstance(n, (ast.Import, ast.ImportFrom))]
                made = ast.parse("made = " + ast.unparse(function.decorator_list[0]))
                with mock.patch.object(triton_heuristics, "cached_autotune", keep):
                    code = compile(ast.Module([*imports, *made.body], []), "<inductor>", "exec")
                    exec(code, {"__file__": "<inductor>"})  # Inductor's own text
                if "tl.dot(" in ast.unparse(function):
                    columns = 128 if "*fp32" in source else 256  # as much as shared memory holds
                    tried.append({**tried[0], **LARGE_PRODUCT, "XBLOCK": columns})
                found[name] = tuple(tried)
    return found
