"""What a package launches is compiled when it is made, in every way that its sizes can reach; nothing is later."""

import ctypes
import hashlib
import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import triton
from gated_record import H100, SPLIT, imported, write_seed_run
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.driver import expand_signature
from triton.compiler import make_backend
from triton.runtime import jit
from triton.tools.tensor_descriptor import TensorDescriptor

from kernelsearch.compile.build import Binary
from kernelsearch.compile.code import InstructionCounts
from kernelsearch.compile.tensor_maps import TensorMap
from kernelsearch.core.errors import TargetError
from kernelsearch.core.types import Evidence
from kernelsearch.export import binaries
from kernelsearch.export.binaries import pack_binaries
from kernelsearch.export.examine import examine
from kernelsearch.export.package import ExportOptions, export
from kernelsearch.export.tables import format_json
from kernelsearch.kernel.launch import Specialisation
from kernelsearch.kernel.source import Kernel

TYPES = {"i1": ctypes.c_bool, "i32": ctypes.c_int32, "i64": ctypes.c_int64, "fp32": ctypes.c_float}


@pytest.fixture(scope="module")
def packed(exported):
    """(What was written, the imported package) of an export with its binaries."""
    done = exported(pack_binaries, name="packed-sum")
    return done, imported(done.out, "packed_sum")


class Driver:
    """Stands in for the CUDA driver: remembers what it loads and, of each launch, the config and the arguments."""

    def __init__(self):
        self.loaded, self.launches = [], []

    def cuModuleLoadData(self, module, cubin):
        self.loaded.append(cubin)
        module._obj.value = len(self.loaded)
        return 0

    def cuModuleGetFunction(self, function, module, name):
        function._obj.value = module.value
        return 0

    def cuFuncSetAttribute(self, function, attribute, value):
        return 0

    def cuTensorMapEncodeTiled(self, made, *given):
        made[0] = 42
        return 0

    def cuLaunchKernelEx(self, config, function, params, extra):
        c = config._obj
        attributes = [(c.attributes[n].id, *c.attributes[n].value[:3]) for n in range(c.count)]
        words = [bytes(ctypes.string_at(at, 8)) if at else None for at in params]
        facts = {"grid": tuple(c.grid), "block": tuple(c.block), "shared": c.shared, "stream": c.stream}
        self.launches.append({**facts, "function": function.value, "words": words, "attributes": attributes})
        return 0


