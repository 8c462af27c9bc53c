"""Who is asked what, without Ray: no question is lost or answered twice whatever dies, and the trials stay the same."""

import random
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from itertools import islice

import pytest

import simulated
from kernelsearch.cluster.crew import FIRST_ROOM, Crew, Station, StationLost
from kernelsearch.cluster.holder import describe_kernel
from kernelsearch.core.errors import TaskError, WorkerError
from kernelsearch.record.store import Store
from kernelsearch.trial.evaluator import Evaluator
from simulated_search import EXACT, make_search, story


class Fake(Station):
    """A worker that calls a function; kill loses what it is asked meanwhile, and it is back when told to."""

    def __init__(self, name, answer, room=4):
        self.name, self.node, self.room, self.answer = name, "here", room, answer
        self.dead, self.asked, self.killed, self.ended, self.backs = False, [], 0, False, []
        self.lock = threading.Lock()

    def ask(self, method, *args):
        if self.dead:
            raise StationLost("gone")
        self.asked.append(args)
        answer = self.answer(*args)
        if self.dead:
            raise StationLost("gone")
        return answer

    def restart(self, kill, welcome):
        self.welcome = welcome
        self.killed += kill
        back: Future = Future()
        with self.lock:
            self.backs.append(back)  # another thread may take it out at once
        return back

    def revive(self):
        with self.lock:
            self.dead, backs, self.backs = False, self.backs, []
        for back in backs:
            self.welcome(self)
            back.set_result(None)

    def end(self):
        self.ended = True
        for back in self.backs:
            back.set_exception(StationLost("ended"))


class Crewed(Evaluator):
    """Evaluates through a crew whose workers answer with outcomes."""

    def __init__(self, crew):
        self.crew = crew

    def evaluate(self, kernel, config, incumbent=None):
        return self.crew.ask(describe_kernel(kernel, config), "evaluate", lambda station: (kernel, config, incumbent))


HARD = simulated.Failing(simulated.Noisy(EXACT, 0.03), 0.2)


def run_on(count, name="evolve", trials=60, window=8, disturb=None):
    """The story of a run on so many workers."""
    stations = [Fake(f"worker {n}", simulated.Slow(HARD, 0.003).evaluate, 2) for n in range(count)]
    crew = Crew(stations)
    if disturb:
        disturb(stations)
    with Store.open_in_memory() as store:
        trials = make_search(store, name, Crewed(crew), trials, window, 3).run().trials
        return story(trials), stations


def test_the_trials_are_the_same_on_one_two_and_eight_workers():
    (one, _), (two, _), (eight, stations) = (run_on(count) for count in (1, 2, 8))
    assert one == two == eight and len(one) == 60
    assert sum(bool(s.asked) for s in stations) > 2


def test_random_deaths_lose_and_double_nothing():
    whole, _ = run_on(3)
    over = threading.Event()

    def disturb(stations):
        def kill():
            rng = random.Random(7)
            while not over.wait(0.004):
                for station in stations:
                    station.revive() if station.dead else None
                rng.choice(stations).dead = True

        threading.Thread(target=kill, daemon=True).start()

    try:
        disturbed, stations = run_on(3, disturb=disturb)
    finally:
        over.set()
    assert disturbed == whole
    assert sum(len(s.asked) for s in stations) > len(whole)  # some were asked again


def give(*args):
    return args


def test_the_same_candidate_goes_to_the_same_worker_and_others_where_there_is_room(monkeypatch):
    monkeypatch.setattr("kernelsearch.cluster.crew.LEAST_GAP_S", 60.0)  # equally quick, also on a busy machine
    stations = [Fake("a", give), Fake("b", give)]
    crew = Crew(stations)
    for _ in range(3):
        for key in range(8):
            crew.ask(key, "work", lambda station: (station.name,))
    assert all(set(s.asked) == {(s.name,)} and len(s.asked) == 12 for s in stations)  # each got its own arguments
    hold = threading.Event()
    slow = [Fake(n, lambda *args: hold.wait(10), 1) for n in "ab"]
    crew = Crew(slow)
    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(crew.ask, "same", "work", lambda station: ()) for _ in range(3)]
        while sum(p.busy for p in crew.posts) < 2:
            time.sleep(0.001)
        assert [p.busy for p in crew.posts] == [1, 1]  # no more than its room, and the other one helps
        hold.set()
        assert all(a.result() for a in asked)


def test_a_slow_worker_gets_what_it_answers_before_the_others_would():
    first, second = threading.Event(), threading.Event()
    fast, slow = Fake("fast", lambda *args: first.wait(10), 8), Fake("slow", lambda *args: second.wait(20), 8)
    crew = Crew([fast, slow])
    for post, gap_s in zip(crew.posts, (100.0, 850.0), strict=True):
        post.gap_s, post.done = gap_s, 8
    with ThreadPoolExecutor(12) as pool:
        asked = []
        for count in range(1, 13):
            asked.append(pool.submit(crew.ask, count, "work", lambda station: ()))
            while sum(p.busy for p in crew.posts) < min(count, 9):
                time.sleep(0.001)
        assert [p.busy for p in crew.posts] == [8, 1]  # three wait for the fast one, although the slow one has room
        first.set()  # the slow one still has its question: else it may answer before the fast one is seen to
        assert all(a.result() for a in islice(as_completed(asked, 10), 11)) and len(fast.asked) > 8
        second.set()
        assert all(a.result(10) for a in asked)


