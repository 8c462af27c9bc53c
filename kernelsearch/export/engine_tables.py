"""Tables of configs that serving engines look up for kernels of their own: vLLM's and SGLang's JSON files.

A file is for one weight (`E` experts, `N`, `K`) on one device; its keys are numbers of tokens `M`, and an engine takes
the nearest. The engine runs its own kernel: so a task of such a table has that kernel, and what counts are the best
configs of the task's own kernel at each shape, whatever else a search found. Names of files and fields are those of
vLLM's `fused_moe` and `w8a8_utils`, and of SGLang's `fused_moe_triton`, as of 2026.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelsearch.core.types import Config, ShapeFact
from kernelsearch.export import ExportError
from kernelsearch.export.exported_task import ExportedTask
from kernelsearch.export.tables import format_json
from kernelsearch.record import export_queries as queries
from kernelsearch.record.store import Store

BLOCKS = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M")
DEFAULTS = {"num_warps": 4, "num_stages": 3}
"""What Triton takes on NVIDIA cards where a config does not say it."""


@dataclass(frozen=True)
class EngineFormat:
    """A format: the sizes in a file's name, what it says of 8-bit products, and how it writes a list."""

    sizes: tuple[str, ...]
    dtype: str = ""
    block: tuple[int, int] | None = None
    comma: str = ","

    def name_file(self, shape: Mapping[str, Any], device: str) -> str:
        """The file's name; dtype and block_shape are parameters of the shape, else the format's own."""
        dtype, block = shape.get("quant", self.dtype), shape.get("block_shape", self.block)
        parts = [*(f"{n}={shape[n]}" for n in self.sizes), f"device_name={device.replace(' ', '_')}"]
        parts += [f"dtype={dtype}"] * bool(dtype)
        parts += [f"block_shape=[{self.comma.join(map(str, block))}]"] if block else []
        return f"{','.join(parts)}.json"


ENGINES = {
    "vllm-moe": EngineFormat(("E", "N")),
    "vllm-fp8": EngineFormat(("N", "K"), "fp8_w8a8", (128, 128)),
    "sglang-moe": EngineFormat(("E", "N"), comma=", "),
}


def build_engine_tables(form: str, part: ExportedTask, databases: Sequence[str | Path]) -> dict[str, str]:
    """The files of this format for a task, by name. Raises ExportError where the task says too little."""
    engine, tables = ENGINES[form], dict[str, dict[str, Any]]()
    shapes = {s.key: _read_sizes(s, (*engine.sizes, "M"), form) for s in part.examined.facts.shapes}
    for device in part.chosen.devices:
        times = _read_times(part, databases, device)
        for key, sizes in shapes.items():
            if key in times:
                config = json.loads(min(times[key], key=lambda c: (times[key][c], c)))
                table = tables.setdefault(engine.name_file(sizes, device), {})
                table[str(sizes["M"])] = _translate(config, form)
    if not tables:
        raise ExportError(f"no config of the task's own kernel has a time: --format {form} has nothing to write")
    return {n: format_json(dict(sorted(t.items(), key=lambda row: int(row[0])))) for n, t in sorted(tables.items())}


def _read_sizes(shape: ShapeFact, needed: Sequence[str], form: str) -> dict[str, Any]:
    """The parameters of a shape, in capitals where the format has them so."""
    known = {name.upper() if name.upper() in needed else name: value for name, value in shape.params.items()}
    if lacking := [name for name in needed if name not in known]:
        raise ExportError(
            f"--format {form} names its files and rows by {', '.join(needed)}; {shape.label} has no "
            f"{' and no '.join(lacking)}: call the parameters of get_inputs so"
        )
    return known


def _read_times(part: ExportedTask, databases: Sequence[str | Path], device: str) -> dict[str, dict[str, float]]:
    """The least time of each config of the task's own kernel, by shape and config (JSON)."""
    found: dict[str, dict[str, float]] = {}
    for database in databases:
        with Store.open(database, write=False) as store:
            for shape, times in queries.config_times(store, part.chosen.digest, part.seed.digest, device).items():
                known = found.setdefault(shape, {})
                known.update({c: min(us, known.get(c, us)) for c, us in times.items()})
    return found


def _translate(config: Config, form: str) -> dict[str, Any]:
    if lacking := [name for name in BLOCKS if name not in config]:
        raise ExportError(
            f"--format {form} has {', '.join(BLOCKS)}; the task's own kernel is not tuned on {', '.join(lacking)}: "
            "it is not the engine's kernel, or its SPACE has other names"
        )
    return {name: config[name] for name in BLOCKS} | {n: config.get(n, value) for n, value in DEFAULTS.items()}
