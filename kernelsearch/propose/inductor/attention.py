"""Attention in a seeded file: a plain kernel of the project's own, or torch's call laid out as Inductor expects it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelsearch.propose.inductor.kernel_text import KernelText, NotConvertible

OP = "_scaled_dot_product_flash_attention_for_cpu"
"""What Inductor calls here where a GPU has several kernels; there is none of this name on a GPU."""
KERNEL = "attention_kernel"
GRID = "(triton.cdiv({ynumel}, meta['YBLOCK']), {znumel})"
WIDEST_HEAD = 256
CONFIGS = tuple(
    {"YBLOCK": rows, "R0_BLOCK": keys, "num_warps": warps, "num_stages": stages}
    for rows, keys, warps, stages in (
        (64, 32, 4, 2),
        (64, 64, 4, 3),
        (128, 64, 4, 2),
        (128, 64, 8, 3),
        (128, 128, 8, 2),
    )
)
LIBRARY = """
def attend(q, k, v, is_causal=False, **options):
    # the kernels read the result in the layout of q, which not every kernel of torch's writes
    out = torch.empty_like(q)
    options = {**options, "is_causal": is_causal, "enable_gqa": q.shape[1] != k.shape[1]}
    found = torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)
    return found if found.stride() == out.stride() else out.copy_(found)
""".strip()
_STRIDES = tuple(f"{t}_stride_{axis}" for t in ("q", "k", "v", "out") for axis in ("z", "h", "y", "d"))
_PARAMETERS = ("q_ptr", "k_ptr", "v_ptr", "out_ptr", *_STRIDES, "heads", "group", "head_dim", "scale", "znumel",
               "ynumel", "r0_numel", "CAUSAL: tl.constexpr", "HEAD: tl.constexpr")  # fmt: skip
TEXT = f"""
@triton.jit
def {KERNEL}({", ".join(_PARAMETERS)}, YBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    # a block of queries; the softmax over the keys is taken block by block, with a running maximum and sum
    z = (tl.program_id(1) // heads).to(tl.int64)
    h = (tl.program_id(1) % heads).to(tl.int64)
    kv = h // group  # heads of q that share one of k and v
    first = tl.program_id(0) * YBLOCK
    rows = first + tl.arange(0, YBLOCK)[:, None]
    dims = tl.arange(0, HEAD)
    mask = (rows < ynumel) & (dims[None, :] < head_dim)
    q_offset = z * q_stride_z + h * q_stride_h
    q = tl.load(q_ptr + q_offset + rows * q_stride_y + dims[None, :] * q_stride_d, mask=mask, other=0.0)
    k_base = k_ptr + z * k_stride_z + kv * k_stride_h + dims[:, None] * k_stride_d
    v_base = v_ptr + z * v_stride_z + kv * v_stride_h + dims[None, :] * v_stride_d
    largest = tl.full([YBLOCK], float("-inf"), tl.float32)
    total = tl.zeros([YBLOCK], tl.float32)
    acc = tl.zeros([YBLOCK, HEAD], tl.float32)
    end = tl.minimum(first + YBLOCK, r0_numel) if CAUSAL else r0_numel
    for start in tl.range(0, end, R0_BLOCK):
        keys = start + tl.arange(0, R0_BLOCK)
        k_mask = (keys[None, :] < r0_numel) & (dims[:, None] < head_dim)
        v_mask = (keys[:, None] < r0_numel) & (dims[None, :] < head_dim)
        k = tl.load(k_base + keys[None, :] * k_stride_y, mask=k_mask, other=0.0)
        v = tl.load(v_base + keys[:, None] * v_stride_y, mask=v_mask, other=0.0)
        scores = tl.dot(q, k, input_precision='ieee') * scale
        seen = (keys[None, :] < r0_numel) & (keys[None, :] <= rows) if CAUSAL else keys[None, :] < r0_numel
        scores = tl.where(seen, scores, float("-inf"))
        larger = tl.maximum(largest, tl.max(scores, axis=1))
        shrink = tl.exp(largest - larger)
        p = tl.exp(scores - larger[:, None])
        total = total * shrink + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision='ieee')
        largest = larger
    out = (acc / total[:, None]).to(out_ptr.dtype.element_ty)
    out_offset = z * out_stride_z + h * out_stride_h
    tl.store(out_ptr + out_offset + rows * out_stride_y + dims[None, :] * out_stride_d, out, mask=mask)
""".strip()


def make_kernel() -> KernelText:
    """The kernel; its first parameters are those of a launch."""
    return KernelText(KERNEL, {KERNEL: TEXT}, tuple(p.partition(":")[0] for p in _PARAMETERS), ("YBLOCK", "R0_BLOCK"))


def is_attention(call: ast.Call) -> bool:
    return OP in ast.unparse(call.func)


def write_call(call: ast.Call) -> str:
    """Inductor's call as torch's own; a tuple, as the results are read by number. Raises NotConvertible."""
    q, k, v, causal = read_call(call)
    rest = [f"{o.arg}={ast.unparse(o.value)}" for o in call.keywords]
    return f"(attend({', '.join([q, k, v, causal, *rest])}),)"


def read_call(call: ast.Call) -> tuple[str, ...]:
    """(q, k, v, whether it is causal) of Inductor's call. Raises NotConvertible."""
    words = [ast.unparse(a) for a in call.args] + ["0.0", "False"][len(call.args) - 3 :]
    if words[3] != "0.0":
        raise NotConvertible("scaled_dot_product_attention with dropout makes random numbers")
    return (*words[:3], words[4])


def list_launch(name: str, call: ast.Call) -> Iterator[str | tuple[str, ...]]:
    """What the host does in the place of Inductor's call: statements, and the arguments of a launch of the kernel."""
    *tensors, causal = read_call(call)
    q, k, v = (t if t.isidentifier() else f"{name}_{letter}" for t, letter in zip(tensors, "qkv", strict=True))
    out = f"{name}[0]"
    yield from (f"{own} = {given}" for own, given in zip((q, k, v), tensors, strict=True) if own != given)
    yield f"{name} = (torch.empty_like({q}),)"
    given = next((ast.unparse(o.value) for o in call.keywords if o.arg == "scale"), "None")
    scale = f"{q}.shape[3] ** -0.5" if given == "None" else given
    strides = (f"{tensor}.stride({axis})" for tensor in (q, k, v, out) for axis in range(4))
    sizes = (f"{q}.shape[0] * {q}.shape[1]", f"{q}.shape[2]", f"{k}.shape[2]")
    whole = f"max(16, triton.next_power_of_2({q}.shape[3]))"
    heads = (f"{q}.shape[1]", f"{q}.shape[1] // {k}.shape[1]")
    yield (q, k, v, out, *strides, *heads, f"{q}.shape[3]", scale, *sizes, causal, whole)
