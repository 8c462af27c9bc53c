"""Which cases a verdict rests on: the shapes and values of a depth, secret ones among them, that a task takes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from itertools import cycle, islice
from typing import Any

import torch

from kernelsearch.core import errors
from kernelsearch.core.plugins import describe_error
from kernelsearch.kernel.targets import Target
from kernelsearch.tasks import facts
from kernelsearch.tasks.module import USER_ERRORS
from kernelsearch.tasks.task import Task
from kernelsearch.verify import regimes
from kernelsearch.verify.dispatch import DispatchMode, OperationNames
from kernelsearch.verify.drawn_integers import draw_scalars, is_drawn
from kernelsearch.verify.planted import SELECTIONS, decides_by_few
from kernelsearch.verify.regime_words import CHOSEN, LONE, OWN_REFERENCE, REDRAWN
from kernelsearch.worker.judging import drawn_sizes, planning
from kernelsearch.worker.judging.opened_task import OpenedTask
from kernelsearch.worker.launcher import opening, trace
from kernelsearch.worker.launcher.standin import pretend_gpu
from kernelsearch.worker.messages import jobs

MOST_ELEMENTS = 2**24
"""Elements of a judged shape's inputs without a GPU: of twice as many the judge does not know in five minutes.

At a shape made of timed sizes also of any result within the reference, as of the scores of an attention.
"""

DRAWN_HERE, DRAWN_ON_GPU, DRAWN_BETWEEN, DRAWN_LISTS = 6, 8, 16, 6
"""Shapes of secret sizes at full depth, without a GPU and with one; of secret lists of sizes."""
DRAWN_LARGE = 1
"""Shapes of secret sizes beside these that are large together, judged whole as timed ones are: each costs a tenth of a
verdict's time."""
DRAWN_INPUTS, DRAWN_RESULT = 2**19, 2**24
"""Elements on a GPU of the inputs of such a shape, and of any result within the reference."""
DRAWN_REGIMES = ("randn", "whole", "scaled", "blocks")
"""The values at these: normal ones and another, by turns; without a GPU normal ones or others of one scale."""
FEW_VALUES, FEW_ROWS = 256, 6
"""Elements of inputs that say little, and rows with scales of their own that are few."""
REDRAWS = 2
"""Cases of each regime of other integers."""
CHOSEN_CASES, CHOSEN_OF_SHAPE = 4, 4
"""Shapes at which draws are chosen for their integers, and the most that are chosen at one."""
DRAWN_ALONE = ("spread", "flagged", "spread", "near", "spread", "spread")
"""Their regimes at long shapes where a task has no floats; elsewhere there are four times as many cases of each."""
WHOLE, MOST_PLANTED, FEW_PLANTED = ("long", "odd", "even", "over"), 16, 4
"""Kinds of made shapes that run whole; cases in which one element of each row decides, of a test shape and of these."""
MASKED = 4
"""Cases in which rows begin with -inf, each in another tensor where there are several."""
ALONE = 2
"""Cases in which one input alone is mostly zero."""
SCALES = 2.0**12
"""How many times larger and smaller a float is made that is a tensor without an axis: a scale, as those of rows are."""
PAIRS = 6
"""Pairs of inputs that are numbers of which both are drawn."""
FEW_ROWS_VALUES = ("stepped", "scaled", "sorted", "mixed", "shifted", "blocks")
"""The values of every other shape that is too large to be compared but in some rows; those of the others are normal."""
NUMBERS = 4
"""Numbers of a reference at whose multiples it is judged, of more those that the seed says."""
FORM_VALUES = ("far", "stepped", "sparse")
"""The values that test shapes with other dtypes, flags or numbers have too, beside multiples of the reference's own
numbers: these may decide what a kernel does."""
LONG_VALUES = 2
"""Rounds of long shapes whose values are not normal ones: what a kernel does with long rows may depend on them."""
GPU_SCREEN_SHAPES = 2
"""On a GPU each test shape may need its own binary, which costs more than all judging: `screen` takes only two."""


