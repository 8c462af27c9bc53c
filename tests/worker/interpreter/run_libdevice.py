"""The interpreter's side of test_libdevice.py: `TRITON_INTERPRET=1 python run_libdevice.py` prints JSON by function."""

import inspect
import json

import torch
import triton.language.extra.cuda.libdevice as declared

from kernelsearch.compile.build import load_functions
from kernelsearch.kernel.language import LIBDEVICE
from kernelsearch.worker.interpreter.counting import Tally, count_into
from kernelsearch.worker.interpreter.programs import run_programs

HEAD = "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n\n"
BODY = """@triton.jit
def k(a_ptr, b_ptr, c_ptr, d_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a, b, c, d = tl.load(a_ptr + i), tl.load(b_ptr + i), tl.load(c_ptr + i), tl.load(d_ptr + i)
    tl.store(out_ptr + i, libdevice.{call})
"""
SAMPLES = [-3.5, -2.0, -1.25, -0.75, -0.5, -0.1, 0.1, 0.3, 0.5, 0.9, 1.0, 1.5, 2.5, 3.0, 7.25, 20.0]
ORDERED = {"a": SAMPLES, "b": SAMPLES[::-1], "c": SAMPLES[5:] + SAMPLES[:5], "d": SAMPLES[9:] + SAMPLES[:9]}
TYPES = (torch.float32, torch.float64, torch.int32, torch.int64, torch.uint32, torch.uint64)
CALLS = {"ldexp(a, b.to(tl.int32))": torch.float32, "scalbn(a, b.to(tl.int32))": torch.float32,
         "pow(a, b.to(tl.int32))": torch.float32, "atan2(a, 0.5)": torch.float32}  # fmt: skip


def outcome(call, dtype):
    """What a call gives for these samples; None where it takes no such type, and a text where it cannot."""
    function = load_functions(HEAD + BODY.format(call=call), f"{call}{dtype}")["k"]
    values = {n: torch.tensor(v, dtype=torch.float64).to(torch.int64).to(dtype) if "int" in str(dtype)
              else torch.tensor(v, dtype=dtype)
              for n, v in ORDERED.items()}  # fmt: skip
    out = torch.full((16,), -77.0, dtype=torch.float64)
    args = {f"{n}_ptr": t for n, t in values.items()} | {"out_ptr": out, "BLOCK": 16}
    try:
        run_programs(function, args, frozenset({"BLOCK"}), (1, 1, 1), [(0, 0, 0)])
    except KeyError:  # Triton's own answer to types that the library has no function for
        return None
    except NotImplementedError as error:
        return str(error)
    return out.tolist()


def of_every_type(name):
    arity = sum(n != "_semantic" for n in inspect.signature(ARITY[name]).parameters)
    call = f"{name}({', '.join('abcd'[:arity])})"
    results = {str(t).removeprefix("torch."): outcome(call, t) for t in TYPES}
    return {t: v for t, v in results.items() if v is not None}


def counted():
    function = load_functions(HEAD + BODY.format(call="tanh(a)"), "counted")["k"]
    tensors = {f"{n}_ptr": torch.tensor(v) for n, v in ORDERED.items()} | {"out_ptr": torch.zeros(16)}
    tally = Tally(tensors)
    with count_into(tally):
        run_programs(
            function, {**tensors, "BLOCK": 16}, frozenset({"BLOCK"}), (1, 1, 1), [(0, 0, 0)], tally.buffers, tally.patch
        )
    return tally.to_counts("k", 1, 1).special


ARITY = {name: inspect.unwrap(_plain) for name in LIBDEVICE if (_plain := getattr(declared, name, None)) is not None}

if __name__ == "__main__":
    results = {name: of_every_type(name) for name in sorted(ARITY)}
    calls = {call: outcome(call, dtype) for call, dtype in CALLS.items()}
    print(json.dumps({"samples": ORDERED, "special": counted(), "values": results, "calls": calls}))
