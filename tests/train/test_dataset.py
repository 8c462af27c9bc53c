"""Training data: what gained in both forms, read back as models are; splits that share no kernel."""

import json
from dataclasses import replace

import pytest
import searching
from click.testing import CliRunner
from edit_seeds import facts as facts_of
from edit_seeds import task as seed_task

from kernelsearch.cli import main
from kernelsearch.core.errors import TrainError
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.bandit import NOTICED
from kernelsearch.propose.grammar import WholeKernel
from kernelsearch.propose.typed_edits import TypedEdits
from kernelsearch.record.rows import RunFacts
from kernelsearch.record.store import Store
from kernelsearch.search import Search, Settings, make_start, strategies
from kernelsearch.train import dataset
from kernelsearch.train.examples import keep_one_each, name_families

SPACE = {"num_warps": (2, 4, 8)}
TASKS = {
    name: replace(
        facts_of(seed_task(source).seed, name, SPACE), digest=name, path=f"{name}.py", shapes=(searching.SHAPE,),
        config={"num_warps": 4},
    )
    for name, source in {"softmax": "softmax", "softmax_again": "softmax", "column_sum": "column_sum"}.items()
}  # fmt: skip
SEEDS = {Kernel.parse(task.seed).digest for task in TASKS.values()}


class Judge(searching.Judge):
    """The judge by formula, which lets every seed pass."""

    def evaluate(self, kernel, config, incumbent=None):
        return super().evaluate(searching.SEED if kernel.digest in SEEDS else kernel, config, incumbent)


@pytest.fixture(scope="module")
def store():
    """Three tasks searched by typed edits, with times by formula; two of them have one seed."""
    store = Store.open_in_memory()
    for task in TASKS.values():
        strategy = strategies.make("evolve", make_start(task, 3, 30))
        settings = Settings(RunFacts("evolve", "edits", 3, 4, 30, "h100"))
        Search(task, strategy, TypedEdits(), Judge(), store, settings, None).run()
    proposer, engine = searching.mix(alone=True)
    searching.searched(proposer, store, 14, budget=14)
    assert engine.asks
    return store


@pytest.fixture(scope="module")
def collected(store):
    collected = dataset.Collected()
    tasks = {**TASKS, searching.task().digest: searching.task()}
    collected.add(store, lambda run, path: tasks[run.task])
    return collected


@pytest.fixture(scope="module")
def written(collected, tmp_path_factory):
    out = tmp_path_factory.mktemp("data") / "out"
    card = dataset.write(out, collected, dataset.split_families(collected, {}, ["softmax"]))
    rows = {str(p.relative_to(out)): [json.loads(x) for x in p.open()] for p in out.glob("*/*.jsonl")}
    return out, rows, card


@pytest.mark.slow
def test_every_answer_is_read_back_as_its_kernel(written, collected):
    _, rows, _ = written
    made = {(e.form, e.task, e.base, e.answer): e.made for e in collected.examples}
    models, forms = searching.shared(), set()
    for row in rows["pages/train.jsonl"] + rows["pages/test.jsonl"]:
        parent, task = Kernel.parse(row["parent"]), TASKS.get(row["task"], searching.task())
        read = models.grammar(parent, task) if row["form"] == "edit" else WholeKernel.of_task(parent, task)
        assert parent.digest == row["base"] and parent.functions[0].name in row["page"] and row["system"]
        for answer in row["answers"]:
            digest = made[row["form"], row["task"], row["base"], answer]
            assert row["base"] != digest == read.apply(answer).kernel.digest
        assert row["page"].endswith(tuple(".)`"))
        forms.add(row["form"])
    assert forms == {"edit", "kernel"}
    for example in (e for e in collected.examples if e.gained):
        assert example.gain >= NOTICED and example.evidence == "estimated" and example.device in ("h100", "")
    authors = {e.author.split(":")[0] for e in collected.examples if e.gained}
    assert "model" in authors and len(authors) > 2


def test_no_kernel_of_a_test_task_is_in_training(written, collected):
    """Softmax and its copy share kernels: they are held out together, whatever they are called."""
    _, rows, card = written
    sides = {}
    for example in collected.examples:
        side = "test" if example.task.startswith("softmax") else "train"
        sides.setdefault(side, set()).update((example.base, example.made))
    assert {r["base"] for r in rows["pages/train.jsonl"]} <= sides["train"]
    assert sides["train"] and sides["test"] and not sides["train"] & sides["test"]
    assert {r["task"] for r in rows["pages/test.jsonl"]} == {"softmax", "softmax_again"}
    assert "| softmax_again | softmax | test |" in card and "not stated" in card
    kernels = {"a_x": {"1", "2"}, "b_x": {"2", "3"}, "c_x": {"3"}, "d_x": {"4"}}
    assert set(name_families(kernels, {"c_x": "z"}, lambda n: n[0]).values()) == {"a", "d"}
    with pytest.raises(TrainError, match="no family is called nothing: they are column, softmax"):
        dataset.split_families(collected, {}, ["nothing"])


def test_the_same_change_is_there_once_and_measured_ones_stay(collected):
    once = collected.examples
    measured = [replace(e, evidence="measured", author="a GPU's") for e in once[:3]]
    kept = keep_one_each([*once, *measured, *once])
    assert len(kept) == len(once) == len({e.key for e in once})
    assert [e for e in kept if e.evidence == "measured"] == measured


def test_datasets_loads_it(written, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    out, rows, card = written
    loaded = datasets.load_dataset(str(out), "pages", cache_dir=str(tmp_path))
    plain = lambda row: {**row, "gains": [g and round(g, 12) for g in row["gains"]]}  # noqa: E731
    for side in ("train", "test"):
        assert list(map(plain, loaded[side].to_list())) == list(map(plain, rows[f"pages/{side}.jsonl"]))
    assert f"| train | {len(loaded['train'])} |" in card


def test_a_page_shows_the_config_at_which_its_answers_were_compared(store, collected):
    begun = {}
    for run in store.load_runs():
        firsts = {trial.kernel: trial.config for trial in reversed(store.load_trials(run.id))}
        for kernel, config in firsts.items():
            begun.setdefault(kernel, []).append(config)
    models = ("model:", "kernel:", "repair:")  # they may name a config of their own
    edits = [e for e in collected.examples if not e.author.startswith(models)]
    assert edits
    for example in edits:
        config = Kernel.parse(example.parent).config
        assert config in [{name: first.get(name) for name in config} for first in begun[example.made]]


def test_a_folder_of_something_else_and_a_database_without_answers_are_refused(written, collected, tmp_path):
    out, _, card = written
    split = dataset.split_families(collected, {}, ["softmax"])
    assert dataset.write(out, collected, split) == card  # its own folder is written again
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(TrainError, match="holds something else"):
        dataset.write(tmp_path, collected, split)
    useless = replace(collected, examples=[replace(e, gain=None) for e in collected.examples])
    assert "no answer gained" in dataset.write(tmp_path / "useless", useless, split)
    assert [p.name for p in (tmp_path / "useless").iterdir() if p.is_dir()] == ["pages"]
    with pytest.raises(TrainError, match="have no answers to learn from"):
        dataset.write(tmp_path / "new", replace(collected, examples=[]), split)
    done = CliRunner().invoke(main, ["dataset", str(tmp_path / "new"), "--db", str(tmp_path / "no.db")])
    assert done.exit_code == 2 and "no such file" in done.stderr