class LargestResult(DispatchMode):
    """Keeps the number of elements of the largest result of an operation."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.elements = max(self.elements, result.numel())
        return result


def try_reference(task: Task, key: str, target: Target, size: LargestResult | None = None) -> str:
    """Raises TaskError if the reference fails at a shape; why that cannot be told without values, else ""."""
    case = trace.build_formal(task, key, target)
    if trace.is_own_reference(case):
        return OWN_REFERENCE
    if not all(v.is_meta for v in case.inputs if isinstance(v, torch.Tensor)):
        return ""
    try:
        with pretend_gpu(target, "meta"), OperationNames() as names, size or nullcontext():
            case.reference(*case.inputs)
    except USER_ERRORS as error:
        what = describe_error(error, task.path)
        if isinstance(error, NotImplementedError) or "meta" in what:
            return what
        label = facts.label_shape(task, key)
        raise errors.TaskError(f"{task.path.name}: the reference fails at {label}: {what}") from error
    return "as_strided fails only where there is memory" if "as_strided" in names.seen else ""


def choose_cases(opened: OpenedTask, job: jobs.Cases) -> jobs.JudgedCases:
    """The cases of a depth, those that the task's file names first."""
    if job.depth == "between":
        sizes = job.seed + 1 if job.sizes is None else job.sizes
        return tuple(jobs.JudgedCase(key, "randn", job.seed) for key in _draw_between(opened, sizes))
    keys = opened.judged_shape_keys()
    if job.depth == "screen" and not opened.on_cpu:
        keys = keys[:GPU_SCREEN_SHAPES]
    plan = regimes.plan_regimes(job.depth, len(keys))
    cases = tuple(
        jobs.JudgedCase(key, regime, job.seed + 7 * i)
        for i, (key, wanted) in enumerate(zip(keys, plan, strict=True))
        for regime in wanted
    )
    if job.depth != "full":
        return cases
    keys.sort(key=lambda key: planning.count_single(opened.build_case(key).inputs))
    if not regimes.are_noise(opened.build_case(keys[-1]).inputs):
        cases += tuple(jobs.JudgedCase(key, regimes.OWN, job.seed + 7 * i + 1) for i, key in enumerate(keys))
    more = [*_draw_cases(opened, job.seed), *_repeat_cases(opened, cases, keys, job.seed)]
    numbers = opened.list_numbers(keys[0])[:NUMBERS]
    largest = max(keys, key=lambda key: trace.count_elements(opened.task, key, opened.target))
    near = itertools.product(dict.fromkeys((keys[0], largest)), range(2))
    more += [jobs.JudgedCase(key, "offset", job.seed + n, once=True) for key, n in near]
    often = {"masked": MASKED * _may_be_masked(opened, keys[0]), "stepped": 1, "copied": 1}
    often |= {regimes.OPPOSED: 2, "multiples": len(numbers)}
    more += [jobs.JudgedCase(keys[0], r, job.seed + n, once=True) for r, count in often.items() for n in range(count)]
    forms = _list_forms(opened, keys)
    values = [(r, job.seed + n) for n, r in enumerate((*FORM_VALUES, *["multiples"] * len(numbers)))]
    typed = [*planning.list_typed(opened.task, opened.list_launches)] if opened.on_cpu else []
    more += [jobs.JudgedCase(key, r, s, once=True) for key in (*forms[1:], *typed) for r, s in values]
    widest = max(keys, key=lambda key: planning.measure_rows(opened.build_case(key).inputs))
    if widest != keys[0]:
        wide = ("stepped", "sorted", "stepped", "stepped")
        more += [jobs.JudgedCase(widest, regime, job.seed + n, once=True) for n, regime in enumerate(wide)]
    more += [jobs.JudgedCase(keys[0], "sparse", (job.seed | 1) + 2 * n, once=True) for n in range(ALONE)]
    more += list_redrawn(opened, keys, job.seed)
    more += _list_scalar_cases(opened, keys, [*forms, *typed], values, job.seed)
    base = jobs.JudgedCase(keys[0], "randn", job.seed)
    how = {"names": opened.build_case(base.shape).names, "domain": opened.task.domain}
    more += planning.make_probed_cases(base, opened.inputs_of(base), opened.find_shown, **how)
    more += planning.make_padded_cases(jobs.JudgedCase(keys[0], "mixed", job.seed), opened.task, opened.target)
    if opened.on_cpu:
        more += planning.make_typed_cases(typed, job.seed)
    else:
        more += [jobs.JudgedCase(key, "randn", job.seed, seeded=True) for key in _draw_large(opened, job.seed)]
        more += _choose_timed(opened, job.seed)
    more += (long := _list_long_cases(opened, keys, job.seed))
    if decides_by_few(opened.name_operations() or SELECTIONS):
        most = {c.shape: FEW_PLANTED for c in long if c.kind in WHOLE and not c.sampled}
        for key, number in {**most, keys[0]: MOST_PLANTED, widest: MOST_PLANTED}.items():
            planted = planning.make_planted_cases(key, opened.build_case(key).inputs, job.seed, number)
            more += (c for c in planted if c.regime != LONE or opened.takes_redrawn(c))
    every = (*cases, *more, *_choose_draws(opened, (c for c in (*cases, *more) if _is_plain(c)), job.seed))
    return every if _has_data(opened, keys[0]) else _drop_equal(every)


