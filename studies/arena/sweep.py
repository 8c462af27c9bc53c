"""AgentKernelArena's vLLM set: Triton kernels of a serving engine as they stand, each its own reference.

    python studies/arena/sweep.py CHECKOUT OUT [NAME...] [--verify] [--trials N]

CHECKOUT is a clone of AMD-AGI/AgentKernelArena. Each kernel is copied into OUT/NAME; OUT gets NAME.json, NAME.txt and
after a search NAME.db; what has a NAME.json is skipped. Each GPU has a kernel under way; without one two run at a time,
with --verify only. The gain is the confirmed ratio over the kernel as it stands; their test then judges the best
kernel's functions in the place of its own. Their performance mode needs a helper of their own runner: it is not run.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

from kernelsearch.measure.timing.baselines import SEED
from kernelsearch.measure.timing.by_shape import choose_findings
from kernelsearch.measure.timing.device import list_gpus
from kernelsearch.record.rows import KERNELS
from kernelsearch.record.store import Store

SET, RUNNER, LIMIT = Path("tasks/triton2triton/vllm"), "scripts/task_runner.py", 300.0


def find_launcher(folder: Path) -> tuple[Path, str]:
    """(The source, the function that the test calls: of several the one that launches the target kernel)."""
    run, config = (folder / RUNNER).read_text(), (folder / "config.yaml").read_text()
    source = folder / re.findall(r"source_file_path:\s+- (\S+)", config)[0]
    target = re.findall(r"target_kernel_functions:\s+- (\S+)", config)[0]
    bodies = {name: ast.unparse(n) for name, n in list_functions(source.read_text()).items()}
    called = [n for n in dict.fromkeys(re.findall(r"\bmod\.(\w+)\(", run)) if n in bodies]
    return source, next((n for n in called if f"{target}[" in bodies[n]), (called or [target])[-1])


def list_functions(text: str) -> dict[str, ast.FunctionDef]:
    return {n.name: n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)}


def run(words: list[str], folder: Path, log: Path, limit: float, gpu: str) -> int:
    """The exit code of a command, 124 after the limit; its output is appended to the log."""
    place = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu} if gpu else dict(os.environ)
    with log.open("a") as file:
        child = subprocess.Popen(words, cwd=folder, env=place, stdout=file, stderr=file, start_new_session=True)
        with suppress(subprocess.TimeoutExpired):
            return child.wait(limit)
        os.killpg(child.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            child.wait(20)
        with suppress(ProcessLookupError):  # what is left of its group
            os.killpg(child.pid, signal.SIGKILL)
        return 124


def sweep(out: Path, checkout: Path, name: str, given: argparse.Namespace, gpus: queue.Queue[str]) -> None:
    """Opens, judges and, where asked, searches a kernel."""
    gpu, start = gpus.get(), time.monotonic()
    folder, log, database = (out / f"{name}{end}" for end in ("", ".txt", ".db"))
    try:
        shutil.copytree(checkout / SET / name, folder, dirs_exist_ok=True)
        log.unlink(missing_ok=True)
        source, launcher = find_launcher(folder)
        task, base = f"{source.relative_to(folder)}:{launcher}", [sys.executable, "-m", "kernelsearch"]
        code = run([*base, "verify", task, "--call", f"{RUNNER} correctness"], folder, log, LIMIT, gpu)
        found = {**read_verdict(log, code), "seconds": round(time.monotonic() - start)}
        written = source.with_name(f"{source.stem}_{launcher}.py")
        found["opened"] = written.exists() and (found["verdict"] != "" or code == 124)
        if not given.verify and found["verdict"] == "accept":
            words = [*base, "optimize", str(written), "--trials", str(given.trials), "--db", str(database)]
            run(words, folder, log, LIMIT * given.trials, gpu)
            found |= read_gain(database) | {"theirs": judge_theirs(base, database, folder, source, log, gpu)}
        (out / f"{name}.json").write_text(json.dumps(found))
    finally:
        gpus.put(gpu)


def read_verdict(log: Path, code: int) -> dict[str, object]:
    """What `verify` has said, from its JSON or its one line."""
    text = log.read_text()
    verdict, reason = (re.search(rf'"{key}": "((?:[^"\\]|\\.)*)"', text) for key in ("verdict", "reason"))
    said = next((line for line in reversed(text.splitlines()) if line.startswith("kernelsearch: ")), "")
    said = "no end within the limit" if code == 124 else reason[1] if reason else said
    return {"verdict": verdict[1] if verdict else "", "said": said[:160]}


def read_gain(database: Path) -> dict[str, object]:
    """The least confirmed ratio of the kernel as it stands over the table, at any shape."""
    ratios: list[float] = []
    with Store.open(database, write=False) as store:
        for row in store.query("SELECT digest FROM task"):
            for shape, finding in choose_findings(store.load_confirmations(row["digest"]), KERNELS).items():
                entry = next(s for s in finding["shapes"] if s["shape"] == shape)
                ratios += [b["ratio"] for b in entry["baselines"] if b["name"] == SEED and "ratio" in b]
    return {"gain": round(min(ratios), 3)} if ratios else {}


def judge_theirs(base: list[str], database: Path, folder: Path, source: Path, log: Path, gpu: str) -> str:
    """Their test's verdict on the best kernel's functions in the source; "not run" where they take other arguments."""
    shown = subprocess.run([*base, "show", "best", "--db", str(database)], capture_output=True, text=True)
    if shown.returncode:
        return "not run"
    tree, (best, own) = ast.parse(source.read_text()), map(list_functions, (shown.stdout, source.read_text()))
    if any(n in own and ast.dump(f.args) != ast.dump(own[n].args) for n, f in best.items()):
        return "not run"
    tree.body = [best.pop(n.name, n) if isinstance(n, ast.FunctionDef) else n for n in tree.body]
    tree.body += best.values()  # helpers that are new
    source.write_text(ast.unparse(tree))
    return "pass" if run([sys.executable, RUNNER, "correctness"], folder, log, LIMIT, gpu) == 0 else "fail"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    list(map(partial(options.add_argument, type=Path), ("checkout", "out")))
    options.add_argument("names", nargs="*", metavar="NAME")
    options.add_argument("--verify", action="store_true")
    options.add_argument("--trials", type=int, default=60)
    given = options.parse_args()
    out, checkout, gpus = given.out.resolve(), given.checkout.resolve(), list_gpus()
    names = given.names or sorted(p.name for p in (checkout / SET).iterdir() if (p / RUNNER).exists())
    if not (gpus or given.verify):
        sys.exit("a GPU is needed to confirm times: give --verify without one")
    free: queue.Queue[str] = queue.Queue()
    list(map(free.put, gpus or ["", ""]))
    left = [name for name in names if not (out / f"{name}.json").exists()]
    with ThreadPoolExecutor(len(gpus) or 2) as pool:
        list(pool.map(lambda name: sweep(out, checkout, name, given, free), left))
    print("| kernel | opened | verdict | seconds | gain | their test |\n|---|---|---|---|---|---|")
    for name in names:
        if (out / f"{name}.json").exists():
            row = json.loads((out / f"{name}.json").read_text())
            verdict = row["verdict"] or row["said"]
            cells = (name, row["opened"], verdict, row["seconds"], row.get("gain", ""), row.get("theirs", ""))
            print(f"| {' | '.join(map(str, cells))} |")


if __name__ == "__main__":
    main()
