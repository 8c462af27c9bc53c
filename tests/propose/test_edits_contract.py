"""What every edit promises, over the registry and the shipped seeds: a new edit is tested at birth."""

from __future__ import annotations

import importlib
import re

import edit_seeds as seeds
import pytest
from edit_seeds import applied, variants

from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.space import is_name_of
from kernelsearch.propose.edits import EDITS, NotApplicable, edit_named
from kernelsearch.verify import gate

PAIRS = [(edit, name) for edit in EDITS for name in seeds.NAMES]


@pytest.mark.parametrize("edit", EDITS, ids=lambda e: e.name)
def test_named_after_its_file(edit):
    module = importlib.import_module(type(edit).__module__)
    assert re.fullmatch(r"[a-z][a-z0-9_]*", edit.name)
    assert module.__name__.endswith(f".{edit.name}")
    first = module.__doc__.splitlines()[0]
    assert first.endswith(".") and len(first) > 40
    assert edit.summary and not edit.summary.endswith(".")


def test_names_are_unique():
    assert len({e.name for e in EDITS}) == len(EDITS)
    assert all(edit_named(e.name) is e for e in EDITS)
    assert edit_named("no such edit") is None


@pytest.mark.slow
def test_at_least_fifteen_edits_apply_to_the_shipped_seeds():
    useful = {edit.name for edit, name in PAIRS if variants(edit.name, name)}
    assert len(useful) >= 15, sorted(useful)


@pytest.mark.parametrize("name", seeds.NAMES)
def test_applies_or_says_why(name):
    for edit in EDITS:
        result = applied(edit.name, name)
        if isinstance(result, NotApplicable):
            assert len(result.reason) > 10
        else:
            assert result and all(v.edit == edit.name and v.rationale.endswith(".") for v in result)


@pytest.mark.parametrize("name", seeds.NAMES)
def test_variants_are_new_kernels_that_the_gate_accepts(name):
    parent = seeds.seed(name)
    for edit in EDITS:
        result = variants(edit.name, name)
        digests = [v.kernel.digest for v in result]
        assert len(set(digests)) == len(digests) and parent.digest not in digests
        for variant in result:
            text = variant.kernel.render()
            verdict = gate.check(text)
            assert verdict.accepted, f"{edit.name}: {verdict.reason}\n{text}"
            assert Kernel.parse(text).digest == variant.kernel.digest


@pytest.mark.parametrize("name", seeds.NAMES)
def test_config_and_space_speak_of_the_kernel(name):
    task = seeds.task(name)
    for edit in EDITS:
        for variant in variants(edit.name, name):
            kernel = variant.kernel
            new = set(kernel.space) - set(task.space)
            assert all(is_name_of(n, kernel) for n in new)
            assert all(kernel.config[n] in kernel.space[n] for n in kernel.config if n in kernel.space)
            assert new <= set(kernel.config), "a new name starts somewhere"
            assert set(task.space) - set(kernel.space) <= {"BLOCK"}, "nothing else that the task tunes is lost"


@pytest.mark.slow
@pytest.mark.parametrize("name", seeds.NAMES)
def test_same_parent_same_variants(name):
    for edit in EDITS:
        again = edit.apply(Kernel.parse(seeds.task(name).seed), seeds.task(name))
        if isinstance(again, list):
            assert [v.kernel.render() for v in again] == [v.kernel.render() for v in variants(edit.name, name)]
        else:
            assert again == applied(edit.name, name)


def test_sites_keep_their_names():
    for edit, name in PAIRS:
        task = seeds.task(name)
        for variant in variants(edit.name, name):
            steps = variant.kernel.steps_at(task.sites[0], task.sites)
            assert steps and steps[-1] == task.sites[0]
