"""Cards that differ: times are ratios to the seed on the same card, drift is found, and models are not mixed."""

import pytest
from test_crew import Fake

from kernelsearch.api.optimization import choose_window
from kernelsearch.cluster import remote_bench
from kernelsearch.cluster.cards import DRIFT, EVERY, Cards
from kernelsearch.cluster.crew import Crew, StationLost
from kernelsearch.core.errors import ClusterError, WorkerError
from kernelsearch.core.types import (
    Evidence,
    Measurement,
    Outcome,
    Proposal,
    ProposalKind,
    ShapeFact,
    ShapeTime,
    Trial,
    Verdict,
    Word,
)
from kernelsearch.trial.confirmation import ConfirmationPlan, ConfirmedShape


def measured(**times_us):
    return Measurement(
        Evidence.MEASURED, "H200", "search", tuple(ShapeTime(s, t, t / 100) for s, t in times_us.items())
    )


@pytest.fixture
def cards():
    """A card, and one that is a tenth slower on large shapes."""
    cards = Cards()
    cards.add("gpu 0", "0000:18:00.0 of a", measured(small=10.0, large=100.0))
    cards.add("gpu 1", "0000:2a:00.0 of b", measured(small=10.0, large=110.0))
    return cards


def test_a_score_is_the_ratio_to_the_seed_on_the_same_card(cards):
    here = cards.to_unit("gpu 0", measured(small=5.0, large=80.0), {})
    there = cards.to_unit("gpu 1", measured(small=5.0, large=88.0), {"sm_mhz": 1980})
    assert here.by_shape == pytest.approx({"small": 5.0, "large": 80.0}) == there.by_shape
    assert there.times[1].spread_us == pytest.approx(0.8)
    assert there.times[0].detail["card"] == {"name": "0000:2a:00.0 of b", "sm_mhz": 1980, "factor": 1.0}
    assert cards.from_unit("gpu 1", here).by_shape == pytest.approx({"small": 5.0, "large": 88.0})
    assert cards.from_unit("gpu 1", None) is None
    part = cards.to_unit("gpu 1", measured(large=88.0), {})  # an abandoned one may lack shapes
    assert part.by_shape == pytest.approx({"large": 80.0}) and part.times[0].detail["card"]["factor"] == 0.909091


def test_small_drift_is_followed_and_large_drift_is_not(cards):
    assert cards.find_drift("gpu 0", measured(small=10.2, large=102.0)) == pytest.approx(0.02)
    assert cards.to_unit("gpu 0", measured(large=102.0), {}).by_shape == pytest.approx({"large": 100.0})
    assert cards.find_drift("gpu 0", measured(small=11.0, large=110.0)) == pytest.approx(0.10)
    assert cards.to_unit("gpu 0", measured(large=102.0), {}).by_shape == pytest.approx({"large": 100.0})
    assert [cards.is_due("gpu 1") for _ in range(2 * EVERY)].count(True) == 2


def test_a_run_that_goes_on_keeps_its_unit():
    cards = Cards()
    bench = remote_bench.RemoteBench("t.py", None, None, None, None, {}, cards)
    cards.add("gpu 0", "card", measured(large=120.0))
    first = Outcome(Verdict(Word.ACCEPT, "judge"), measured(large=100.0))
    bench.go_on([Trial(0, Proposal(ProposalKind.SEED), "k", {}, first, 1.0)])
    assert cards.to_unit("gpu 0", measured(large=60.0), {}).by_shape == pytest.approx({"large": 50.0})


def test_the_window_grows_with_the_workers_within_a_share_of_the_budget():
    def window(workers, trials):
        said = []
        bench, _ = make_bench([Fake(f"gpu {n}", None, 8) for n in range(workers)], [])
        return choose_window(bench, trials, said.append), len(said)

    assert [window(n, 10_000) for n in (1, 2, 8, 64)] == [(8, 0), (16, 0), (64, 0), (512, 0)]
    assert window(8, 200) == (16, 1) and window(8, 20) == (8, 1)


@pytest.mark.parametrize(("cores", "trials", "window"), [(64, 200, 8), (64, 1000, 41), (16, 1000, 16), (2, 1000, 8)])
def test_the_cores_of_one_machine_do_not_ask_far_ahead(monkeypatch, cores, trials, window):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(cores))
    assert choose_window(None, trials, print) == window


def make_bench(stations, said):
    """A bench of the driver over workers whose clocks are given."""
    crew = Crew(stations, said.append)
    bench = remote_bench.RemoteBench("t.py", None, None, None, crew, {}, Cards())
    bench._time_seed = lambda station, rival=None: measured(large=station.clock())
    return bench, crew


def test_cards_are_greeted_and_one_on_which_the_seed_is_wrong_or_that_is_lost_is_out():
    def lose():
        raise StationLost("NodeDied on b")

    said, stations = [], [Fake(f"gpu {n}", lambda *args: {"gpu": "18:00", "node": "a"}) for n in range(3)]
    bench, crew = make_bench(stations, said)
    clocks = {"gpu 0": lambda: measured(large=100.0), "gpu 1": lambda: None, "gpu 2": lose}
    bench._time_seed = lambda station, rival=None: clocks[station.name]()
    bench.greet(stations)
    assert list(bench.cards.by_station) == ["gpu 0"] and bench.cards.by_station["gpu 0"].name == "18:00 of a"
    assert "gpu 1 is set aside: the task's own kernel is not right there" in said and "gpu 2 is lost" in " ".join(said)
    assert [p.returns for p in crew.posts] == [True, False, True]
    with pytest.raises(WorkerError, match="is not right there"):
        bench.welcome(stations[1])
    bench, crew = make_bench(stations[1:2], said)
    bench._time_seed = lambda station, rival=None: None
    bench.greet(stations[1:2])
    assert bench.cards is None and not crew.posts[0].away


