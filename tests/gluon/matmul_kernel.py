LANGUAGE = "gluon"
GRID = "(min(num_sms, cdiv(M, BM) * cdiv(N, BN)),)"
DESCRIPTORS = {
    "a_desc": ("a_ptr", "(M, K)", "(stride_am, stride_ak)", "(BM // 2, BK)", None),
    "b_desc": ("b_ptr", "(K, N)", "(stride_bk, stride_bn)", "(BK, BN)", None),
    "c_desc": ("c_ptr", "(M, N)", "(stride_cm, stride_cn)", "(BM // 2, BN // 2)", None),
}
SPACE = {
    "BM": [128],
    "BN": [128, 256],
    "BK": [64],
    "STAGES": [3, 4],
    "GROUP": [8, 16],
    "num_warps": [4],
    "maxnreg": [168],
}
CONFIG = {"BM": 128, "BN": 256, "BK": 64, "STAGES": 3, "GROUP": 8, "num_warps": 4, "maxnreg": 168}

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma, warpgroup_mma_wait


@gluon.jit
def place(t, num_m, num_n, GROUP: gl.constexpr):
    first = (t // (GROUP * num_n)) * GROUP
    rows = gl.minimum(num_m - first, GROUP)
    r = t % (GROUP * num_n)
    return first + r % rows, r // rows


@gluon.jit
def advance(s, phase, STAGES: gl.constexpr):
    last = s == STAGES - 1
    return gl.where(last, 0, s + 1), gl.where(last, phase ^ 1, phase)


@gluon.jit
def produce(
    a_desc,
    b_desc,
    a_bufs,
    b_bufs,
    full,
    empty,
    num_m,
    num_n,
    steps,
    BM: gl.constexpr,
    BN: gl.constexpr,
    BK: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
):
    s = 0
    phase = 0
    for t in range(gl.program_id(0), num_m * num_n, gl.num_programs(0)):
        m, n = place(t, num_m, num_n, GROUP)
        for k in range(steps):
            mbarrier.wait(empty.index(s), phase ^ 1)
            bar = full.index(s)
            mbarrier.expect(bar, BM * BK * 2 + BK * BN * 2)
            tma.async_copy_global_to_shared(a_desc, [m * BM, k * BK], bar, a_bufs.index(2 * s))
            tma.async_copy_global_to_shared(a_desc, [m * BM + BM // 2, k * BK], bar, a_bufs.index(2 * s + 1))
            tma.async_copy_global_to_shared(b_desc, [k * BK, n * BN], bar, b_bufs.index(s))
            s, phase = advance(s, phase, STAGES)


@gluon.jit
def consume(
    a_bufs,
    b_bufs,
    full,
    empty,
    c_desc,
    c_bufs,
    num_m,
    num_n,
    steps,
    HALF: gl.constexpr,
    BM: gl.constexpr,
    BN: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
    dtype: gl.constexpr,
):
    whole: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 16])
    half: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN // 2, 16])
    s = 0
    phase = 0
    c = c_bufs.index(HALF)
    for t in range(gl.program_id(0), num_m * num_n, gl.num_programs(0)):
        m, n = place(t, num_m, num_n, GROUP)
        acc = gl.zeros([BM // 2, BN], gl.float32, whole)
        for k in range(steps):
            mbarrier.wait(full.index(s), phase)
            acc = warpgroup_mma(a_bufs.index(2 * s + HALF), b_bufs.index(s), acc, is_async=True)
            acc = warpgroup_mma_wait(0, deps=(acc,))
            mbarrier.arrive(empty.index(s), count=1)
            s, phase = advance(s, phase, STAGES)
        row = m * BM + HALF * (BM // 2)
        x, y = gl.split(gl.permute(gl.reshape(acc.to(dtype), [BM // 2, 2, BN // 2]), [0, 2, 1]))
        tma.store_wait(0)
        c.store(gl.convert_layout(x, half))
        fence_async_shared()
        tma.async_copy_shared_to_global(c_desc, [row, n * BN], c)
        tma.store_wait(0)
        c.store(gl.convert_layout(y, half))
        fence_async_shared()
        tma.async_copy_shared_to_global(c_desc, [row, n * BN + BN // 2], c)
    tma.store_wait(0)


@gluon.jit
def multiply_plainly(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn):
    layout: gl.constexpr = gl.BlockedLayout([1, 1], [4, 8], [4, 1], [1, 0])
    num_n = gl.cdiv(N, 32)
    for t in range(gl.program_id(0), gl.cdiv(M, 32) * num_n, gl.num_programs(0)):
        rows = t // num_n * 32 + gl.arange(0, 32, gl.SliceLayout(1, layout))
        cols = t % num_n * 32 + gl.arange(0, 32, gl.SliceLayout(0, layout))
        acc = gl.zeros([32, 32], gl.float32, layout)
        for k in range(K):
            a = gl.load(a_ptr + rows * stride_am + k * stride_ak, mask=rows < M, other=0.0).to(gl.float32)
            b = gl.load(b_ptr + k * stride_bk + cols * stride_bn, mask=cols < N, other=0.0).to(gl.float32)
            acc += a[:, None] * b[None, :]
        mask = (rows[:, None] < M) & (cols[None, :] < N)
        at = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
        gl.store(at, acc.to(c_ptr.dtype.element_ty), mask=mask)


@gluon.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    a_desc,
    b_desc,
    c_desc,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BM: gl.constexpr,
    BN: gl.constexpr,
    BK: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
):
    dtype: gl.constexpr = a_ptr.dtype.element_ty
    if a_desc is None or b_desc is None or c_desc is None or dtype.primitive_bitwidth != 16:
        multiply_plainly(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn)
    else:
        num_m = gl.cdiv(M, BM)
        num_n = gl.cdiv(N, BN)
        steps = gl.cdiv(K, BK)
        a_bufs = gl.allocate_shared_memory(dtype, [2 * STAGES, BM // 2, BK], a_desc.layout)
        b_bufs = gl.allocate_shared_memory(dtype, [STAGES, BK, BN], b_desc.layout)
        c_bufs = gl.allocate_shared_memory(dtype, [2, BM // 2, BN // 2], c_desc.layout)
        full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
        empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
        for i in gl.static_range(STAGES):
            mbarrier.init(full.index(i), count=1)
            mbarrier.init(empty.index(i), count=2)
        fence_async_shared()
        gl.warp_specialize(
            [
                (
                    consume,
                    (a_bufs, b_bufs, full, empty, c_desc, c_bufs, num_m, num_n, steps, 0, BM, BN, STAGES, GROUP, dtype),
                ),
                (
                    consume,
                    (a_bufs, b_bufs, full, empty, c_desc, c_bufs, num_m, num_n, steps, 1, BM, BN, STAGES, GROUP, dtype),
                ),
                (
                    produce,
                    (a_desc, b_desc, a_bufs, b_bufs, full, empty, num_m, num_n, steps, BM, BN, BK, STAGES, GROUP),
                ),
            ],
            [4, 1],
            [232, 40],
        )
