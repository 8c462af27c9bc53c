"""The part of Triton's language that a kernel may use, as plain data: no import of triton.

Every name here exists in Triton 3.6 to 3.9 with these parameters, except block pointers, which 3.9 no longer has
(a test compares the list with the installed version). Names are left out on purpose: inline assembly, prints and clocks
reach the host or the time; `slice`, `to_tensor` and the types' constructors are the compiler's own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import metadata

FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    name: tuple(parameters.split())
    for name, parameters in {
        # where a program is, and what it touches
        "program_id": "axis",
        "num_programs": "axis",
        "load": "pointer mask other boundary_check padding_option cache_modifier eviction_policy volatile",
        "store": "pointer value mask boundary_check cache_modifier eviction_policy",
        "make_block_ptr": "base shape strides offsets block_shape order",
        "advance": "base offsets",
        "make_tensor_descriptor": "base shape strides block_shape padding_option",
        "load_tensor_descriptor": "desc offsets",
        "store_tensor_descriptor": "desc offsets value",
        **dict.fromkeys(
            "atomic_add atomic_and atomic_max atomic_min atomic_or atomic_xor atomic_xchg".split(),
            "pointer val mask sem scope",
        ),
        "atomic_cas": "pointer cmp val sem scope",
        # making and shaping tensors
        "arange": "start end",
        "full": "shape value dtype",
        "zeros": "shape dtype",
        "zeros_like": "input",
        "cast": "input dtype fp_downcast_rounding bitcast",
        "broadcast": "input other",
        "broadcast_to": "input shape",
        "expand_dims": "input axis",
        "reshape": "input shape can_reorder",
        "view": "input shape",
        "ravel": "x can_reorder",
        "trans": "input dims",
        "permute": "input dims",
        "cat": "input other can_reorder",
        "join": "a b",
        "split": "a",
        "interleave": "a b",
        "flip": "x dim",
        "gather": "src index axis",
        # element by element
        "where": "condition x y",
        "add": "x y sanitize_overflow",
        "sub": "x y sanitize_overflow",
        "mul": "x y sanitize_overflow",
        "maximum": "x y propagate_nan",
        "minimum": "x y propagate_nan",
        "clamp": "x min max propagate_nan",
        **dict.fromkeys("abs ceil floor exp exp2 log log2 sin cos sqrt sqrt_rn rsqrt erf sigmoid".split(), "x"),
        "fdiv": "x y ieee_rounding",
        "div_rn": "x y",
        "fma": "x y z",
        "umulhi": "x y",
        "cdiv": "x div",
        "swizzle2d": "i j size_i size_j size_g",
        "map_elementwise": "scalar_fn args pack",
        # along an axis
        "sum": "input axis keep_dims dtype",
        "max": "input axis return_indices return_indices_tie_break_left keep_dims",
        "min": "input axis return_indices return_indices_tie_break_left keep_dims",
        "argmax": "input axis tie_break_left keep_dims",
        "argmin": "input axis tie_break_left keep_dims",
        "xor_sum": "input axis keep_dims",
        "reduce_or": "input axis keep_dims",
        "reduce": "input axis combine_fn keep_dims",
        "associative_scan": "input axis combine_fn reverse",
        "cumsum": "input axis reverse dtype",
        "cumprod": "input axis reverse",
        "sort": "x dim descending",
        "topk": "x k dim",
        "bitonic_merge": "x dim descending",
        "histogram": "input num_bins mask",
        "softmax": "x dim keep_dims ieee_rounding",
        # matrix units
        "dot": "input other acc input_precision allow_tf32 max_num_imprecise_acc out_dtype",
        "dot_scaled": "lhs lhs_scale lhs_format rhs rhs_scale rhs_format acc fast_math lhs_k_pack rhs_k_pack out_dtype",
        # loops, and what the compiler may assume
        "range": "arg1 arg2 step num_stages loop_unroll_factor disallow_acc_multi_buffer flatten warp_specialize "
        "disable_licm",
        "static_range": "arg1 arg2 step",
        "condition": "arg1 disable_licm",
        "assume": "cond",
        "multiple_of": "input values",
        "max_contiguous": "input values",
        "max_constancy": "input values",
        "static_assert": "cond msg",
        "device_assert": "cond msg mask",
        "debug_barrier": "",
        "constexpr": "value",
        "pointer_type": "element_ty",
        "tuple": "args",
        # random numbers from a counter
        "rand": "seed offset n_rounds",
        "randn": "seed offset n_rounds",
        "randint": "seed offset n_rounds",
        "rand4x": "seed offsets n_rounds",
        "randn4x": "seed offset n_rounds",
        "randint4x": "seed offset n_rounds",
        "philox": "seed c0 c1 c2 c3 n_rounds",
        "uint_to_uniform_float": "x",
        "pair_uniform_to_normal": "u1 u2",
    }.items()
}
"""`tl.NAME(...)`: each function with its parameters in order, without the compiler's own (`_semantic`)."""