def test_a_card_whose_seed_moves_twice_is_set_aside_and_one_outlier_is_not():
    said, stations = [], [Fake(f"gpu {n}", lambda *args: {}) for n in range(2)]
    bench, crew = make_bench(stations, said)
    bench.placed = "task"
    clocks = {"gpu 0": iter([100.0, 120.0, 100.0]), "gpu 1": iter([100.0, 120.0, 121.0])}
    for station in stations:
        station.clock = lambda name=station.name: next(clocks[name])
        bench.cards.add(station.name, "card", bench._time_seed(station))
    for station in stations:
        bench.look_at_drift(station)
    assert said == ["gpu 1 is set aside: its time of the task's own kernel moved by +21% since the start"]
    assert [bool(p.away) for p in crew.posts] == [False, True] and DRIFT < 0.2


def test_a_trial_is_timed_against_the_incumbent_of_its_own_card_and_names_it(cards):
    accepted = Outcome(Verdict(Word.ACCEPT, "judge"), measured(small=5.0, large=88.0))
    asked = []

    def answer(method, *args):
        asked.append((method, args))
        return {"node": "b", "gpu": "0000:2a", "sm_mhz": 1980} if method == "read_card" else accepted

    station = Fake("gpu 1", None)
    station.ask = answer
    bench, _ = make_bench([station], [])
    bench.cards = cards
    evaluation = remote_bench.RemoteEvaluation.__new__(remote_bench.RemoteEvaluation)
    evaluation.bench, evaluation.shapes = bench, ("small", "large")
    bench.__class__ = type("Bench", (remote_bench.RemoteBench,), {"own": None})
    from kernelsearch.kernel.source import Kernel

    kernel = Kernel.parse("import triton\n\n\n@triton.jit\ndef k(x_ptr):\n    pass\n")
    outcome = evaluation.evaluate(kernel, {}, measured(small=5.0, large=80.0))
    assert asked[0][1][-1].by_shape == pytest.approx({"small": 5.0, "large": 88.0})
    assert outcome.measurement.by_shape == pytest.approx({"small": 5.0, "large": 80.0})
    assert outcome.measurement.times[0].detail["card"]["node"] == "b"


def test_finalists_are_confirmed_on_one_card_which_the_notes_name():
    asked, named, said, stations = [], [], [], []
    for number in range(2):
        stations.append(Fake(f"gpu {number}", None))

        def ask(method, *args, number=number):
            asked.append((number, method))
            named.extend(args[3:4])
            if stations[number].dead:
                raise StationLost("NodeDied on b")
            confirmed = ConfirmedShape(args[-2], None, (), notes=("clocks fell",)) if len(args) > 1 else None
            return confirmed, [f"said by {number}"], {"gpu": f"{number}:00", "node": "b", "sm_mhz": 1980}

        stations[number].ask = ask
    bench, _ = make_bench(stations, said)
    bench.__class__ = type("Bench", (remote_bench.RemoteBench,), {"own": None})
    shapes = [ShapeFact(f"n={n}", f"n={n}", {}) for n in range(4)]
    with remote_bench.RemoteConfirmation(bench, ConfirmationPlan(), said.append) as confirmation:
        done = [confirmation.confirm_shape(shape, []) for shape in shapes[:3]]
        first = asked[0][0]
        stations[first].dead = True
        done.append(confirmation.confirm_shape(shapes[3], []))
        stations[first].dead = False
        confirmation.confirm_shapes(shapes, lambda shape: [])
    assert named == ["confirm_shape"] * 5 + ["compile_ahead"] + ["confirm_shape"] * 4, "one was asked twice"
    assert [d.notes[-1] for d in done[:3]] == [f"timed on {first}:00 of b at 1980 MHz"] * 3
    assert done[3].notes == ("clocks fell", f"timed on {1 - first}:00 of b at 1980 MHz") and done[3].shape is shapes[3]
    assert said.count(f"said by {first}") >= 3 and "NodeDied on b" in " ".join(said)
    assert (1 - first, "end_confirmation") in asked


def test_different_models_are_refused_with_the_list_unless_one_is_chosen():
    stations = [Fake(f"gpu {n}", None) for n in range(3)]
    mixed = list(zip(stations, ("NVIDIA H200", "NVIDIA A100", "NVIDIA H200"), strict=True))
    with pytest.raises(ClusterError, match=r"NVIDIA H200: gpu 0, gpu 2; NVIDIA A100: gpu 1.*|--device"):
        remote_bench.choose_model(mixed, "")
    assert remote_bench.choose_model(mixed, "h200") == [stations[0], stations[2]]
    with pytest.raises(ClusterError, match="no worker has a B200: they have NVIDIA H200, NVIDIA A100"):
        remote_bench.choose_model(mixed, "B200")
    with pytest.raises(ClusterError, match="--device NAME"):
        remote_bench.choose_model(mixed, "NVIDIA")
    assert remote_bench.choose_model([(s, "") for s in stations], "") == stations
