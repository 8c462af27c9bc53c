"""The part of Gluon that a kernel file may use, as plain data: no import of triton.

Gluon is Triton's lower language: layouts, shared memory, barriers, copies of tiles and specialised warps are written
out. Every name here exists in Triton 3.6 and 3.7 with these parameters (a test compares the list with the installed
version). Left out are inline assembly, prints and clocks, as in `language`, and what Hopper does not have.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelsearch.kernel import language

_SHARED = """
program_id num_programs load store where add sub mul maximum minimum abs ceil floor exp exp2 log log2 sin cos sqrt
sqrt_rn rsqrt erf fdiv div_rn fma umulhi cdiv broadcast expand_dims reshape permute ravel join split cast gather sum max
min xor_sum reduce_or reduce associative_scan static_range assume multiple_of max_contiguous max_constancy static_assert
device_assert constexpr atomic_add atomic_and atomic_cas atomic_max atomic_min atomic_or atomic_xchg atomic_xor
"""
"""What has the parameters of Triton's function of that name."""

_OWN = {
    # layouts
    "AutoLayout": "",
    "BlockedLayout": "size_per_thread threads_per_warp warps_per_cta order",
    "SliceLayout": "dim parent",
    "DotOperandLayout": "operand_index parent k_width",
    "DistributedLinearLayout": "reg_bases lane_bases warp_bases block_bases shape",
    "NVMMADistributedLayout": "version warps_per_cta instr_shape",
    "NVMMASharedLayout": "swizzle_byte_width element_bitwidth rank transposed",
    "SwizzledSharedLayout": "vec per_phase max_phase order",
    "convert_layout": "value layout assert_trivial",
    "set_auto_layout": "value layout",
    # tensors, shared memory and warps
    "arange": "start end layout",
    "full": "shape value dtype layout",
    "full_like": "input value shape dtype layout",
    "zeros": "shape dtype layout",
    "zeros_like": "input shape dtype layout",
    "allocate_shared_memory": "element_ty shape layout value",
    "warp_specialize": "functions_and_args worker_num_warps worker_num_regs",
    "num_warps": "",
    "dot_fma": "a b acc",
}

HOPPER: Mapping[str, tuple[str, ...]] = {
    name: tuple(parameters.split())
    for name, parameters in {
        "fence_async_shared": "cluster",
        "warpgroup_mma": "a b acc use_acc precision max_num_imprecise_acc is_async",
        "warpgroup_mma_init": "value",
        "warpgroup_mma_wait": "num_outstanding deps",
        "mbarrier.MBarrierLayout": "",
        "mbarrier.init": "mbarrier count",
        "mbarrier.expect": "mbarrier bytes pred",
        "mbarrier.wait": "mbarrier phase pred deps",
        "mbarrier.arrive": "mbarrier count pred",
        "mbarrier.invalidate": "mbarrier",
        "tma.async_copy_global_to_shared": "tensor_desc coord barrier result pred",
        "tma.async_copy_shared_to_global": "tensor_desc coord src",
        "tma.store_wait": "pendings",
    }.items()
}
"""What is imported from `triton.experimental.gluon.language.nvidia.hopper`, by the name under which it is called."""

FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    **{f"gl.{name}": language.FUNCTIONS[name] for name in _SHARED.split()},
    **{f"gl.{name}": tuple(parameters.split()) for name, parameters in _OWN.items()},
    **HOPPER,
}
"""Each function by its called name, with its parameters in order, without the compiler's own (`_semantic`)."""

METHODS: frozenset[str] = language.METHODS - {"advance", "sort", "softmax", "cumsum", "cumprod"} | {"index", "slice"}
"""`value.NAME(...)` on tensors, shared memory and constexprs."""

ATTRIBUTES: frozenset[str] = language.ATTRIBUTES | {"layout", "block_type", "rank"}

MODULE = "triton.experimental.gluon.language.nvidia.hopper"
IMPORTED = tuple(sorted({name.partition(".")[0] for name in HOPPER}))
HEADER = (
    "import triton\nfrom triton.experimental import gluon\nfrom triton.experimental.gluon import language as gl\n"
    f"from {MODULE} import {', '.join(IMPORTED)}"
)
"""The imports of a kernel file's compiled text."""