BLOCK_POINTERS: Mapping[str, tuple[str, ...]] = {
    "make_block_ptr": (),
    "advance": (),
    "load": ("boundary_check", "padding_option"),
    "store": ("boundary_check",),
}
"""What block pointers need: functions (no parameters named) and parameters of others."""

LAST_BLOCK_POINTERS = (3, 8)
"""The last Triton with block pointers: 3.9 has neither `tl.advance` nor those parameters, and its `tl.make_block_ptr`
only raises NotImplementedError (triton/language/core.py of 3.9.0)."""

VARIADIC = frozenset({"broadcast_to", "reshape", "view", "trans", "permute", "map_elementwise"})
"""Functions whose last listed parameters take any number of values."""

REFUSED: Mapping[str, str] = {
    "inline_asm_elementwise": "inline assembly is never allowed; write the arithmetic with tl functions",
    "device_print": "a kernel prints nothing; store the value and look at it with verify --explain",
    "static_print": "a kernel prints nothing; use tl.static_assert",
    "clock": "a kernel may not read the time",
    "globaltimer": "a kernel may not read the time",
    "extra": "only libdevice is allowed of tl.extra: `from triton.language.extra import libdevice`",
    "core": "use the function as tl.NAME",
    "standard": "use the function as tl.NAME",
    "tensor": "tensors come from tl functions such as tl.full or tl.load",
    "to_tensor": "tensors come from tl functions such as tl.full or tl.load",
}
"""Names that people try, with what to do instead; all other unlisted names are refused too."""

MATH_FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    name: FUNCTIONS[name]
    for name in "abs ceil cos div_rn erf exp exp2 fdiv floor fma log log2 rsqrt sin sqrt sqrt_rn umulhi".split()
}
"""`tl.math.NAME(...)`."""

DTYPES: tuple[str, ...] = tuple(
    """
    int1 int8 int16 int32 int64 uint8 uint16 uint32 uint64 float8e4nv float8e5 float8e4b8 float8e4b15 float8e5b16
    float16 bfloat16 float32 float64
    """.split()
)
"""`tl.NAME` as a value."""

SCRATCH_DTYPES: tuple[str, ...] = tuple("int8 int16 int32 int64 uint8 float16 bfloat16 float32 float64".split())
"""Element types of a scratch buffer, by torch's names."""

DTYPE_OF = re.compile(r"dtype\((\w+)\)")
"""The element type of a scratch buffer that is that of a tensor argument."""

METHODS: frozenset[str] = frozenset(
    """
    to cast store load scatter gather advance abs ceil floor exp exp2 log log2 sin cos sqrt sqrt_rn rsqrt erf sigmoid
    sum max min argmax argmin xor_sum reduce_or reduce associative_scan cumsum cumprod sort softmax histogram cdiv
    broadcast_to expand_dims permute reshape trans view ravel flip split logical_and logical_or atomic_add atomic_and
    atomic_cas atomic_max atomic_min atomic_or atomic_xchg atomic_xor is_floating is_fp16 is_bf16 is_fp32 is_fp64
    is_fp8 is_fp8e4nv is_fp8e5 is_int is_int1 is_int8 is_int16 is_int32 is_int64 is_int_signed is_int_unsigned is_ptr
    is_block is_bool is_standard_floating is_uint8 is_uint16 is_uint32 is_uint64
    """.split()
)
"""`value.NAME(...)` on tensors, descriptors, dtypes and constexprs."""

KEYWORDS_OF_METHODS: frozenset[str] = frozenset(
    {p for name in METHODS & FUNCTIONS.keys() for p in FUNCTIONS[name]}
    | {"dtype", "fp_downcast_rounding", "bitcast", "offsets", "value", "x_offsets", "y_offset"}
)
"""Keyword arguments that a method call may use."""

ATTRIBUTES: frozenset[str] = frozenset(
    """
    T shape dtype type element_ty scalar numel value primitive_bitwidth int_bitwidth fp_mantissa_width block_shape
    strides
    """.split()
)
"""`value.NAME` without a call; chains such as `x_ptr.dtype.element_ty` follow."""

WORDS: frozenset[str] = frozenset(
    """
    .ca .cg .cv .wb .cs .wt evict_first zero nan inf -inf +inf infinity -infinity ieee tf32 tf32x3 bf16x3 bf16x6
    acquire release relaxed acq_rel gpu cta sys rtne rtz e2m1 e4m3 e5m2 bf16 fp16
    """.split()
) | {""}
"""The only strings that may stand in a function, docstrings and assertion messages apart.

`evict_last` is not among them: what it keeps in L2 outlives the candidate and speeds up the next one's timing.
"""

REFUSED_WORDS: frozenset[str] = frozenset({"evict_last"})
"""Strings that mean something to Triton and that no function may hold, see `WORDS`."""

MAX_TEXT = 200
"""Characters of an assertion's message, and of a word that is only compared with or handed on."""

MEMBERS: frozenset[str] = frozenset({"PropagateNan.ALL", "PropagateNan.NONE"})
"""`tl.NAME.MEMBER` as a value."""

