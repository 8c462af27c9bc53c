"""Fingerprints tell tensors apart."""

import pytest
import torch

from kernelsearch.verify import bits


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int8, torch.bool])
def test_fingerprints_differ_where_any_bit_shape_or_order_does(dtype, monkeypatch):
    monkeypatch.setattr(bits, "HASHED", 64)
    torch.manual_seed(0)
    x = (torch.randn(20, 12) * 2).round().to(dtype)
    same = bits.compute_fingerprint([x, x], 5)
    assert same == bits.compute_fingerprint([x.clone(), x], 5)
    assert same != bits.compute_fingerprint([x, x], 6)
    top = x.clone().reshape(-1)
    words = bits.as_bits(top)
    words[239] ^= 1 if words.dtype is torch.uint8 else torch.iinfo(words.dtype).min
    swapped = x.clone()
    swapped[[0, 19]] = x[[19, 0]]
    for other in (top.reshape(20, 12), swapped, x.t().contiguous().t(), x.reshape(12, 20), x[:19]):
        assert same != bits.compute_fingerprint([x, other], 5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128, torch.int64])
def test_a_flipped_sign_is_seen_with_any_secret(dtype):
    x = torch.arange(1.0, 41.0).to(dtype)
    one, every = x.clone(), -x
    one[7] = -one[7]
    others = [one, every, *([x.conj().resolve_conj() + 1j] if dtype.is_complex else [])]
    for secret in range(300):
        mark = bits.compute_fingerprint([x], secret)
        assert all(bits.compute_fingerprint([other], secret) != mark for other in others)
