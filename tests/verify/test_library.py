"""Flags of cuDNN while answers are judged."""

import pytest
import torch

from kernelsearch.verify.library import steady_library


@pytest.mark.parametrize("timed", [False, True])
def test_flags_are_as_before_afterwards(timed):
    cudnn = torch.backends.cudnn
    before = cudnn.deterministic, cudnn.allow_tf32
    with pytest.raises(ZeroDivisionError), steady_library(tf32=timed):
        assert (cudnn.deterministic, cudnn.allow_tf32) == (True, timed and before[1])
        raise ZeroDivisionError
    assert (cudnn.deterministic, cudnn.allow_tf32) == before


def test_tf32_that_the_user_forbids_stays_forbidden(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    with steady_library(tf32=True):
        assert not torch.backends.cudnn.allow_tf32
