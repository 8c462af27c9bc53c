"""Only a new leader is prepared for its full verdict; who is in flight is compared with all that were measured."""

import threading

from kernelsearch.core.types import Evidence, Measurement, ShapeTime
from kernelsearch.trial.shared_state import Lead


def measured(*us, abandoned=False):
    times = tuple(ShapeTime(f"timed:{i}", t) for i, t in enumerate(us))
    return Measurement(Evidence.MEASURED, "a device", "a protocol", times, abandoned)


SEED = measured(100.0, 100.0)


def test_of_a_dozen_that_beat_the_seed_only_those_that_lead_take_it():
    lead = Lead()
    found = [lead.take(measured(us, us), SEED) for us in (120.0, 60.0, 70.0, 60.0, 50.0, 99.0, 55.0, 49.0)]
    assert found == [False, True, False, False, True, False, False, True]


def test_an_incumbent_from_elsewhere_counts_and_what_was_given_up_does_not():
    lead = Lead()
    assert not lead.take(measured(40.0, 40.0, abandoned=True), SEED)
    assert lead.take(measured(40.0), SEED) and not lead.take(measured(40.0), SEED)  # at one shape
    assert not lead.take(measured(40.0, 40.0), measured(30.0, 30.0))
    assert lead.take(measured(40.0, 40.0), SEED)


def test_of_equal_ones_in_many_threads_one_takes_it():
    lead, found, ready = Lead(), [], threading.Barrier(8)

    def ask():
        ready.wait()
        found.append(lead.take(measured(50.0, 50.0), SEED))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [False] * 7 + [True]