def _is_plain(case: jobs.JudgedCase) -> bool:
    """Whether a case has no other sizes, numbers or elements than its shape."""
    return not (case.sampled or case.seeded or case.scalars or case.padded or case.probe)


def _has_data(opened: OpenedTask, key: str) -> bool:
    """Whether a regime of floats changes anything."""
    return any(map(regimes.is_data, opened.build_case(key).inputs))


def _drop_equal(cases: jobs.JudgedCases) -> jobs.JudgedCases:
    """The cases without those whose integers are as another one's, where there are no other values; one name for all
    regimes of floats."""
    named = [case if case.regime in REDRAWN else replace(case, regime=cases[0].regime) for case in cases]
    first: dict[Any, jobs.JudgedCase] = {}
    for case in named:
        seed = case.seed if case.regime in REDRAWN or case.seeded else 0
        first.setdefault(replace(case, seed=seed, once=False, sampled=False), case)
    return tuple(first.values())


def _list_long_cases(opened: OpenedTask, keys: list[str], seed: int) -> list[jobs.JudgedCase]:
    """Cases of made sizes with normal values, and of those that run whole with others."""
    config, is_taken, on_gpu = opened.facts.config, partial(_is_taken, opened), not opened.on_cpu
    is_taken = partial(_is_launched, opened, is_taken) if on_gpu else is_taken
    fixed = trace.count_elements(opened.task, facts.find_smallest_shape(opened.task), opened.target)
    timed: list[jobs.JudgedCase] = []
    if not on_gpu:
        timed = planning.make_timed_cases(opened.task, seed, opened.list_launches, config, is_taken, fixed)
    as_timed = [opened.task.params(c.shape) for c in timed]
    long = planning.make_long_cases(opened.task, seed, opened.list_launches, config, is_taken, on_gpu, fixed)
    long = [replace(c, once=on_gpu) for c in long if opened.task.params(c.shape) not in as_timed]
    long = [*_vary_values(long, seed)] if _has_data(opened, keys[0]) else long
    whole = [c for c in long if c.kind in WHOLE and not c.sampled]
    widths = {c: planning.measure_rows(opened.build_case(c.shape).inputs) for c in whole}
    wide = [c for c in whole if 2 * widths[c] >= max(widths.values())]
    kinds = ["sorted", "stepped", "shifted", "copied", "outlier", "stepped", "shifted", "sparse"]
    kinds += ["masked"] * _may_be_masked(opened, keys[0])
    kinds = kinds if _has_data(opened, keys[0]) else [*DRAWN_ALONE]
    kinds += ["ends", "flagged", "spread", "flagged"] * any(map(is_drawn, opened.build_case(keys[0]).inputs))
    drawn = [(n + turn, kind) for turn in range(LONG_VALUES) for n, kind in enumerate(kinds) if whole]
    places = [(whole if kind == "ends" else wide, at, kind) for at, kind in drawn]
    others = [replace(among[at % len(among)], regime=r, seed=seed + n) for n, (among, at, r) in enumerate(places)]
    return [*long, *timed, *(c for c in others if c.regime not in REDRAWN or opened.takes_redrawn(c))]


