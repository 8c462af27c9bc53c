"""How far answers of a random-weight model get under the grammar of a shipped kernel.

    python studies/grammar/sample.py [TASK...] [--engine llguidance] [--samples 200] [--compile 60]
        [--vocabulary tokenizer.json] [--json OUT] [--show]

One row a task: the share that stopped, belong to the grammar, parse, resolve their names, pass the gate; of those that
change the source, the share that compiles for the target at every timed shape, by the search's own compile workers.
Random line edits are often dead code, which compiles as a matter of course: `differs` counts those whose machine code
is not the parent's with the same settings, and `live_rate` is the compile rate among what is not dead code.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from engines import ENGINES, Drawn, Vocabulary

from kernelsearch.core.types import Config, Word, config_key
from kernelsearch.kernel.launch import LaunchError
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.edits import EDITS, NotApplicable
from kernelsearch.propose.grammar import STAGES, Answer, Grammar, build_grammar
from kernelsearch.trial.bench import Bench
from kernelsearch.verify import gate

STUDIES = Path(__file__).resolve().parents[1]
TASKS = ("softmax", "softmax_wide", "layernorm", "rmsnorm", "column_sum", "cross_entropy", "swiglu", "matmul",
         "linear_gelu", "attention")  # fmt: skip
LIMIT = 512


def compiled(bench: Bench, kernel: Kernel, config: Config) -> tuple[str, str, frozenset[str]]:
    """(`compiles`, `launch`, `compile` or `precision`; message; machine code) of a kernel at every timed shape."""
    shapes = tuple(s.key for s in bench.facts.shapes)
    try:
        bound = bench.bind_launches(kernel, config, shapes)
        specs = tuple(dict.fromkeys((s, b.of_seed) for fact, b in bound for s in b.specialise_steps(fact)))
    except LaunchError as error:
        return "launch", str(error), frozenset()
    binaries, verdict = bench.build_binaries(kernel, specs)
    if verdict is None:
        return "compiles", "", frozenset(b.identity for b in binaries.values())
    return "precision" if verdict.word is Word.PRECISION else "compile", verdict.reason, frozenset()


def rates(answers: list[tuple[Drawn, object]]) -> dict[str, float]:
    """Of all answers, the share that is still there after each stage."""
    stages = [None if isinstance(a, Answer) else STAGES.index(a.stage) for _, a in answers]
    return {
        stage: sum(s is None or s > at for s in stages) / len(stages) for at, stage in enumerate(STAGES)
    }  # fmt: skip


def study(name: str, engine, samples: int, most: int, seed: int, edits: bool, show: bool) -> dict:
    with Bench.open(STUDIES / name / f"{name}.py", "h100") as bench:
        kernel = Kernel.parse(bench.facts.seed)
        offered = {e.name: e.apply(kernel, bench.facts) for e in EDITS} if edits else {}
        start = time.process_time()
        grammar = build_grammar(
            kernel, bench.facts, {n: v for n, v in offered.items() if not isinstance(v, NotApplicable)}
        )
        held = grammar.for_engine
        _ = held.lark if engine.name == "llguidance" else held.ebnf
        built = time.process_time() - start
        form, seconds = engine.compile(held)
        rng = np.random.default_rng(seed)
        drawn = [engine.draw(form, rng, LIMIT) for _ in range(samples)]
        answers = [(d, grammar.apply(d.text, stopped=d.stopped, gate=gate.check)) for d in drawn]
        fates = fates_of(bench, grammar, [a for _, a in answers if isinstance(a, Answer)], most, show)
    masks = [m for d in drawn for m in d.masks]
    tokens = [d.tokens for d in drawn]
    return {
        "task": name, "engine": engine.name, "samples": samples, "build_s": built, "compile_s": seconds,
        "mask_us": float(np.median(masks)) * 1e6, "mask_p99_us": float(np.quantile(masks, 0.99)) * 1e6,
        "rules": len(held.rules),
        "tokens": float(np.mean(tokens)), "tokens_max": max(tokens), **rates(answers), "changes": fates,
        "refused": [f"{a.stage}: {a.reason}" for _, a in answers if not isinstance(a, Answer)][:5],
    }  # fmt: skip


def fates_of(bench: Bench, grammar: Grammar, answers: list[Answer], most: int, show: bool) -> dict:
    """What the compiler says of the first distinct kernels that are not the parent."""
    new = {a.kernel.digest: a for a in answers if a.edit == "lines" and a.kernel.digest != grammar.parent.digest}
    counts: Counter[str] = Counter()
    why: Counter[str] = Counter()
    parents: dict[str, frozenset[str]] = {}
    differs = dead = 0
    for answer in list(new.values())[:most]:
        config = {**bench.facts.config, **answer.kernel.config}
        word, reason, code = compiled(bench, answer.kernel, config)
        if word == "compiles":
            key = config_key(config)
            if key not in parents:
                parents[key] = compiled(bench, grammar.parent, config)[2]
            same = code == parents[key]
            differs, dead = differs + (not same), dead + same
        counts[word] += 1
        if word != "compiles":
            why[f"{word}: {_short(reason)}"] += 1
            if show:
                print(f"{'-' * 20} {word}\n{answer.text}\n{reason[-400:]}", flush=True)
    return {"kinds": dict(Counter(a.edit if a.edit in ("lines", "launch") else "edit" for a in answers)),
            "distinct": len(new), "compiled": dict(counts), "why": dict(why), "differs": differs, "dead": dead,
            "live_rate": differs / (sum(counts.values()) - dead) if sum(counts.values()) > dead else None}  # fmt: skip


def _short(reason: str) -> str:
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    return (lines[-1] if lines else "")[:120]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=TASKS)
    parser.add_argument("--engine", choices=ENGINES, default="llguidance")
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--compile", type=int, default=60, dest="most")
    parser.add_argument("--vocabulary", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-edits", action="store_true", help="offer no typed edits")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--show", action="store_true", help="print each answer that does not compile")
    given = parser.parse_args()
    engine = ENGINES[given.engine](Vocabulary.read(given.vocabulary))
    for name in given.tasks:
        row = study(name, engine, given.samples, given.most, given.seed, not given.no_edits, given.show)
        print(json.dumps(row), flush=True)
        if given.json:
            with given.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
