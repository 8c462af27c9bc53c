"""Compiles candidates for a target with no GPU and keeps what the compiler said, for models that change."""

from __future__ import annotations

import lzma
import multiprocessing
import os
import pickle
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from kernelsearch.compile.build import Binary, Texts, build, code_of
from kernelsearch.compile.ptx import count_instructions
from kernelsearch.core.types import Config
from kernelsearch.kernel.launch import LaunchError
from kernelsearch.kernel.source import Kernel
from kernelsearch.measure.static_model.device_launch import DeviceLaunch
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.hints import launches_of
from kernelsearch.worker.messages import jobs


@dataclass(frozen=True)
class Kept:
    """One compiled specialisation: the binary without its cubin, and the compiler's texts; or why there is none."""

    binary: Binary | None
    texts: Texts
    failure: str = ""

    @property
    def read(self) -> Binary:
        """The binary as today's readers of the texts see it."""
        names = tuple(n for n, _ in self.binary.params)
        code = code_of(self.texts.ttir, self.texts.ttgir, names, self.texts.ptx)
        return replace(self.binary, mix=count_instructions(self.texts.ptx), code=code)


class Cache:
    """A folder of compiled specialisations by content."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def path(self, key: str) -> Path:
        return self.folder / f"{key}.xz"

    def get(self, key: str) -> Kept | None:
        path = self.path(key)
        return pickle.loads(lzma.decompress(path.read_bytes())) if path.exists() else None

    def put(self, key: str, kept: Kept) -> None:
        part = self.path(f".{key}.{os.getpid()}")
        part.write_bytes(lzma.compress(pickle.dumps(kept), preset=1))
        part.rename(self.path(key))


def _start() -> None:
    os.nice(15)
    from triton import knobs

    knobs.compilation.disable_line_info = True


def _compile(folder: str, key: str, code: str, name: str, spec, arch: int, limit: int) -> None:
    built = build(code, name, spec, arch, limit)
    if hasattr(built, "message"):
        Cache(folder).put(key, Kept(None, Texts(), built.message))
    else:
        Cache(folder).put(key, Kept(replace(built.binary, cubin=b""), built.texts))


def compile_all(
    bench: Bench, candidates: Iterable[tuple[Kernel, Config]], shapes: tuple[str, ...], cache: Cache
) -> None:
    """Compiles what the cache lacks, in two processes that yield to everything else."""
    wanted = {}
    for kernel, config in candidates:
        for key, code, name, spec in _specs(bench, kernel, config, shapes):
            if key not in wanted and not cache.path(key).exists():
                wanted[key] = (
                    str(cache.folder),
                    key,
                    code,
                    name,
                    spec,
                    bench.target.capability,
                    bench.target.shared_per_program,
                )
    if wanted:
        with ProcessPoolExecutor(2, multiprocessing.get_context("spawn"), _start) as pool:
            for future in [pool.submit(_compile, *job) for job in wanted.values()]:
                future.result()


def launches(bench: Bench, kernel: Kernel, config: Config, shape: str, cache: Cache) -> tuple[DeviceLaunch, ...] | None:
    """The device launches of a candidate at a shape from cached compiles; None where it does not compile."""
    try:
        bound = bench.bind_launches(kernel, config, (shape,))
    except LaunchError:
        return None
    binaries = {}
    for fact, one in bound:
        for spec in one.specialise_steps(fact):
            kept = cache.get(_key(bench, bench.seed if one.of_seed else kernel, spec))
            if kept is None or kept.binary is None:
                return None
            binaries[jobs.spec_key(spec, one.of_seed)] = kept.read
    return launches_of(bound, binaries, bench.target)


def _specs(bench: Bench, kernel: Kernel, config: Config, shapes: tuple[str, ...]):
    try:
        bound = bench.bind_launches(kernel, config, shapes)
    except LaunchError:
        return
    for fact, one in bound:
        owner = bench.seed if one.of_seed else kernel
        for spec in one.specialise_steps(fact):
            yield _key(bench, owner, spec), owner.code, owner.digest, spec


def _key(bench: Bench, kernel: Kernel, spec) -> str:
    return spec.key(kernel.digest, bench.target.name, "")