def test_a_new_worker_shows_how_quick_it_is_before_it_gets_much():
    hold = threading.Event()
    crew = Crew([Fake(n, lambda *args: hold.wait(10), 8) for n in "ab"])
    with ThreadPoolExecutor(16) as pool:
        asked = [pool.submit(crew.ask, n, "work", lambda station: ()) for n in range(16)]
        while sum(p.busy for p in crew.posts) < 2 * FIRST_ROOM:
            time.sleep(0.001)
        assert [p.busy for p in crew.posts] == [FIRST_ROOM] * 2
        hold.set()
        assert all(a.result(10) for a in asked)
    assert all(p.room > FIRST_ROOM for p in crew.posts)


def test_a_fault_of_the_set_up_restarts_the_worker_and_the_third_sets_it_aside():
    def fail(*args):
        raise WorkerError("fresh run workers compute a known kernel wrongly")

    said = []
    bad, good = Fake("bad", fail), Fake("good", give)
    crew = Crew([bad, good], said.append)
    for n in range(3):
        assert crew.ask(f"{n}", "work", lambda station: (1,)) == (1,)
        bad.revive()
    assert bad.killed == 2 and len(bad.asked) == 3
    assert "bad is set aside: fresh run workers" in said[-1] and crew.describe_pace().startswith("1 of 2 workers")
    assert crew.ask("more", "work", lambda station: (2,)) == (2,) and len(bad.asked) == 3


def test_a_mistake_of_the_users_is_raised_and_loses_nobody():
    def refuse(*args):
        raise TaskError("no timed shape")

    crew = Crew([Fake("a", refuse), Fake("b", refuse)])
    with pytest.raises(TaskError, match="no timed shape"):
        crew.ask("key", "work", lambda station: ())
    with pytest.raises(TaskError, match="no timed shape"):
        crew.ask_all("open")
    assert not any(p.away or p.busy for p in crew.posts)


def test_when_nobody_is_left_it_waits_and_then_says_how_to_go_on():
    alone = Fake("gpu 0", give)
    crew = Crew([alone], patience_s=0.2)
    alone.dead = True
    with pytest.raises(WorkerError, match=r"no worker is left \(gpu 0: gone\): .*--resume"):
        crew.ask("key", "work", lambda station: ())
    waiting, welcomed = Crew([late := Fake("gpu 0", give)], patience_s=30), []
    waiting.on_return.append(welcomed.append)
    late.dead = True
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(waiting.ask, "key", "work", lambda station: (5,))
        while not late.backs:
            time.sleep(0.001)
        late.revive()
        assert asked.result(10) == (5,) and welcomed == [late]


def test_a_run_that_stops_because_nobody_is_left_is_resumed_to_the_same_trials(tmp_path):
    whole, _ = run_on(1)
    with Store.open(tmp_path / "a.db") as store:
        station = Fake("gpu 0", HARD.evaluate)

        def die(trial, progress):
            station.dead = trial.number >= 20

        search = make_search(store, "evolve", Crewed(Crew([station], patience_s=0.05)), 60, 8, 3)
        with pytest.raises(WorkerError, match="no worker is left"):
            search.run(die)
        kept = store.count_trials(search.run_row.id)
        assert 20 < kept < 60
        again = Crewed(Crew([Fake("gpu 0", HARD.evaluate)]))
        assert story(make_search(store, "evolve", again, 60, 8, 3, store.load_run(1)).run().trials) == whole


def test_the_end_of_the_run_frees_whoever_waits():
    station = Fake("gpu 0", give)
    crew = Crew([station])
    station.dead = True
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(crew.ask, "key", "work", lambda station: ())
        while not station.backs:
            time.sleep(0.001)
        crew.close()
        with pytest.raises(WorkerError, match="the run has ended"):
            asked.result(10)
    assert station.ended


def test_the_end_waits_until_nobody_asks_or_restarts_a_worker():
    """Ray's library ends the process when it is used after its shutdown."""
    hold = threading.Event()
    station, lost = Fake("a", lambda *args: hold.wait(10), 1), Fake("b", give)
    crew = Crew([station, lost])
    lost.dead = True
    with ThreadPoolExecutor(2) as pool:
        for n in range(2):
            pool.submit(crew.ask, n, "work", lambda station: ())
        while not lost.backs or not station.asked:
            time.sleep(0.001)
        closing = threading.Thread(target=crew.close)
        closing.start()
        closing.join(0.05)
        assert lost.backs[0].done() and any(p.busy for p in crew.posts) and closing.is_alive()
        hold.set()
    closing.join(10)
    assert not closing.is_alive() and not any(p.busy for p in crew.posts)
