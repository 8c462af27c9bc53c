"""What an exported package's benchmark says of a claim: contradicted only by a package that is slower than claimed."""

import importlib
import json

import pytest
from gated_record import H100

LIGER = {"fastest": "liger", "fastest_us": 86.6, "ratio": 0.9840, "low": 0.9810, "high": 0.9856, "margin": 0.01}
AUTOTUNE = {
    "fastest": "max-autotune",
    "fastest_us": 12.0,
    "ratio": 0.9863,
    "low": 0.9786,
    "high": 0.9921,
    "margin": 0.01,
}
QUIET, NOISY = {"ratio": 1.0001, "low": 0.9986, "high": 1.0012}, {"ratio": 1.0, "low": 0.97, "high": 1.03}


@pytest.fixture(scope="module")
def package_benchmark(package):
    return importlib.import_module("fast_gated.benchmark")


def told(package_benchmark, said, ratio, low, high, control=QUIET):
    own = {"time_us": 90.0, "ratio": ratio, "low": low, "high": high}
    shape = {"time_us": 88.0, "baselines": {said["fastest"]: own}, "absent": {}, "control": control}
    return package_benchmark.judge_claim(shape, {"time_us": 87.0, "evidence": "confirmed", "vs_fastest": said})


@pytest.mark.parametrize(
    ("said", "own", "word"),
    [
        (LIGER, (0.98855, 0.9872, 0.9897), "reproduced"),  # seen on an H100: two processes, 0.5 % apart
        (AUTOTUNE, (1.020, 1.014, 1.025), "faster than claimed"),  # seen there too
        (LIGER, (0.9840, 0.9820, 0.9850), "reproduced"),
        (LIGER, (0.9700, 0.9690, 0.9711), "slower than claimed"),
        (LIGER, (0.9710, 0.9700, 0.9716), "reproduced"),  # within 1 % of the claim's lower end
        (
            {**LIGER, "margin": 0.03},
            (0.9560, 0.9550, 0.9570),
            "reproduced",
        ),  # what was confirmed with a wide A/A control
        ({**LIGER, "margin": 0.03}, (0.9400, 0.9390, 0.9410), "slower than claimed"),
    ],
)
def test_only_a_package_that_is_slower_than_claimed_contradicts_the_claim(package_benchmark, said, own, word):
    assert told(package_benchmark, said, *own)["verdict"] == word


def test_a_noisy_machine_resolves_less_and_says_so(package_benchmark):
    found = told(package_benchmark, LIGER, 0.96, 0.955, 0.965, NOISY)
    assert found["verdict"] == "reproduced" and found["resolution"] == pytest.approx(1 / 0.97 - 1)
    assert told(package_benchmark, LIGER, 0.96, 0.955, 0.965)["verdict"] == "slower than claimed"


def test_a_difference_says_whose_time_it_is(package_benchmark):
    assert told(package_benchmark, LIGER, 0.97, 0.969, 0.9711)["why"] == (
        "this package 88.0 us, 87.0 us when it was claimed; liger 90.0 us, 86.6 us then"
    )
    assert told(package_benchmark, LIGER, 0.984, 0.982, 0.985)["why"] == ""


def test_what_was_never_claimed_is_not_checked(package_benchmark):
    shape = {"baselines": {}, "absent": {}, "control": QUIET}
    assert package_benchmark.judge_claim(shape, {})["verdict"] == "not checked"
    found = package_benchmark.judge_claim(shape, {"evidence": "estimated", "vs_fastest": None})
    assert found["verdict"] == "not checked" and "estimated" in found["why"]


def test_text_and_exit_code_use_the_same_words(package_benchmark, monkeypatch, capsys):
    shapes = {}
    for word, own in (("reproduced", (0.984, 0.983, 0.985)), ("slower than claimed", (0.9, 0.899, 0.901)),
                      ("faster than claimed", (1.1, 1.09, 1.11))):  # fmt: skip
        shapes[word] = {"function": "gated_sum", "shape": "rows=256", "runs": "kernel x", "time_us": 88.0, "blocks": 40,
                        "baselines": {"liger": {"time_us": 80.0, "ratio": own[0], "low": own[1], "high": own[2]}},
                        "control": QUIET, **told(package_benchmark, LIGER, *own)}  # fmt: skip
    monkeypatch.setattr(package_benchmark.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(package_benchmark.torch.cuda, "get_device_name", lambda: H100)
    monkeypatch.setattr(package_benchmark, "measure_overhead", lambda name: {"overhead_us": None})
    for word, shape in shapes.items():
        monkeypatch.setattr(package_benchmark, "measure_function", lambda name, seconds, shape=shape: [shape])
        assert package_benchmark.main([]) == (1 if word == "slower than claimed" else 0)
        assert f"against liger: {word} (resolution 1.00%)" in capsys.readouterr().out
        assert package_benchmark.main(["--json"]) == (1 if word == "slower than claimed" else 0)
        assert json.loads(capsys.readouterr().out)["shapes"][0]["verdict"] == word


def test_the_claims_margin_is_in_the_table_and_the_readme_explains_the_words(package):
    done = package[0]
    table = json.loads(next((done.out / "fast_gated" / "configs").iterdir()).read_text())
    assert [e["vs_fastest"]["margin"] for e in table["entries"]] == [0.01, 0.01]
    assert table["entries"][0]["vs_fastest"]["fastest_us"] == 10.0
    readme = (done.out / "README.md").read_text()
    for word in ("*reproduced*", "*slower than claimed*", "*faster than claimed*", "*not checked*", "resolution"):
        assert word in readme
