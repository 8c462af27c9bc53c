"""A recorded space's file: what is written is read again, compressed or not, and a bad one is one clear sentence."""

import copy
import json

import pytest

from kernelsearch.core.errors import SpaceError
from recorded import space as recorded_space
from recorded.space import SpaceRow
from recorded_spaces import made

GOOD = {
    "task": "matmul", "device": "some GPU", "versions": {"triton": "3.6.0"},
    "parameters": {"BM": [16, 32], "flag": [True, False]},
    "rows": [
        {"config": {"BM": 16, "flag": True}, "time_us": 12.5},
        {"config": {"BM": 32, "flag": True}, "time_us": 10, "samples_us": [9.5, 10.5]},
        {"config": {"BM": 32, "flag": False}, "failure": "timeout"},
    ],
}  # fmt: skip


def changed(*path, to):
    found = copy.deepcopy(GOOD)
    *way, last = path
    at = found
    for step in way:
        at = at[step]
    at[last] = to
    return found


def without(name):
    return {key: value for key, value in GOOD.items() if key != name}


@pytest.mark.parametrize("suffix", ["json", "json.gz", "json.xz"])
def test_what_is_written_is_read_again(tmp_path, suffix):
    space = made()
    recorded_space.write(space, tmp_path / f"space.{suffix}")
    assert recorded_space.read(tmp_path / f"space.{suffix}") == space
    assert [p.name for p in tmp_path.iterdir()] == [f"space.{suffix}"]


def test_the_contracts_own_format_is_read(tmp_path):
    (tmp_path / "space.json").write_text(json.dumps(GOOD))
    space = recorded_space.read(tmp_path / "space.json")
    assert space.optimum_us == 10.0 and len(space.rows) == 3
    assert space.rows[1] == SpaceRow({"BM": 32, "flag": True}, 10.0, samples_us=(9.5, 10.5))
    assert space.rows[2].failure == "timeout"
    assert recorded_space.as_json(space) == changed("rows", 1, "time_us", to=10.0)


def test_one_and_true_are_two_values():
    found = recorded_space.parse({**GOOD, "parameters": {"x": [1, True]}, "rows": [
        {"config": {"x": True}, "time_us": 2.0}, {"config": {"x": 1.0}, "time_us": 1.0}]})  # fmt: skip
    assert [row.config["x"] for row in found.rows] == [True, 1]
    assert [type(row.config["x"]) for row in found.rows] == [bool, int]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([], "not a list"),
        (without("rows"), "needs 'rows'"),
        (without("parameters"), "needs 'parameters'"),
        (changed("rows", to=[]), "at least one row"),
        (changed("rows", to=[5]), "row 0 must be an object"),
        (changed("rows", 0, to={"time_us": 3.0}), "row 0 must be an object with a 'config'"),
        (changed("rows", 2, "failure", to="exploded"),
         "row 2 has the failure 'exploded': known are compile, runtime, correctness, timeout"),
        (changed("rows", 2, "failure", to=["compile"]), "row 2 has the failure"),
        (changed("rows", 1, "config", to={"BM": 16, "flag": True}), "rows 0 and 1 have the same config"),
        (changed("rows", 0, "time_us", to=float("nan")), "row 0 has the time nan"),
        (changed("rows", 0, "time_us", to=float("inf")), "row 0 has the time inf"),
        (changed("rows", 0, "time_us", to=-1.0), "positive"),
        (changed("rows", 0, "time_us", to="fast"), "'fast'"),
        (changed("rows", 0, "time_us", to=True), "True"),
        (changed("rows", 1, "samples_us", to=[9.5, None]), "row 1 has the time"),
        (changed("rows", 0, "failure", to="compile"), "either a time_us or a failure"),
        (changed("rows", 0, "time_us", to=None), "either a time_us or a failure"),
        (changed("rows", 0, "config", to={"BM": 16}), "row 0 lacks parameter 'flag'"),
        (changed("rows", 0, "config", to={"BM": 16, "flag": True, "BN": 1}), "unknown parameter 'BN'"),
        (changed("rows", 0, "config", "BM", to=48), "BM = 48"),
        (changed("rows", 0, "config", "BM", to=True), "BM = True"),
        (changed("parameters", to=[]), "'parameters' must be an object"),
        (changed("parameters", "BM", to=16), "'BM' must have a list"),
        (changed("parameters", "BM", to=[]), "'BM' must have a list"),
        (changed("parameters", "BM", to=[16, 32, 16]), "'BM' has the same value twice"),
        (changed("parameters", "BM", to=[16, 32, [1]]), "only numbers, strings, booleans and null"),
        (changed("versions", to=5), "'versions'"),
        ({**GOOD, "rows": [GOOD["rows"][2]]}, "no row has a time_us"),
    ],
)  # fmt: skip
def test_a_bad_file_is_one_sentence_that_says_what_is_wrong(found, words):
    with pytest.raises(SpaceError) as error:
        recorded_space.parse(found)
    assert words in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is not JSON"), (b"time,config\n", "is not JSON"), (b'{"task": ', "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b"\x1f\x8b\x08\x00broken", "is not JSON"), (b"\xfd7zXZ\x00broken", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_json_says_so(tmp_path, data, words):
    (tmp_path / "space.json").write_bytes(data)
    with pytest.raises(SpaceError, match=words):
        recorded_space.read(tmp_path / "space.json")


def test_no_file_and_no_place_to_write(tmp_path):
    with pytest.raises(SpaceError, match="cannot be read: No such file"):
        recorded_space.read(tmp_path / "nothing.json")
    with pytest.raises(SpaceError, match="cannot be written"):
        recorded_space.write(made(), tmp_path / "no folder" / "space.json")


def test_a_row_has_a_time_or_a_failure():
    with pytest.raises(ValueError, match="either"):
        SpaceRow({"BM": 1})
