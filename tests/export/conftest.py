"""A small record written by hand: a fused task with strides, a split reduction in two launches, two devices."""

from itertools import count

import pytest
from gated_record import CONFIG, H100, OTHER, SPLIT, TASK, finding, imported, write_seed_run

from kernelsearch.core.types import Evidence
from kernelsearch.export.examine import examine
from kernelsearch.export.package import ExportOptions, export
from kernelsearch.kernel.source import Kernel
from kernelsearch.record.rows import Structure
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
    split = Kernel.parse(SPLIT)

    def make(device=H100, evidence=Evidence.MEASURED, confirmed=True, times=(5.0, 6.0)):
        candidates = ((CONFIG, times), (OTHER, (times[0] + 1, times[1] - 2)))
        path = tmp_path_factory.mktemp("record") / "found.db"
        write_seed_run(path, examined.facts, (10.0, 10.0), evidence, device, [(split, *c) for c in candidates])
        with Store.open(path) as store:
            for config, found in candidates if confirmed else ():
                claim = finding(split, config, found, device)
                store.add_confirmation(examined.facts, Structure(split, 1), config, claim, {"torch": "2.11"})
        return path

    return make


@pytest.fixture(scope="session")
def confirmed_db(database):
    return database()


@pytest.fixture(scope="session")
def exported(tmp_path_factory, confirmed_db):
    """`exported(**options)`: an export of the fixture's task into a new folder; pack compiles its binaries."""

    def make(pack=None, **options):
        out = tmp_path_factory.mktemp("out") / "package"
        name, dbs = f"fast-sum{next(COUNTER)}", (str(confirmed_db),)
        whole = {"tasks": ("gated_sum",), "out": str(out), "name": name, "dbs": dbs, **options}
        return export(ExportOptions(**whole), pack)

    return make


@pytest.fixture(scope="session")
def package(exported):
    """(What was written, the imported package) of the default export."""
    done = exported(name="fast-gated")
    return done, imported(done.out, "fast_gated")
