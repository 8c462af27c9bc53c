"""Runs the corpus through the referee: `python tests/cheats/run.py [FILE...] [--json OUT.json] [--no-controls]`.

One Bench per task serves all its files. After each file that must be rejected, the task's own is verified by the same
workers and must be accepted. Prints a table; exits with 1 when any verdict is not the one that the file names.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import corpus

from kernelsearch.kernel.source import Kernel
from kernelsearch.trial import Evaluation, Rejection, referee, without_gpu
from kernelsearch.trial.bench import Bench
from kernelsearch.verify import gate


def judge_text(bench: Bench, name: str, text: str, limit_s: float | None) -> dict:
    """One file's verdict as data, by a new Evaluation that remembers nothing."""
    start = time.perf_counter()
    verdict = referee.verify_text(bench, text, limit_s)
    seconds = time.perf_counter() - start
    return {"file": name, **referee.as_json(verdict), "seconds": round(seconds, 3)}


def screen_file(bench: Bench, entry: corpus.Entry) -> str:
    """The word of the cheap verdict that every trial of a search gets."""
    text = entry.text
    if not gate.check(text).accepted:
        return "reject-static"
    kernel = Kernel.parse(text)
    evaluation = Evaluation(bench, limit_s=20.0)
    try:
        config = referee.config_of(kernel, bench.facts)
        return evaluation.stages.screen(evaluation.bind(kernel, config), evaluation._cases("screen"), None)[
            0
        ].word.value
    except Rejection as rejected:
        return rejected.verdict.word.value


def run_task(
    task: str, chosen: list[corpus.Entry], controls: bool, limit_s: float | None, screen: bool = False
) -> list[dict]:
    rows = []
    with Bench.open(chosen[0].task_file) as bench:
        mode = Evaluation(bench).mode
        for entry in chosen:
            row = judge_text(bench, entry.path.name, entry.text, limit_s)
            wanted = entry.wanted(mode)
            row |= {
                "task": task,
                "trick": entry.trick,
                "honest": entry.honest,
                "mode": mode,
                "wanted": " or ".join(w.value for w in wanted),
                "blind": entry.blind if mode == "interpreter" else "",
            }
            row["ok"] = row["verdict"] in wanted
            if mode == "interpreter" and entry.compiles_only:
                row["ok"] = row["compiles_only"] = row["reason"] == without_gpu.NOT_HERE
            if screen:
                row["screen"] = screen_file(bench, entry)
            if controls and not entry.honest:
                control = judge_text(bench, "the task's own", bench.seed.render(), None)
                row["control"] = {k: control[k] for k in ("file", "verdict", "reason", "seconds")}
                row["ok"] = row["ok"] and control["verdict"] == "accept"
            rows.append(row)
            print(line(row), flush=True)
    return rows


def line(row: dict) -> str:
    mark = "  " if row["ok"] else "! "
    control = row.get("control")
    after = f"{control['verdict']} {control['seconds']:.1f}s" if control else ""
    ratio = "" if row["error_ratio"] is None else f"{row['error_ratio']:.3g}"
    wanted = "" if row["ok"] else f" (wanted {row['wanted']})"
    return (
        f"{mark}{row['file']:<44} {row['verdict']:<17} {ratio:>9} {row['seconds']:6.2f}s  {after:<13} "
        f"{row['reason'][:110]}{wanted}"
    )


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("files", nargs="*", help="only these (names or parts of names)")
    options.add_argument("--json", dest="out", help="write all rows to this file")
    options.add_argument("--text", action="store_true", help="only print the kernels")
    options.add_argument("--no-controls", action="store_true", help="do not verify an honest file after each bad one")
    options.add_argument("--limit", type=float, default=60.0, help="seconds that a candidate may run")
    options.add_argument(
        "--screen", action="store_true", help="get the `screen` verdict too, and print the cheats that it accepts"
    )
    arguments = options.parse_args()
    wanted = [
        e for e in corpus.entries() if not arguments.files or any(Path(f).stem in e.path.stem for f in arguments.files)
    ]
    if arguments.text:
        print("\n\n".join(f"# {entry.path.name}\n{entry.text}" for entry in wanted))
        return 0
    for entry in [e for e in wanted if not e.known]:
        print(f"  {entry.path.name:<44} left out: this Triton has no block pointers")
    wanted = [e for e in wanted if e.known]
    rows = []
    for task in corpus.TASKS:
        chosen = [e for e in wanted if e.task == task]
        if chosen:
            rows += run_task(task, chosen, not arguments.no_controls, arguments.limit, arguments.screen)
    wrong = [r["file"] for r in rows if not r["ok"]]
    judged = [r for r in rows if not r.get("compiles_only")]
    cheats, honest = [r for r in judged if not r["honest"]], [r for r in judged if r["honest"]]
    rejected = [r for r in cheats if r["verdict"] != "accept"]
    print(
        f"{len(rows)} files: {len(rejected)} of {len(cheats)} cheats rejected, "
        f"{sum(r['verdict'] == 'accept' for r in honest)} of {len(honest)} honest kernels accepted; "
        f"{len(rows) - len(judged)} in Gluon compile, and are judged on a GPU only; "
        f"{len(wrong)} not as their files say{': ' + ', '.join(wrong) if wrong else ''}"
    )
    if arguments.screen:
        accepted = [r["file"] for r in cheats if r["screen"] == "accept"]
        print(f"screen accepts {len(accepted)} of {len(cheats)} cheats: {', '.join(accepted)}")
    if arguments.out:
        Path(arguments.out).write_text(json.dumps({"rows": rows, "wrong": wrong}, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
