"""The offline engine, run where vLLM is: `PYTHONPATH=. python tests/propose/vllm_offline_check.py MODEL`."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import edit_seeds

from kernelsearch.propose.engines import Ask, Failure, open_engine
from kernelsearch.propose.grammar import build_grammar
from kernelsearch.propose.grammar.build import is_edit
from kernelsearch.propose.models.prompt import SYSTEM


def main(model: str, options: str) -> int:
    engine = open_engine(f"vllm:{model}?max_model_len=8192&gpu_memory=0.25&dtype=float32{options}")
    parent = edit_seeds.seed("softmax")
    grammar = build_grammar(parent, edit_seeds.task("softmax"))
    tokens, cached, outside, seconds, pauses = 0, 0, 0, [], []
    for round_ in range(4):
        reply = beside(engine, Ask(SYSTEM, grammar.numbered, grammar.for_engine, 8, 512, 1.0, round_), pauses)
        if isinstance(reply, Failure):
            print(f"FAULT: {reply.reason}")
            return 1
        outside += sum(not is_edit(s.text) for s in reply.samples if s.finish == "stop")
        tokens, cached = tokens + reply.tokens_out, cached + reply.tokens_cached
        seconds.append(reply.seconds)
    long = engine.complete(Ask(SYSTEM, grammar.numbered * 200, grammar.for_engine, 1, 512, 1.0, 0))
    fits = isinstance(long, Failure) and long.kind == "context"
    print(f"vllm: offline{options or ''}: 4 asks of 8 answers, {tokens} tokens out in {sum(seconds):.1f} s "
          f"(first {seconds[0]:.1f} s, the others {sum(seconds[1:]) / 3:.1f} s; asked ahead: {engine.after} trials; "
          f"this "
          f"thread went on meanwhile, with pauses of {1e3 * pauses[len(pauses) // 2]:.0f} ms at the median and "
          f"{1e3 * pauses[-1]:.0f} at most), {cached} prompt tokens from the cache, "
          f"{outside} answers outside the grammar; a prompt that is too long: {'context' if fits else long}",
          flush=True)  # fmt: skip
    engine.close()
    return int(outside > 0 or not fits)


def beside(engine, ask: Ask, pauses: list[float]):
    """The reply, asked for on a thread as a search does; pauses gains how long this thread was kept from waking."""
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(engine.complete, ask)
        while not reply.done():
            started = time.monotonic()
            time.sleep(0.002)
            pauses.append(time.monotonic() - started - 0.002)
    pauses.sort()
    return reply.result()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], "".join(f"&{o}" for o in sys.argv[2:])))