@pytest.fixture
def on_gpu(packed, monkeypatch):
    """(Driver, task of the package), as on an H100 whose tensors are in this machine's memory; no compiler works."""
    package, driver = packed[1], Driver()
    module, dispatch = package._binaries, package._dispatch
    for name, value in (("driver", lambda: driver), ("_current_device", lambda: 0), ("_stream", lambda device: 7)):
        monkeypatch.setattr(module, name, value)
    for state in (module.PACKED, module._LOCAL.prepared, module._FUNCTIONS):
        state.clear()
    module.manifest.cache_clear()
    monkeypatch.setattr(dispatch, "_current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    monkeypatch.setattr(jit.JITFunction, "run", lambda *args, **named: pytest.fail("Triton compiles"))
    task = dispatch.TASKS["gated_sum"]

    def choose(inputs):
        table = task.tables[H100]
        entry = table.find(dispatch.sizes_of(task.names, inputs), dispatch.dtypes_of(inputs))
        return task.take(entry, 0)

    task.forget()
    monkeypatch.setattr(task, "choose", choose)
    yield driver, task
    task.forget()


def call(task, rows, cols):
    inputs = torch.randn(rows, cols), torch.randn(cols, rows), True
    with torch.no_grad():
        task.public(*inputs)
    return inputs


SIZES = [(256, 64), (64, 128), (33, 17), (1, 1), (200, 96), (100, 61), (255, 1), (1, 128), (129, 128), (130, 127)]


@pytest.mark.slow
def test_every_judged_size_and_those_between_have_their_binaries(on_gpu, packed):
    driver, task = on_gpu
    for rows, cols in SIZES:
        driver.launches.clear()
        inputs = call(task, rows, cols)
        assert len(driver.launches) == 3, (rows, cols)  # two of the split kernel, one of the task's own
        assert task.explain_source(task.choose(inputs), inputs) == ""
    held = {hashlib.sha256(c).hexdigest() for c in driver.loaded}
    assert held <= {f["sha256"] for f in packed[1]._binaries.manifest()["files"].values()}
    assert packed[0].packed.missing == ()


def test_a_launch_gets_what_tritons_own_launcher_passes(on_gpu, packed):
    """By Triton's own signature: types in its order, and scratch pointers last."""
    driver, task = on_gpu
    (x, gate, _) = call(task, 200, 96)
    part, sums, shift = driver.launches
    known = packed[1]._binaries.manifest()["binaries"]
    keys = {key.split()[1].partition(":")[2]: key for key in known if "n_rows:i32 n_cols:i32/16" in key}
    for key, facts in known.items():
        kinds = dict(word.split(":") for word in key.split()[2:] if ":" in word)
        signature = [kind.removesuffix("/16") for kind in kinds.values()]
        assert [kind for _, _, kind in facts["params"]] == expand_signature(signature, None)
    assert {"part_kernel"} == set(keys)
    words = part["words"]
    assert len(words) == 8 + 2 and words[-2:] == [bytes(8)] * 2
    numbers = [int.from_bytes(w, "little") for w in words]
    assert numbers[:2] == [x.data_ptr(), gate.data_ptr()]
    assert [n & 0xFFFFFFFF for n in numbers[3:8]] == [96, 200, 200, 96, 100]
    assert numbers[2] == int.from_bytes(sums["words"][1], "little")  # both have the scratch buffer
    assert part["grid"] == (6, 2, 1) and part["block"] == (32, 1, 1) and part["stream"] == 7
    assert ctypes.c_float.from_buffer_copy(shift["words"][3]).value == 1.5
    assert ctypes.c_float.from_buffer_copy(shift["words"][4]).value == 2.0


def test_a_second_call_looks_for_nothing_and_fractions_are_written_anew(on_gpu, packed, monkeypatch):
    driver, task = on_gpu
    module = packed[1]._binaries
    call(task, 200, 96)
    monkeypatch.setattr(module.Packed, "find", lambda *args: pytest.fail("looked again"))
    monkeypatch.setattr(module, "load", lambda *args: pytest.fail("loaded again"))
    x, gate, _ = call(task, 200, 96)
    assert len(driver.launches) == 6
    assert int.from_bytes(driver.launches[3]["words"][0], "little") == x.data_ptr()
    for shift in (-0.0, 2.5):
        packed[1]._launch.run(task.launcher, (x, gate, True, None, shift), task.choose((x, gate, True)).chosen)
        assert driver.launches[-1]["words"][3][:4] == bytes(ctypes.c_float(shift))


def test_an_empty_grid_launches_nothing(on_gpu, packed):
    driver, task = on_gpu
    x, gate, _ = call(task, 200, 96)
    chosen = task.choose((x, gate, True)).chosen
    driver.launches.clear()
    for _ in range(2):
        packed[1]._launch.run(task.launcher, (x[:, :0], gate[:0], True), chosen)
    assert driver.launches == []


DOUBLED = """
import torch
import triton
import triton.language as tl


def reference(x):
    return x * 2


def get_inputs(m=64, n=96):
    return [torch.randn(m, n)]


SHAPES = [dict(m=64, n=96), dict(m=256, n=64)]
TEST_SHAPES = [dict(m=33, n=36)]


@triton.jit
def double_kernel(x_ptr, y_ptr, m, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < m * n) * 2, mask=at < m * n)


def doubled(x):
    y = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.shape[0], x.shape[1], BLOCK=64, num_warps=1)
    return y
"""
BY_TILES = """
import triton
import triton.language as tl

GRID = "(cdiv(m, 16), cdiv(n, 32))"
DESCRIPTORS = {"x_desc": ("x_ptr", "(m, n)", "(stride(x_ptr, 0), 1)", "(16, 32)", None)}


@triton.jit
def double_kernel(x_ptr, x_desc, y_ptr, m, n):
    rows = tl.program_id(0) * 16 + tl.arange(0, 16)
    cols = tl.program_id(1) * 32 + tl.arange(0, 32)
    inside = (rows[:, None] < m) & (cols[None, :] < n)
    at = rows[:, None] * n + cols[None, :]
    if x_desc is None:
        x = tl.load(x_ptr + at, mask=inside)
    else:
        x = x_desc.load([tl.program_id(0) * 16, tl.program_id(1) * 32])
    tl.store(y_ptr + at, x * 2, mask=inside)
"""


def test_a_kernel_with_descriptors_is_packed_and_run(on_gpu, tmp_path):
    """With a tensor map where the copy engine takes the tensor, else by the kernel's other way."""
    path = tmp_path / "doubled.py"
    path.write_text(DOUBLED)
    tried = [(Kernel.parse(BY_TILES), {"num_warps": 4}, (5.0, 5.0))]
    db = write_seed_run(tmp_path / "d.db", examine(path).facts, (9.0, 9.0), Evidence.ESTIMATED, "h100", tried)
    options = {"tasks": ("doubled",), "out": str(tmp_path / "out"), "name": "doubled", "dbs": (str(db),)}
    done = export(ExportOptions(**options, evidence=Evidence.ESTIMATED), pack_binaries)
    driver, package = on_gpu[0], imported(done.out, "doubled")
    assert done.packed.missing == ()
    module, task = package._binaries, package._dispatch.TASKS["doubled"]
    module.driver, module._current_device, module._stream = lambda: driver, lambda: 0, lambda device: 7
    table = task.tables["h100"]
    for cols, maps in ((96, True), (33, False)):
        x = torch.randn(64, cols)
        entry = table.find({"x.shape[0]": 64, "x.shape[1]": cols}, ("float32",))
        driver.launches.clear()
        package._launch.run(task.launcher, (x,), (task.launches[entry.kernel], entry.config))
        (launched,) = driver.launches
        numbers = [int.from_bytes(word, "little") for word in launched["words"]]
        assert numbers[0] == x.data_ptr() and launched["grid"] == (4, -(-cols // 32), 1)
        assert len(numbers) == 2 + maps * 5 + 2 + 2 and (numbers[1] & 0xFF == 42) is maps


# ---------------------------------------------------------------- where Triton compiles


def test_why_the_source_runs_is_one_line(on_gpu, packed, monkeypatch, tmp_path):
    _, task = on_gpu
    module, folder = packed[1]._binaries, tmp_path / "binaries"
    shutil.copytree(module.FOLDER, folder)
    monkeypatch.setattr(module, "FOLDER", folder)
    inputs = torch.randn(200, 96), torch.randn(96, 200), True

    def why():
        for state in (module._LOCAL.prepared, module._FUNCTIONS):
            state.clear()
        module.manifest.cache_clear()
        ran = []
        monkeypatch.setattr(jit.JITFunction, "run", lambda *args, **named: ran.append(args))
        module.PACKED.clear()
        call(task, 200, 96)
        said = task.explain_source(task.choose(inputs), inputs)
        assert bool(said) == bool(ran) and "\n" not in said
        return said

    assert why() == ""
    manifest = folder / "manifest.json"
    whole = manifest.read_text()
    rest = format_json({**json.loads(whole.partition("\n")[2]), "binaries": {}})
    manifest.write_text(f'{{"sha256": "{hashlib.sha256(rest.encode()).hexdigest()}"}}\n{rest}')
    key = "x_ptr:*fp32/16 g_ptr:*fp32/16 part_ptr:*fp32/16 x_stride:i32/16 g_stride:i32 n_rows:i32 n_cols:i32/16"
    assert why().startswith(
        f"it has no binary of _gated_sum.kernel_{Kernel.parse(SPLIT).digest[:8]}:part_kernel for {key}"
    )
    manifest.write_text(whole)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (8, 0))
    assert why() == "it has binaries for compute capability 9.0, this device has 8.0"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    hook = lambda metadata: None  # noqa: E731
    triton.knobs.runtime.launch_enter_hook.add(hook)
    assert why() == "hooks of Triton's launches are on"
    triton.knobs.runtime.launch_enter_hook.remove(hook)
    assert why() == ""
    for file in folder.glob("*.cubin"):
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert why().endswith(".cubin is damaged")
    manifest.write_text(manifest.read_text().replace('"warps": 1', '"warps": 2'))
    assert why() == "binaries/manifest.json is damaged"
    manifest.write_text("{")
    assert why() == "binaries/manifest.json is damaged"
    manifest.unlink()
    assert why() == "the package has no binaries"


def test_explain_says_it_beside_the_kernel(on_gpu, packed, monkeypatch):
    dispatch = packed[1]._dispatch
    inputs = torch.randn(200, 96), torch.randn(96, 200), True
    assert "; Triton compiles it" not in dispatch.explain("gated_sum", *inputs)
    with pytest.raises(ValueError, match="^this package has no function 'gelu', only gated_sum"):
        dispatch.explain("gelu", *inputs)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (10, 0))
    said = dispatch.explain("gated_sum", *inputs)
    assert said.endswith("; Triton compiles it: it has binaries for compute capability 9.0, this device has 10.0")


def test_a_target_without_binaries_is_said(packed, monkeypatch):
    (part,) = packed[0].parts
    with pytest.raises(TargetError, match="unknown target 'h101'; known are h100"):
        pack_binaries([part], ["h101"])
    chosen = replace(part.chosen, devices={"Abacus 9": part.chosen.devices[H100]})
    monkeypatch.setattr(binaries, "_build", lambda pool, made: "needs more shared memory" if made.spec.options else "")
    made = pack_binaries([replace(part, chosen=chosen)], ["a100"])
    assert made.files == {} and len(made.missing) == 3
    assert made.missing[0].startswith("no binaries for Abacus 9: no machine facts")
    assert made.missing[1] == (
        "gated_sum: a100 is compiled for, and runs the reference until the task is searched there too"
    )
    assert "for compute capability 8.0 (needs more shared memory); Triton compiles these" in made.missing[2]


# ---------------------------------------------------------------- what is compiled


KINDS = """
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["plain"], do_not_specialize_on_alignment=["uneven"])
def kinds_kernel(
    a_ptr, b_ptr, none, one, n, even, wide, wider, flag, scale, plain, uneven, typed: tl.int64, D: tl.constexpr
):
    pass
"""


def test_a_launchs_key_is_what_triton_specialises_on(packed, tmp_path):
    (tmp_path / "kinds.py").write_text(KINDS)
    kernel = imported(tmp_path, "kinds").kinds_kernel
    x = torch.zeros(64, dtype=torch.bfloat16)
    values = (x, x[1:], None, 1, 17, 32, 2**31, 2**63, True, 1.5, 1, 32, 1, triton.language.float16)
    binder = jit.create_function_from_signature(
        kernel.signature, kernel.params, make_backend(GPUTarget("cuda", 90, 32))
    )
    _, specialised, _ = binder(*values)
    wanted = []
    for name, value, (kind, what) in zip(kernel.arg_names, values, specialised, strict=True):
        plain = getattr(value, "name", repr(value))
        wanted.append(f"{name}={plain}" if kind == "constexpr" else f"{name}:{kind}{'/16' * (what == 'D')}")
    named = dict(zip(kernel.arg_names, values, strict=True))
    key = packed[1]._binaries.write_key(kernel.params, named, {"num_warps": 4, "maxnreg": None})
    assert key == " ".join([*wanted, "num_warps=4"])


def test_sizes_between_are_drawn_in_each_class_and_equal_ones_stay_equal():
    shapes = {
        "timed:0": dict(n=64, m=64, k=1, dtype="a"),
        "timed:1": dict(n=1000, m=1000, k=1, dtype="b"),
        "test:0": dict(n=1, m=1, k=1, dtype="a"),
    }
    task = SimpleNamespace(keys=tuple(shapes), params=shapes.__getitem__)
    part = SimpleNamespace(examined=SimpleNamespace(task=task))
    drawn = binaries.draw_sizes(part)
    sizes = {p["n"] for p in drawn}
    assert all(p["n"] == p["m"] and p["k"] == 1 for p in drawn) and {p["dtype"] for p in drawn} == {"a", "b"}
    assert {2, 3, 17, 32, 48, 128, 192, 512, 768, 513} <= sizes and max(sizes) <= 1000
    assert len(drawn) <= 2 * binaries.MOST
    odd = {p["n"] % 32 for p in drawn}
    assert {0, 15, 16, 31} <= odd  # what is computed of a size is specialised too


@pytest.mark.parametrize(("mapped", "layout"), [(True, ""), (True, ",NVMMASharedLayout(128, 32, 2)"), (False, "")])
def test_descriptors_are_passed_as_tritons_own_launcher_does(packed, monkeypatch, mapped, layout):
    """A tensor map, shape and strides; or an address with sizes, flags, and sizes again."""
    module, driver, tile = packed[1]._binaries, Driver(), {"block_size": [16, 32], "swizzle": 3, "elem_size": 4}
    maps = [TensorMap.read({**tile, "elem_type": 7})] if mapped else []
    kind = f"tensordesc<fp32[16, 32]{layout}>"
    params = (("n", "i32"), ("d", kind), ("y", "*fp32"))
    mix = InstructionCounts(parameters=2 + (5 if mapped else 11) + 1)
    binary = Binary("f", b"", "", 90, 4, 2, 0, 0, 0, mix, params, scratch_bytes=256, maps=tuple(maps))
    facts = binaries._describe(Specialisation("f", (), (), (), (("launch_pdl", True),)), binary)
    meta = [{**tile, "elem_type": 7, "fp4_padded": False}] if mapped else None
    kinds = [part.replace("map", "nvTmaDesc") for _, _, part in facts["params"]]
    assert kinds == expand_signature([kind for _, kind in params], meta)
    monkeypatch.setattr(module, "driver", lambda: driver)
    monkeypatch.setitem(module._FUNCTIONS, (0, "f"), 5)
    x, y = torch.zeros(64, 96), torch.zeros(8)
    described = TensorDescriptor(x, [64, 96], [96, 1], [16, 32])
    found = json.loads(json.dumps({**facts, "file": "f"}))
    made = module.prepare_launch(found, ["n", "d", "y"], (3, 2), (9, described, y), {}, 0)
    pack, buffer, _, launch, scratch, encoders = made
    assert scratch == 256 * 3 * 2 * 2
    written = [x.data_ptr(), y.data_ptr(), 4096]
    for encode in encoders:
        encode(written)
    pack(buffer, 0, *written)
    launch()
    (launched,) = driver.launches
    numbers = [int.from_bytes(word, "little") for word in launched["words"]]
    assert numbers[0] == 9 and numbers[-2:] == [y.data_ptr(), 4096]
    own = [64, 96, 96, 1]
    assert numbers[2:6] == own if mapped else numbers[1:12] == [x.data_ptr(), *own, 0, 0, *own]
    assert numbers[1] & 0xFF == 42 or not mapped
    assert launched["grid"] == (6, 2, 1) and launched["block"] == (128, 1, 1)
    assert launched["attributes"] == [(6, 1, 0, 0), (4, 2, 1, 1), (5, 1, 0, 0)]


def test_each_thread_has_launches_of_its_own(packed):
    import threading

    local, found = packed[1]._binaries._LOCAL, []
    thread = threading.Thread(target=lambda: found.append(local.prepared))
    thread.start()
    thread.join()
    assert found[0] is not local.prepared


def test_the_page_says_what_is_compiled(packed, package):
    said = "`binaries` has them for compute capability 9.0, and a call needs neither a compiler"
    assert said in (packed[0].out / "README.md").read_text()
    assert "compute capability" not in (package[0].out / "README.md").read_text()


def test_the_split_kernel_is_shipped_with_binaries_beside_its_source(packed):
    folder = packed[0].out / "packed_sum"
    module = f"_gated_sum.kernel_{Kernel.parse(SPLIT).digest[:8]}"
    held = (folder / "binaries" / "manifest.json").read_text()
    assert f"9.0 {module}:part_kernel " in held and f"9.0 {module}:sums_kernel " in held
    names = {path for path in packed[0].files if "/binaries/" in path}
    assert all((packed[0].out / path).read_bytes() for path in names) and len(names) > 5
