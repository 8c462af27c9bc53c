"""Shipped tasks with one launch of each, as the driver would have traced it, and kernels to build grammars for."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import compiler
import corpus
import edit_seeds

from kernelsearch.core.types import LaunchFact, TaskFacts, Trace
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.grammar import Grammar, build_grammar
from kernelsearch.verify import gate

ROOT = Path(__file__).resolve().parents[3]
NAMES = tuple(compiler.FACTS)


@lru_cache
def task(name: str) -> TaskFacts:
    plain = edit_seeds.task(name)
    args, grid = compiler.FACTS[name]
    launch = LaunchFact(plain.sites[0], args, {"num_warps": 8, "num_stages": 2}, grid)
    return replace(plain, traces={"timed:0": Trace("timed:0", (launch,))})


@lru_cache
def grammar(name: str) -> Grammar:
    return build_grammar(edit_seeds.seed(name), task(name))


def cheats(rng: random.Random) -> Iterator[tuple[str, str, Kernel]]:
    """(task, file, kernel) of the corpus of cheats in the order of rng, as far as the gate lets them pass."""
    entries = [e for e in corpus.entries() if e.task in NAMES and not e.compiles_only]
    for entry in rng.sample(entries, len(entries)):
        if gate.check(entry.text).accepted:
            yield entry.task, entry.path.stem, Kernel.parse(entry.text)


@lru_cache
def engines():
    """The sampling script's engines: `studies/grammar/engines.py`."""
    spec = importlib.util.spec_from_file_location("grammar_engines", ROOT / "studies" / "grammar" / "engines.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
