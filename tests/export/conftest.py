"""A small record written by hand: a fused task with strides, a split reduction in two launches, two devices."""

from itertools import count

import pytest
from gated_record import CONFIG, H100, OTHER, SPLIT, TASK, finding, imported, trial

from kernelsearch.core.types import Evidence
from kernelsearch.export.examine import examine
from kernelsearch.export.package import ExportOptions, export
from kernelsearch.kernel.source import Kernel
from kernelsearch.record.rows import RunFacts, Structure
from kernelsearch.record.store import Store

COUNTER = count()


@pytest.fixture(scope="session")
def task_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("task") / "gated_sum.py"
    path.write_text(TASK)
    return path


@pytest.fixture(scope="session")
def examined(task_file):
    return examine(task_file)


@pytest.fixture(scope="session")
def database(tmp_path_factory, examined):
    """`database(device, evidence, confirmed)`: a file with the seed's trial and two of the split kernel."""
    seed, split = Kernel.parse(examined.facts.seed), Kernel.parse(SPLIT)

    def make(device=H100, evidence=Evidence.MEASURED, confirmed=True, times=(5.0, 6.0)):
        path = tmp_path_factory.mktemp("record") / "found.db"
        with Store.open(path) as store:
            run = store.add_run(examined.facts, RunFacts("evolve", "edits", 0, 1, 3, device, {"triton": "3.7.1"}))
            store.add_trial(
                run, trial(0, seed, examined.facts.config, (10.0, 10.0), evidence, device), Structure(seed, 0)
            )
            structure = Structure(split, 1, seed.digest, "split_reduction", 'many "programs" share')
            store.add_trial(run, trial(1, split, CONFIG, times, evidence, device, seed.digest), structure)
            store.add_trial(run, trial(2, split, OTHER, (times[0] + 1, times[1] - 2), evidence, device, seed.digest))
            if confirmed:
                for config, found in ((CONFIG, times), (OTHER, (times[0] + 1, times[1] - 2))):
                    store.add_confirmation(
                        examined.facts, structure, config, finding(split, config, found, device), {"torch": "2.11"}
                    )
            store.finish_run(run)
        return path

    return make


@pytest.fixture(scope="session")
def confirmed_db(database):
    return database()


@pytest.fixture(scope="session")
def exported(tmp_path_factory, confirmed_db):
    """`exported(**options)`: an export of the fixture's task into a new folder."""

    def make(**options):
        out = tmp_path_factory.mktemp("out") / "package"
        whole = {
            "tasks": ("gated_sum",),
            "out": str(out),
            "name": f"fast-sum{next(COUNTER)}",
            "dbs": (str(confirmed_db),),
        }
        return export(ExportOptions(**{**whole, **options}))

    return make


@pytest.fixture(scope="session")
def package(exported):
    """(What was written, the imported package) of the default export."""
    done = exported(name="fast-gated")
    return done, imported(done.out, "fast_gated")