BUILTINS: frozenset[str] = frozenset({"range", "min", "max", "float"})
"""Python's own functions that Triton understands and a kernel may call."""

HOST_FUNCTIONS: frozenset[str] = frozenset({"cdiv", "next_power_of_2"})
"""`triton.NAME(...)` inside a kernel."""

JIT_FLAGS: frozenset[str] = frozenset({"do_not_specialize", "do_not_specialize_on_alignment", "noinline"})
"""Keyword arguments of `@triton.jit(...)`, with literal values."""

LIBDEVICE: frozenset[str] = frozenset(
    """
    abs acos acosh add_rd add_rn add_ru add_rz asin asinh atan atan2 atanh brev byte_perm cbrt ceil clz copysign cos
    cosh cospi cyl_bessel_i0 cyl_bessel_i1 div_rd div_rn div_ru div_rz double2float_rd double2float_rn double2float_ru
    double2float_rz double2hiint double2int_rd double2int_rn double2int_ru double2int_rz double2ll_rd double2ll_rn
    double2ll_ru double2ll_rz double2loint double2uint_rd double2uint_rn double2uint_ru double2uint_rz double2ull_rd
    double2ull_rn double2ull_ru double2ull_rz double_as_longlong erf erfc erfcinv erfcx erfinv exp exp10 exp2 expm1
    fast_cosf fast_dividef fast_exp10f fast_expf fast_log10f fast_log2f fast_logf fast_powf fast_sinf fast_tanf
    fast_tanhf fdim ffs finitef float2int_rd float2int_rn float2int_ru float2int_rz float2ll_rd float2ll_rn float2ll_ru
    float2ll_rz float2uint_rd float2uint_rn float2uint_ru float2uint_rz float2ull_rd float2ull_rn float2ull_ru
    float2ull_rz float_as_int float_as_uint floor fma fma_rd fma_rn fma_ru fma_rz fmod hadd hiloint2double hypot ilogb
    int2double_rn int2float_rd int2float_rn int2float_ru int2float_rz int_as_float isfinited isinf isnan j0 j1 jn ldexp
    lgamma ll2double_rd ll2double_rn ll2double_ru ll2double_rz ll2float_rd ll2float_rn ll2float_ru ll2float_rz llrint
    llround log log10 log1p log2 logb longlong_as_double mul24 mul_rd mul_rn mul_ru mul_rz mulhi nearbyint nextafter
    norm3d norm4d normcdf normcdfinv popc pow rcbrt rcp64h rcp_rd rcp_rn rcp_ru rcp_rz remainder rhadd rhypot rint
    rnorm3d rnorm4d round rsqrt rsqrt_rn sad saturatef scalbn signbit sin sinh sinpi sqrt sqrt_rd sqrt_rn sqrt_ru
    sqrt_rz sub_rd sub_rn sub_ru sub_rz tan tanh tgamma trunc uint2double_rn uint2float_rd uint2float_rn uint2float_ru
    uint2float_rz uint_as_float ull2double_rd ull2double_rn ull2double_ru ull2double_rz ull2float_rd ull2float_rn
    ull2float_ru ull2float_rz y0 y1 yn
    """.split()
)
"""`libdevice.NAME(...)`: arithmetic only."""


@cache
def installed_version() -> tuple[int, int]:
    """Major and minor version of this environment's Triton, from its metadata."""
    major, minor = metadata.version("triton").split(".")[:2]
    return int(major), int(minor)


@cache
def functions_of(version: tuple[int, int]) -> Mapping[str, tuple[str, ...]]:
    """The functions and parameters of `FUNCTIONS` that exist in this version of Triton."""
    if version <= LAST_BLOCK_POINTERS:
        return FUNCTIONS
    return {
        name: tuple(p for p in parameters if p not in BLOCK_POINTERS.get(name, ()))
        for name, parameters in FUNCTIONS.items()
        if BLOCK_POINTERS.get(name) != ()
    }


def explain_refusal(name: str) -> str:
    """Why `tl.name` is refused, with what is allowed instead."""
    if name in BLOCK_POINTERS:
        version = ".".join(map(str, installed_version()))
        return f"Triton {version} has no block pointers; use tl.make_tensor_descriptor, or pointers with masks"
    if name in REFUSED:
        return REFUSED[name]
    similar = sorted(n for n in (*FUNCTIONS, *DTYPES) if n.startswith(name[:3]))[:4]
    if similar:
        return "allowed names like it: " + ", ".join(f"tl.{n}" for n in similar)
    return "it is not in kernelsearch's list of tl functions"


def refuse_scratch_dtype(name: object) -> str:
    """Why a scratch buffer cannot have this element type; empty if it can."""
    if name in SCRATCH_DTYPES or (isinstance(name, str) and DTYPE_OF.fullmatch(name)):
        return ""
    return f"the dtype is one of {', '.join(SCRATCH_DTYPES)} or 'dtype(argument)', not {name!r}"
