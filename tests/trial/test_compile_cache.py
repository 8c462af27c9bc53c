"""The compile cache: what goes in comes out, whatever happens to the file in between, and from any process."""

import multiprocessing
import os
import pickle
from dataclasses import replace

import pytest

from kernelsearch.compile.build import Binary
from kernelsearch.compile.code import InstructionCounts
from kernelsearch.core.types import Verdict, Word
from kernelsearch.kernel import targets
from kernelsearch.kernel.launch import Specialisation
from kernelsearch.kernel.source import Kernel
from kernelsearch.trial.compile_cache import CompileCache
from kernelsearch.worker.messages.jobs import Compiled

CODE = """import triton
import triton.language as tl


@triton.jit
def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at))
"""
SPEC = Specialisation(
    "copy", (("x_ptr", "*fp32"), ("y_ptr", "*fp32"), ("n", "i32")), (("BLOCK", 128),), ("x_ptr",), (("num_warps", 4),)
)
H100 = targets.target_by_name("h100")


def binary(size=4000, identity="a"):
    mix, params = InstructionCounts({16: 1}, {16: 1}), (("x_ptr", "*fp32"),)
    return Binary("copy", os.urandom(size), identity, 90, 4, 1, 0, 32, 0, mix, params)


@pytest.fixture
def cache(tmp_path):
    return CompileCache(tmp_path / "compiled", {"triton": "3.7.1"})


def key(cache, code=CODE, spec=SPEC, target=H100, precision="ieee"):
    return cache.key(Kernel.parse(code), spec, target, precision)


def test_an_answer_comes_back_equal_and_to_another_process(cache):
    answer = Compiled((binary(),))
    assert cache.get(key(cache)) is None
    cache.put(key(cache), answer)
    other = CompileCache(cache.folder, dict(cache.versions))
    assert other.get(key(other)) == answer


def test_the_key_covers_all_that_decides_the_answer_and_no_more(cache):
    other_versions = CompileCache(cache.folder, {"triton": "3.8.0"})
    specs = [dict(constexprs=(("BLOCK", 256),)), dict(options=(("num_warps", 8),)), dict(divisible=())]
    different = [
        key(cache), key(cache, CODE.replace("at)", "at, mask=at < n)", 1)), key(cache, precision="tf32"),
        key(cache, target=targets.target_by_name("a100")), key(other_versions),
        *(key(cache, spec=replace(SPEC, **change)) for change in specs),
    ]  # fmt: skip
    assert len(set(different)) == len(different)
    said = CODE.replace("    at =", "    # a comment\n    at  =") + '\nGRID = "(n,)"\n'
    assert key(cache, said) == key(cache)  # layout, comments and the launch spec change nothing in a binary


def test_a_corrupted_entry_is_a_miss_and_goes_away(cache):
    answer = Compiled((binary(),))
    for damage in (
        lambda d: d[:100],
        lambda d: b"",
        lambda d: d[:-1] + bytes([d[-1] ^ 1]),
        lambda d: os.urandom(len(d)),
    ):
        cache.put(key(cache), answer)
        (path,) = cache.folder.glob("*/*")
        path.write_bytes(damage(path.read_bytes()))
        assert cache.get(key(cache)) is None and not path.exists()
    cache.put(key(cache), answer)
    assert cache.get(key(cache)) == answer


def test_an_answer_is_of_its_own_key_only(cache):
    other = key(cache, precision="tf32")
    cache.put(other, Compiled((binary(),)))
    cache._path(key(cache)).parent.mkdir(parents=True, exist_ok=True)
    os.replace(cache._path(other), cache._path(key(cache)))
    assert cache.get(key(cache)) is None


def test_an_entry_with_a_right_checksum_still_holds_nothing_but_data(cache, tmp_path):
    import hashlib
    import zlib

    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path}/owned",)

    for message in (Evil(), Verdict(Word.ACCEPT, "judge"), [1, 2]):
        body = zlib.compress(pickle.dumps(message))
        path = cache.folder / key(cache)[:2] / key(cache)[2:]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(hashlib.sha256(key(cache).encode() + body).digest() + body)
        assert cache.get(key(cache)) is None
    assert not (tmp_path / "owned").exists()


def test_refusals_are_kept_and_accidents_are_not(cache):
    lasting = Compiled(verdict=Verdict(Word.COMPILE, "compile", "no such function"))
    cache.put("ab" * 32, lasting)
    assert cache.get("ab" * 32) == lasting
    for verdict in (
        Verdict(Word.TIMEOUT, "compile", "more than 20 s"),
        Verdict(Word.COMPILE, "compile", "out of memory", detail={"trace": "..."}),
    ):
        cache.put("cd" * 32, Compiled(verdict=verdict))
        assert cache.get("cd" * 32) is None


def test_the_folder_stays_within_its_limit_and_keeps_what_is_used(cache):
    cache.max_bytes = 100_000
    keys = [f"{i:02x}" * 32 for i in range(40)]
    for number, one in enumerate(keys):
        cache.put(one, Compiled((binary(5000, str(number)),)))
        path = cache._path(one)
        os.utime(path, (number, number))
        if number:
            assert cache.get(keys[0]) is not None  # used again and again
    cache.clean()
    assert sum(p.stat().st_size for p in cache.folder.glob("*/*")) <= 100_000
    assert cache.get(keys[0]) is not None and cache.get(keys[-1]) is not None and cache.get(keys[1]) is None


def _write(folder, number):
    cache = CompileCache(folder, {"triton": "3.7.1"})
    for i in range(30):
        one = f"{i % 5:02x}" * 32
        cache.put(one, Compiled((replace(binary(2000, "same"), cubin=bytes([i % 5]) * 2000),)))
        found = cache.get(one)
        assert found is not None and found.binaries[0].cubin == bytes([i % 5]) * 2000


def test_several_writers_at_once(cache):
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write, args=(cache.folder, n)) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(30)
    assert [w.exitcode for w in writers] == [0] * 4
    assert not list(cache.folder.glob("*/.*"))  # no temporary file is left


def test_a_folder_that_cannot_be_written_only_costs_time(tmp_path):
    (tmp_path / "file").write_text("")
    cache = CompileCache(tmp_path / "file", {})
    cache.put("ab" * 32, Compiled((binary(),)))
    assert cache.get("ab" * 32) is None
