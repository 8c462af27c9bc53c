"""What `scripts/test-vllm` does: a real vLLM server, a search against it, and the effect of two of its options.

python tests/propose/vllm_check.py PYTHON_WITH_VLLM [seconds to wait for the server]
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import tiny

from kernelsearch.propose.engines import Ask, Failure, open_engine
from kernelsearch.propose.models.prompt import SYSTEM
from kernelsearch.record.store import Store

ROOT = Path(__file__).resolve().parents[2]
TRIALS = 20
ROUNDS, SAMPLES = 4, 16
VARIANTS = {
    "prefix cache": ["--enable-prefix-caching"],
    "no prefix cache": ["--no-enable-prefix-caching"],
    "prefix cache, n-gram speculation": [
        "--enable-prefix-caching", "--speculative-config",
        json.dumps({"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}),
    ],
}  # fmt: skip


def main(python: str, patience: float = 600.0) -> int:
    python = os.path.abspath(python)  # the server starts in another folder; a link to a python is not followed
    faults: list[str] = []
    with tempfile.TemporaryDirectory(prefix="kernelsearch-vllm-") as folder:
        model = tiny.build(Path(folder) / "tiny", hidden=256)  # vLLM on a CPU wants heads of 64
        for name, flags in VARIANTS.items():
            started = time.monotonic()
            with server(python, model, flags, patience) as url:
                print(f"\n== {name}: healthy after {time.monotonic() - started:.0f} s", flush=True)
                if name == "prefix cache":
                    faults += searched(url, model, Path(folder))
                faults += paced(name, url, model)
        for options in ((), ("ngram=4",)):
            command = [python, str(Path(__file__).with_name("vllm_offline_check.py")), str(model), *options]
            done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
            print(
                "\n".join(
                    s for s in (done.stdout + done.stderr).splitlines() if s.startswith("vllm:") or "Error: " in s
                )
            )
            faults += ["the offline engine failed"] if done.returncode else []
    print("\n" + ("\n".join(f"FAULT: {f}" for f in faults) or "no fault"))
    return bool(faults)


@contextmanager
def server(python: str, model: Path, flags: list[str], patience: float) -> Iterator[str]:
    """A server on a free port, stopped at the end; what it printed goes to our stderr when it does not start."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = model.parent / "server.log"
    command = [
        python,
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        str(model),
        "--served-model-name",
        "tiny",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--max-model-len",
        "8192",
        "--dtype",
        "float32",
        "--gpu-memory-utilization",
        "0.25",
        "--enable-prompt-tokens-details",
        *flags,
    ]  # of the machine's memory, with the CPU build
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=model.parent)
    try:
        if not healthy(f"http://127.0.0.1:{port}/health", process, patience):
            sys.stderr.writelines(line for line in log.open() if "Error: " in line and "ulimit" not in line)
            raise SystemExit(f"vLLM did not become healthy within {patience:.0f} s")
        yield f"http://127.0.0.1:{port}/v1"
        if process.poll() is not None:  # it died under way
            sys.stderr.writelines(line for line in log.open() if "Error: " in line and "ulimit" not in line)
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def healthy(url: str, process: subprocess.Popen, patience: float) -> bool:
    end = time.monotonic() + patience
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return True
        except (urllib.error.URLError, OSError):
            time.sleep(1)
    return False


def searched(url: str, model: Path, folder: Path) -> list[str]:
    """`optimize` against the server: its own words, then what the database says of the answers."""
    shutil.copy(ROOT / "studies" / "column_sum" / "column_sum.py", folder)
    db = folder / "vllm.db"
    command = [
        sys.executable,
        "-m",
        "kernelsearch",
        "optimize",
        "column_sum.py",
        "--trials",
        str(TRIALS),
        "--db",
        str(db),
        "--proposer",
        f"openai:{url}#tiny?seed=off",
    ]
    print(f"$ kernelsearch {' '.join(command[3:])}", flush=True)
    done = subprocess.run(command, cwd=folder, timeout=1500)
    if done.returncode:
        return [f"optimize ended with {done.returncode}"]
    with Store.open(db) as store:
        calls = [c for run in store.load_runs() for c in store.load_calls(run.id)]
        trials = sum(len(store.load_trials(run.id)) for run in store.load_runs())
        made = sum(str(t.edit).startswith("model:") for run in store.load_runs() for t in store.load_trials(run.id))
    stages = Counter(a.stage for c in calls for a in c.answers)
    print(f"{len(calls)} calls, {sum(stages.values())} answers, by the first stage that refused them: {dict(stages)}")
    print(
        f"{sum(c.tokens_in for c in calls)} tokens in ({sum(c.tokens_cached for c in calls)} cached), "
        f"{sum(c.tokens_out for c in calls)} out, {sum(c.seconds for c in calls):.0f} s"
    )
    faults = [f"call failed: {c.failure}" for c in calls if c.failure]
    faults += [] if trials == TRIALS else [f"{trials} trials instead of {TRIALS}"]
    faults += [] if made else ["no trial has a kernel of the model"]
    faults += [f"{stages['grammar']} answers were outside the grammar"] if stages["grammar"] else []
    return faults


def paced(name: str, url: str, model: Path) -> list[str]:
    """Several asks of one parent, then the first tokens alone: tokens a second, and the time of a cached prompt."""
    import edit_seeds

    from kernelsearch.propose.grammar import build_grammar
    from kernelsearch.propose.grammar.build import is_edit

    engine = open_engine(f"openai:{url}#tiny?seed=off")
    parent, task = edit_seeds.seed("softmax_wide"), edit_seeds.task("softmax_wide")
    grammar = build_grammar(parent, task)
    page = grammar.numbered * 6  # as long as a page with its family is
    outside, tokens, cached, asked, times = 0, 0, 0, 0, []
    for round_ in range(ROUNDS):
        reply = engine.complete(Ask(SYSTEM, page, grammar.for_engine, SAMPLES, 512, 1.0, round_))
        if isinstance(reply, Failure):
            return [f"{name}: {reply.reason}"]
        outside += sum(not is_edit(s.text) for s in reply.samples if s.finish == "stop")
        times.append(reply.seconds)
        tokens, cached, asked = tokens + reply.tokens_out, cached + reply.tokens_cached, asked + reply.tokens_in
    short = [engine.complete(Ask(SYSTEM, page, grammar.for_engine, 1, 1, 1.0, s)) for s in range(6)]
    first = sorted(s.seconds for s in short if not isinstance(s, Failure))
    print(f"{name}: {ROUNDS} asks of {SAMPLES} answers, {tokens} tokens out in {sum(times):.1f} s = "
          f"{tokens / sum(times):.0f} tokens/s "
          f"(first ask {times[0]:.1f} s, the others {sum(times[1:]) / (ROUNDS - 1):.1f} s); "
          f"a first token after {first[len(first) // 2] if first else float('nan'):.2f} s; "
          f"{asked // ROUNDS} tokens of prompt, {cached} of {asked} reported as cached; "
          f"{outside} answers outside the grammar",
          flush=True)  # fmt: skip
    engine.close()
    return [f"{name}: {outside} answers outside the grammar"] if outside else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(float, sys.argv[2:3])))
