# task: attention
# trick: none in the source: NaN on an H200 that nine processes shared (Triton 3.6), right in three runs alone
# verdict: reject-wrong or reject-race or reject-timing or accept
# interpreter: accept (what compiled code does otherwise is not seen)
import triton
import triton.language as tl

GRID = '(min(grid(0) * grid(1), num_sms * WAVES),)'
ARGS = {'Q_TMA': 'aligned(q_ptr) and seq_stride % 16 == 0 and head_stride % 16 == 0 and HEAD_DIM >= 16', 'K_TMA': 'aligned(k_ptr) and seq_stride % 16 == 0 and head_stride % 16 == 0 and HEAD_DIM >= 16', 'V_TMA': 'aligned(v_ptr) and seq_stride % 16 == 0 and head_stride % 16 == 0 and HEAD_DIM >= 16', 'O_TMA': 'aligned(o_ptr) and seq_stride % 16 == 0 and head_stride % 16 == 0 and HEAD_DIM >= 16', 'n_programs_0': 'grid(0)', 'n_programs_1': 'grid(1)'}
CONFIG = {'WAVES': 2, 'num_warps': 4}


@triton.jit
def attention_kernel(q_ptr, k_ptr, v_ptr, o_ptr, head_stride, seq_stride, seq_len, scale, HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, Q_TMA: tl.constexpr, K_TMA: tl.constexpr, V_TMA: tl.constexpr, O_TMA: tl.constexpr, n_programs_0, n_programs_1, WAVES: tl.constexpr):
    for program in tl.range(tl.program_id(0), n_programs_0 * n_programs_1, tl.num_programs(0), num_stages=1):
        program_0 = program % n_programs_0
        head = program // n_programs_0
        rows = program_0 * BLOCK_M + tl.arange(0, BLOCK_M)
        dims = tl.arange(0, HEAD_DIM)
        base = head * head_stride
        row_mask = rows[:, None] < seq_len
        row_offsets = base + rows[:, None] * seq_stride + dims[None, :]
        if Q_TMA:
            q_tiles = tl.make_tensor_descriptor(q_ptr + base, [seq_len, HEAD_DIM], [seq_stride, 1], [BLOCK_M, HEAD_DIM])
            q = q_tiles.load([program_0 * BLOCK_M, 0])
        else:
            q = tl.load(q_ptr + row_offsets, mask=row_mask, other=0.0)
        row_max = tl.full([BLOCK_M], float('-inf'), dtype=tl.float32)
        row_sum = tl.zeros([BLOCK_M], dtype=tl.float32)
        acc = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)
        if K_TMA:
            k_tiles = tl.make_tensor_descriptor(k_ptr + base, [seq_len, HEAD_DIM], [seq_stride, 1], [BLOCK_N, HEAD_DIM])
        if V_TMA:
            v_tiles = tl.make_tensor_descriptor(v_ptr + base, [seq_len, HEAD_DIM], [seq_stride, 1], [BLOCK_N, HEAD_DIM])
        for start in tl.range(0, seq_len, BLOCK_N, num_stages=None if K_TMA and V_TMA else 2, warp_specialize=K_TMA and V_TMA):
            keys = start + tl.arange(0, BLOCK_N)
            if K_TMA:
                k = tl.trans(k_tiles.load([start, 0]))
            else:
                k = tl.load(k_ptr + base + keys[None, :] * seq_stride + dims[:, None], mask=keys[None, :] < seq_len, other=0.0)
            if V_TMA:
                v = v_tiles.load([start, 0])
            else:
                v = tl.load(v_ptr + base + keys[:, None] * seq_stride + dims[None, :], mask=keys[:, None] < seq_len, other=0.0)
            scores = tl.dot(q, k, input_precision='ieee') * (scale * 1.4426950408889634)
            scores = tl.where(keys[None, :] < seq_len, scores, float('-inf'))
            new_max = tl.maximum(row_max, tl.max(scores, axis=1))
            correction = tl.exp2(row_max - new_max)
            p = tl.exp2(scores - new_max[:, None])
            row_sum = row_sum * correction + tl.sum(p, axis=1)
            acc = acc * correction[:, None]
            acc = tl.dot(p.to(v.dtype), v, acc, input_precision='ieee')
            row_max = new_max
        o = acc / row_sum[:, None]
        if O_TMA:
            o_tiles = tl.make_tensor_descriptor(o_ptr + base, [seq_len, HEAD_DIM], [seq_stride, 1], [BLOCK_M, HEAD_DIM])
            o_tiles.store([program_0 * BLOCK_M, 0], o.to(o_ptr.dtype.element_ty))
        else:
            tl.store(o_ptr + row_offsets, o.to(o_ptr.dtype.element_ty), mask=row_mask)