def _vary_values(cases: Sequence[jobs.JudgedCase], seed: int) -> Iterator[jobs.JudgedCase]:
    """The cases, every other one of those of which some rows are compared with other values than normal ones."""
    turns = itertools.count(seed)
    for case in cases:
        turn = next(turns) if case.sampled else 0
        yield replace(case, regime=FEW_ROWS_VALUES[turn // 2 % len(FEW_ROWS_VALUES)]) if turn % 2 else case


def _choose_draws(opened: OpenedTask, cases: Iterable[jobs.JudgedCase], seed: int) -> Iterator[jobs.JudgedCase]:
    """Cases with integers of draws that are chosen among many, at those of these shapes with the largest ones."""
    shapes = {case.shape: opened.integers.find_largest(case.shape) for case in cases}
    for shape in sorted(shapes, key=shapes.__getitem__, reverse=True)[:CHOSEN_CASES]:
        for own in opened.integers.choose(shape, seed, CHOSEN_OF_SHAPE):
            case = jobs.JudgedCase(shape, CHOSEN, own, once=True)
            if opened.takes_redrawn(case):
                yield case


def _choose_timed(opened: OpenedTask, seed: int) -> list[jobs.JudgedCase]:
    """Cases of timed shapes with draws that are chosen for their integers, for a GPU: in large ones more is rare."""
    keys = [shape.key for shape in opened.facts.shapes[-CHOSEN_CASES // 2 :]]
    chosen = [(key, own) for key in keys for own in opened.integers.choose(key, seed, CHOSEN_OF_SHAPE // 2, whole=True)]
    return [jobs.JudgedCase(key, "randn", own, seeded=True) for key, own in chosen]


def _may_be_masked(opened: OpenedTask, key: str) -> bool:
    """Whether the reference has exponentials, and an input of which DOMAIN says nothing, so that it may be -inf."""
    case, domain = opened.build_case(key), opened.task.domain
    free = [v for name, v in zip(case.names, case.inputs, strict=True) if name not in domain]
    return opened.has_exponentials() and any(map(regimes.is_data, free))


def _is_taken(opened: OpenedTask, key: str) -> bool:
    """Whether the reference takes a shape, with results that the judge can hold."""
    size = LargestResult()
    with suppress(errors.TaskError):
        if try_reference(opened.task, key, opened.target, size) or not size.elements:  # it needs values
            with size:
                if not opened.takes_shape(key):
                    return False
        return size.elements <= (MOST_ELEMENTS if opened.on_cpu else DRAWN_RESULT)
    return False


def _draw_cases(opened: OpenedTask, seed: int) -> list[jobs.JudgedCase]:
    """Cases of shapes with secret sizes."""
    here, count = opened.on_cpu, partial(trace.count_elements, opened.task, target=opened.target)
    most = (drawn_sizes.DRAWN_ELEMENTS if here else DRAWN_INPUTS) + count(facts.find_smallest_shape(opened.task))
    how = count, most, partial(_is_launched, opened, partial(_is_taken, opened))
    keys = drawn_sizes.draw_shapes(opened.task, seed, DRAWN_HERE if here else DRAWN_ON_GPU, *how)
    keys += drawn_sizes.draw_lists(opened.task, seed, DRAWN_LISTS, *how)
    cases: list[jobs.JudgedCase] = []
    for number, key in enumerate(keys, 1):
        few = here and planning.runs_few(opened.list_launches(key), opened.facts.config)
        values = DRAWN_REGIMES[number % 2 :: 2][:1] if here else ("randn", DRAWN_REGIMES[1 + number % 3])
        own = seed + 104729 * number
        cases += [jobs.JudgedCase(key, regime, own, sampled=few, once=True) for regime in values]
        if any(map(is_drawn, opened.build_case(key).inputs)):  # what is rare at small sizes may never be long enough
            other = jobs.JudgedCase(key, ("ends", "spread")[number % 2], own, sampled=few, once=True)
            cases += [other] if opened.takes_redrawn(other) else []
    return cases


def _draw_between(opened: OpenedTask, seed: int) -> list[str]:
    """The keys of shapes with sizes in the range of the timed ones, none larger than the largest of these."""
    task = replace(opened.task, test_shapes=())
    count = partial(trace.count_elements, task, target=opened.target)
    is_taken = partial(_is_launched, opened, partial(_is_taken_whole, opened))
    return drawn_sizes.draw_shapes(task, seed, DRAWN_BETWEEN, count, max(map(count, task.keys)), is_taken, apart=True)


def _draw_large(opened: OpenedTask, seed: int) -> list[str]:
    """The keys of shapes with secret sizes that are large together, for a GPU."""
    is_taken = partial(_is_launched, opened, partial(_is_taken_whole, opened))
    return drawn_sizes.draw_large(opened.task, seed, DRAWN_LARGE, is_taken)


def _is_taken_whole(opened: OpenedTask, key: str) -> bool:
    """Whether the reference takes a shape; a kernel that is its own is evaluated, as on a GPU a fault ends all."""
    if try_reference(opened.task, key, opened.target) != OWN_REFERENCE:
        return True
    return trace.count_elements(opened.task, key, opened.target) <= DRAWN_RESULT and opened.takes_shape(key)


def _is_launched(opened: OpenedTask, takes: Callable[[str], bool], key: str) -> bool:
    """Whether a shape is taken, by the launcher too."""
    with suppress(errors.TaskError):
        return takes(key) and not any(map(opening.is_refused, opened.list_launches(key)))
    return False


def _repeat_cases(opened: OpenedTask, cases: jobs.JudgedCases, keys: list[str], seed: int) -> Iterator[jobs.JudgedCase]:
    """Cases with more scales than these have, at shapes whose inputs tell something.

    Scales of rows go on from one case to the next only at one shape: that with the most.
    """
    counts = {key: regimes.count_scales(opened.build_case(key).inputs, opened.count_rows(key)) for key in keys}
    sizes = {key: trace.count_elements(opened.task, key, opened.target) for key in keys}
    telling = [key for key in keys if sizes[key] >= FEW_VALUES] or [max(keys, key=sizes.__getitem__)]
    for regime, wanted in regimes.WANTED.items():
        wanted = wanted // 2 if regime == "extreme" and opened.has_exponentials() else wanted  # half of the octaves
        shapes = telling if regime == "whole" else [max(telling, key=counts.__getitem__)]
        yield from _repeat_regime(cases, regime, wanted, shapes, counts.__getitem__, seed + 100_003)


def _repeat_regime(
    cases: Sequence[jobs.JudgedCase],
    regime: str,
    wanted: int,
    shapes: Sequence[str],
    count: Callable[[str], int],
    seed: int,
) -> list[jobs.JudgedCase]:
    """More cases of a regime, with other seeds at these shapes by turns, until there are so many scales.

    cases has what there is already; count gives a shape's rows with a scale of their own. Where these are fewer than
    FEW_ROWS, what `whole` has tells the same.
    """

    def scales(case: jobs.JudgedCase) -> int:
        return 1 if regime == "whole" else count(case.shape)

    missing, more = wanted - sum(scales(c) for c in cases if c.regime == regime), list[jobs.JudgedCase]()
    if regime != "whole" and max(map(count, shapes)) < FEW_ROWS:
        missing = min(missing, FEW_ROWS)
    while missing > 0:
        more.append(jobs.JudgedCase(shapes[len(more) % len(shapes)], regime, seed + len(more), once=True))
        missing -= scales(more[-1])
    return more


def list_redrawn(opened: OpenedTask, keys: list[str], seed: int) -> list[jobs.JudgedCase]:
    """Cases with other values of integer inputs, as far as the reference takes them."""
    if not any(map(is_drawn, opened.build_case(keys[0]).inputs)):
        return []
    number = REDRAWS if _has_data(opened, keys[0]) else 4 * REDRAWS
    drawn = [r for r in REDRAWN if r not in (CHOSEN, LONE)]
    draws = {r: list(islice(cycle(keys), 2 * number if r == "ends" else number)) for r in drawn}
    others = [jobs.JudgedCase(key, r, seed + i) for r, shapes in draws.items() for i, key in enumerate(shapes)]
    return list(filter(opened.takes_redrawn, others))


def _list_forms(opened: OpenedTask, keys: list[str]) -> list[str]:
    """The first test shape of each set of dtypes, flags and other values that are no sizes."""
    forms = {repr(planning.pick_others(opened.task.params(key))): key for key in reversed(keys)}
    return [key for key in keys if key in forms.values()]


def _list_scalar_cases(
    opened: OpenedTask, keys: list[str], forms: Sequence[str], values: Sequence[tuple[str, int]], seed: int
) -> list[jobs.JudgedCase]:
    """Cases with other values of inputs that are numbers, or floats without an axis, as far as the reference takes them
    and DOMAIN has no word. forms are shapes of each set of dtypes and flags, values those of FORM_VALUES.
    """
    built = {key: opened.build_case(key) for key in (*keys, *forms)}
    given = {key: dict(zip(c.names, c.inputs, strict=True)) for key, c in built.items()}
    free = {n: v for n, v in given[keys[0]].items() if n not in opened.task.domain}
    scales = {n: float(v) for n, v in free.items() if torch.is_tensor(v) and not v.dim() and v.is_floating_point()}
    names, cases = [n for n, v in free.items() if not isinstance(v, torch.Tensor)], list[jobs.JudgedCase]()
    shapes = (*opened.facts.shapes, *opened.facts.test_shapes)
    formal = [trace.build_formal(opened.task, s.key, opened.target) for s in shapes if names]
    others = dict[str, list[Any]]()
    for name in (*names, *scales):
        is_scale = name in scales
        own = [scales[name]] if is_scale else [dict(zip(c.names, c.inputs, strict=True)).get(name) for c in formal]
        drawn = draw_scalars(own, seed, SCALES) if is_scale else draw_scalars(own, seed)
        if left := [v for v in drawn if v not in own]:
            others[name] = left
        held = {} if is_scale or not drawn else {given[key].get(name): key for key in keys}  # they are claimed too
        for value, key in ((v, key) for v, key in held.items() if v is not None):
            cases.append(jobs.JudgedCase(key, "randn", seed, once=True, scalars=((name, value),)))
        for number, value in enumerate(drawn):
            kinds = ("scaled", "randn", "sparse")  # an epsilon shows where a row is small
            at = [(r, key, seed + number) for r, key in zip(kinds, cycle(keys[number % len(keys) :] + keys))]
            if type(value) in (bool, int) and value in (0, 1):
                at += (("randn", key, seed + number) for key in forms if given[key].get(name) != value)
                at += ((r, keys[0], s) for r, s in values if given[keys[0]].get(name) != value)
            each = dict.fromkeys(at)  # a flag with each of the other flags, dtypes and None
            cases += [jobs.JudgedCase(key, r, s, once=True, scalars=((name, value),)) for r, key, s in each]
    rng, pairs = random.Random(f"{seed}/pairs"), list(itertools.combinations(others, 2))
    for number, pair in enumerate(rng.sample(pairs, min(PAIRS, len(pairs)))):
        both = tuple((name, rng.choice(others[name])) for name in pair)
        cases.append(jobs.JudgedCase(keys[number % len(keys)], "randn", seed + number, once=True, scalars=both))
    opened.prepare_answers(cases)
    return list(filter(opened.takes_scalar, cases))
