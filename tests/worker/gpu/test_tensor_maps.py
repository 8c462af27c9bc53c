"""What the driver is told of a descriptor argument, and what the binary gets for it; the driver itself is played."""

import ctypes
from types import SimpleNamespace

import pytest
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from kernelsearch.compile.tensor_maps import TensorMap, list_flags
from kernelsearch.kernel.launch import HostDescriptor, LaunchStep, Passed, Scratch
from kernelsearch.worker.gpu import cuda
from kernelsearch.worker.launcher.arguments import replace_tensors, resolve_arguments, tensors_in

BF16 = TensorMap.read({"swizzle": 3, "elem_size": 2, "elem_type": 10, "block_size": [128, 64], "fp4_padded": False})
KIND = "tensordesc<bf16[128, 64]>"


@pytest.fixture
def told(monkeypatch):
    """The calls of `cuTensorMapEncodeTiled`, as numbers."""
    calls = []

    def encode(made, kind, rank, address, sizes, strides, box, steps, interleave, swizzle, promotion, fill):
        assert ctypes.addressof(made) % 64 == 0 and ctypes.sizeof(made) == 128
        lists = [list(a) for a in (sizes, strides[: rank - 1], box, steps)]
        calls.append((kind, rank, address.value, *lists, interleave, swizzle, promotion, fill))
        made[0] = len(calls)
        return 0

    played = SimpleNamespace(
        cuTensorMapEncodeTiled=encode, cuModuleLoadData=lambda *a: 0, cuModuleGetFunction=lambda *a: 0
    )
    monkeypatch.setattr(cuda, "_driver", lambda: played)
    cuda.encode_tensor_map.cache_clear()
    yield calls
    cuda.encode_tensor_map.cache_clear()


def loaded(params, maps, parameters):
    mix = SimpleNamespace(parameters=parameters)
    binary = SimpleNamespace(cubin=b"", name="k", shared=0, params=params, maps=maps, mix=mix)
    return cuda.LoadedFunction(binary)


def test_a_map_is_made_once_for_an_address_and_a_shape(told):
    x = torch.zeros(256 * 80, dtype=torch.bfloat16)
    function = loaded((("n", "i32"), ("x_desc", KIND)), (BF16,), 8)
    given = TensorDescriptor(x, [250, 72], [80, 1], [128, 64])
    n, tensor_map, *sizes = function._expand([7, given])
    assert (n, sizes) == (7, [250, 72, 80, 1])
    # the last axis first; strides in bytes, without the last; bfloat16, rows of 128 bytes swizzled, zeros outside
    wanted = (9, 2, x.data_ptr(), [72, 250], [160], [64, 128], [1, 1], 0, 3, 2, 0)
    assert told == [wanted] and tensor_map[0] == 1
    cells = [kind(v) for kind, v in zip(function.types, (n, tensor_map, *sizes, 0, 0), strict=True)]
    assert cells[1] is tensor_map and [ctypes.sizeof(c) for c in cells] == [4, 128, 4, 4, 8, 8, 8, 8]
    assert list(function._expand([7, TensorDescriptor(x, [250, 72], [80, 1], [128, 64])]))[1] is tensor_map
    list(function._expand([7, TensorDescriptor(x[80:], [250, 72], [80, 1], [128, 64])]))
    list(function._expand([7, TensorDescriptor(x, [251, 72], [80, 1], [128, 64], "nan")]))
    assert [c[2] - x.data_ptr() for c in told] == [0, 160, 0] and [c[-1] for c in told] == [0, 0, 1]


def test_without_a_copy_engine_a_descriptor_is_an_address_and_sizes(told):
    x = torch.zeros(64, 64, dtype=torch.bfloat16)
    function = loaded((("x_desc", KIND),), (), 11 + len(list_flags()))
    values = list(function._expand([TensorDescriptor(x, [64, 64], [64, 1], [16, 16])]))
    assert values == [x.data_ptr(), 64, 64, 64, 1, *[False] * len(list_flags()), 64, 64, 64, 1] and not told
    assert len(function.types) == len(values) + 2


def test_descriptors_follow_the_tensors_that_are_staged_in_their_place():
    x, part = torch.zeros(8, 16), torch.zeros(4, 16)
    step = LaunchStep(
        "k",
        {"x_ptr": Passed("x_ptr"), "x_desc": HostDescriptor(Passed("x_ptr"), (8, 16), (16, 1), (4, 16)), "n": 3,
         "own": Passed("own"), "part": HostDescriptor(Scratch("part_ptr"), (4, 16), (16, 1), (4, 16)), "no": None},
        {}, {}, (1, 1, 1),
    )  # fmt: skip
    own = TensorDescriptor(x, [8, 8], [16, 1], [4, 8])
    args = resolve_arguments(step, {"x_ptr": x, "own": own}, {"part_ptr": part})
    assert args["own"] is own and args["n"] == 3 and args["no"] is None and args["part"].base is part
    assert args["x_desc"] == TensorDescriptor(x, [8, 16], [16, 1], [4, 16])
    buffers = tensors_in(args)
    assert {n: t is (part if n == "part" else x) for n, t in buffers.items()} == dict.fromkeys(
        ("x_ptr", "x_desc", "own", "part"), True
    )
    staged = replace_tensors(args, {n: t.clone() for n, t in buffers.items()})
    assert staged["own"].base is not x and staged["own"].shape == [8, 8] and staged["n"] == 3
    assert own.base is x and staged["x_ptr"] is not x and staged["x_desc"].base is not x
