"""Cases at full depth besides the regimes: moved elements, padded rows, sizes that only timed shapes have."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch

from kernelsearch.core.errors import TaskError
from kernelsearch.kernel.targets import Target
from kernelsearch.tasks.facts import find_smallest_shape
from kernelsearch.tasks.module import USER_ERRORS
from kernelsearch.tasks.task import Task
from kernelsearch.verify.regime_words import LONE, PADDED, PLANTED
from kernelsearch.worker.judging.drawn_sizes import Params, find_tied, is_made, pick_integers
from kernelsearch.worker.messages.jobs import JudgedCase, JudgedCases, even_key

PROBES = 4
"""Single elements of each input that are moved: the first of those that the answer shows."""
LONG_PROGRAMS, LONG_ELEMENTS, LONG_SHAPES = 16, 2**19, 6
"""Programs and elements of a `long` shape that are run whole, and the number of cases of a kind."""
LONG_WORK = 2**23
"""Programs times elements of an `odd` shape: each program may read all, as that of an attention does."""
SAMPLED_ELEMENTS = 2**23
"""Elements of a shape of which a few rows are compared."""
JOINT_ELEMENTS = 2**22
"""Elements that the launches of a `joint` shape may touch; all such shapes together may touch three times as many."""
MOST_PADDED = 24
"""Cases of inputs in other layouts."""
TIMED_SHAPES = 12
"""Timed shapes that are judged without a GPU."""
TYPED_REGIMES = ("mixed", "randn", "integers")
TYPED_DRAWS = 6
"""Draws of randn: one rounding too many in a row of a thousand lies near the limits, now above, now below."""
GRAIN = 32
"""A number that divides a size in all shapes and is as large is what kernels need it to be a multiple of."""
EQUAL = 80
"""The value of equal sizes in an `equal` shape: more than one tile of 64, and not a multiple."""


def make_probed_cases(
    base: JudgedCase,
    inputs: list[Any],
    find_shown: Callable[[Sequence[JudgedCase]], list[JudgedCase]],
    *,
    names: Sequence[str] = (),
    domain: Mapping[str, str] | None = None,
) -> JudgedCases:
    """The case with single elements of its inputs moved within their domains, if the reference's answer shows it."""
    from kernelsearch.verify.judge import choose_probes

    left: dict[int, list[JudgedCase]] = {}
    for probe in choose_probes(inputs, base.seed, names=names, domain=domain):
        left.setdefault(probe.input, []).append(replace(base, probe=(probe.input, probe.index, probe.value)))
    kept = {number: list[JudgedCase]() for number in left}
    while turn := {n: cases[: PROBES - len(kept[n])] for n, cases in left.items() if len(kept[n]) < PROBES and cases}:
        shown = find_shown([case for cases in turn.values() for case in cases])
        for number, cases in turn.items():
            kept[number] += [case for case in cases if case in shown]
            del left[number][: len(cases)]
    return tuple(case for cases in kept.values() for case in cases)


def make_planted_cases(key: str, inputs: Sequence[Any], seed: int, most: int) -> JudgedCases:
    """Cases of a shape in which one element of each line decides, of floats and of integers, at most so many."""
    from kernelsearch.verify.domains import is_data
    from kernelsearch.verify.drawn_integers import is_drawn
    from kernelsearch.verify.planted import count_plants

    count = count_plants(inputs)
    seeds, floats = [seed - seed % count + n for n in range(min(count, most))], any(map(is_data, inputs))
    regimes = [PLANTED] * floats + [LONE] * any(map(is_drawn, inputs))
    return tuple(JudgedCase(key, regime, own, once=True) for own in seeds for regime in regimes)


def measure_rows(inputs: Iterable[Any]) -> int:
    """The length of the longest rows."""
    return max((v.shape[-1] for v in inputs if isinstance(v, torch.Tensor) and v.dim()), default=0)


def count_single(inputs: Iterable[Any]) -> int:
    """The axes with one element: a shape with one row says nothing of where rows begin."""
    return sum(v.shape.count(1) for v in inputs if isinstance(v, torch.Tensor))


def make_padded_cases(base: JudgedCase, task: Task, target: Target) -> JudgedCases:
    """The case with padded rows, of all inputs alike, and with one stride larger, of an input or of those of one shape.

    Only if the launcher passes such tensors to its kernels without copying them.
    """
    from kernelsearch.worker.launcher import standin, tensors, trace
    from kernelsearch.worker.launcher.arguments import tensors_in

    def is_passed_on(padded: str) -> bool:
        own = tuple(tensors.pad_inputs(case.inputs, case.names, padded))
        apart = {v.data_ptr() for v, was in zip(own, case.inputs) if v is not was and not v.is_contiguous()}
        launches: list[Any] = []
        taken = trace.takes(replace(case, inputs=own), launches.append)
        return taken and any(v.data_ptr() in apart for launch in launches for v in tensors_in(launch.args).values())

    with standin.pretend_gpu(target, "cpu"):
        case = task.build(base.shape, 0, "cpu")
        strides = [*tensors.list_strides(case.inputs, case.names)]
        layouts = filter(is_passed_on, (PADDED, *(strides if len(strides) > 1 else ())))
        return tuple(replace(base, padded=padded) for padded in itertools.islice(layouts, MOST_PADDED))


def runs_few(launches: tuple[Any, ...], config: Mapping[str, Any]) -> bool:
    """Whether the programs of a shape are so many that only some rows are compared."""
    programs, elements = _count_work(launches, config)
    return programs > LONG_PROGRAMS or elements > LONG_ELEMENTS


def _count_work(launches: tuple[Any, ...], config: Mapping[str, Any]) -> tuple[int, int]:
    """The programs of these launches, and the elements of all their tensors."""
    from kernelsearch.worker.launcher.arguments import tensors_in

    programs = sum(math.prod(launch.resolve_grid({**launch.args, **config})) for launch in launches)
    tensors = {id(v): v.numel() for launch in launches for v in tensors_in(launch.args).values()}
    return programs, sum(tensors.values())


def cut_cases(cases: JudgedCases, seconds: Callable[[str], float], most_s: float) -> JudgedCases:
    """The cases whose answers take at most so many seconds together, by a shape's seconds for one; at least the first.

    Each kind of values at each shape comes once before any comes again; the order stays.
    """
    kinds = Counter[tuple[str, str]]()
    turns = []
    for number, case in enumerate(cases):
        turns.append((kinds[case.shape, case.regime], number))
        kinds[case.shape, case.regime] += 1
    costs = itertools.accumulate(seconds(cases[number].shape) for _, number in sorted(turns))
    kept = {number for (_, number), s in zip(sorted(turns), costs, strict=True) if s <= most_s} | {0}
    return tuple(case for number, case in enumerate(cases) if number in kept)


# ---------------------------------------------------------------- sizes that only timed shapes have


def add_long_shapes(task: Task) -> Task:
    """The task with more test shapes, made of its timed sizes.

    Without a GPU large timed shapes do not run, and a kernel could behave differently there. It can mostly test how
    long one axis is, how many programs there are, or whether two sizes are equal. Hence these shapes, numbered from 0:
    - `long:0`: the smallest test shape with one timed size, and one with all sizes that are equal in every shape, as
      the sides of a square, in the timed shapes' dtype if no test shape has it; `long:0:1`, `long:0:2`: with half, a
      quarter of a large one, for a judge that cannot take it;
    - `odd:0`: the same with a smaller size that no block divides, as timed sizes mostly are powers of two; it is halved
      until all programs can run, because what a few of them leave unwritten is not seen;
    - `even:0`: the same again, rounded up to a multiple of what divides that size in all shapes, or of a power of two
      that divides the timed one, for kernels that need it;
    - `over:0`: the same as `odd:0`, with one element in the tail;
    - `equal:0`: the smallest test shape, where sizes that are equal in a timed shape are equal;
    - `typed:0`: the first test shape with a timed shape's dtypes and its other values that are not integers;
    - `joint:0:0`, `joint:0:1`: a timed shape itself, then with a large size halved again and again; the first that the
      judge can take is judged. `joint:1:0`, `joint:1:1`: the same with a largest size that no block divides;
      `joint:2:0`: with all new sizes so.
    It depends on the task alone: judge and evaluator get the same shapes.
    """
    if not task.test_shapes:
        return task
    small = task.params(find_smallest_shape(task))
    more = {
        "long": _make_long(task, {**small, **next(iter(_list_untested(task)), {})}),
        "odd": _make_long(task, small, _make_odd),
        "over": _make_long(task, small, _make_one_over),
        "equal": _make_equal(task, small),
        "typed": _make_typed(task),
    }
    more |= {f"joint:{i}": shapes for i, shapes in enumerate(_make_joint(task))}
    added = [(f"{name}:{i}", params) for name, shapes in more.items() for i, params in enumerate(shapes)]
    for kind in ("long", "odd", "over"):
        for i, params in enumerate(more[kind]):
            least = LONG_ELEMENTS if kind == "long" else 0
            smaller = _halve_size(task, {**small, **pick_others(params)}, params, least)
            added += [(f"{kind}:{i}:{j}", shape) for j, shape in enumerate(smaller, 1)]
    added += [(even_key(key), _round_up(task, small, params)) for key, params in added if key.startswith("odd:")]
    return replace(task, test_shapes=(*task.test_shapes, *added))


def _list_new_sizes(task: Task, small: Params) -> Iterator[tuple[str, int]]:
    """(name, value) of the timed integers beyond every tested one."""
    for _, params in task.shapes:
        yield from ((n, v) for n, v in pick_integers(params).items() if n in small and v > _find_tested(task, n))


def _find_tested(task: Task, name: str) -> int:
    """The largest value of a size among the task's own test shapes."""
    return max((pick_integers(params).get(name, 0) for key, params in task.test_shapes if not is_made(key)), default=0)


def _make_long(task: Task, small: Params, change: Callable[[int], int] = lambda value: value) -> list[Params]:
    new = dict.fromkeys(_list_new_sizes(task, small))
    rank = {(n, v): sum(m == n and w > v for m, w in new) for n, v in new}  # the largest of each name first
    sizes = [(n, change(v)) for n, v in sorted(new, key=rank.__getitem__) if change(v) > _find_tested(task, n)]
    return _drop_repeated({**small, **dict.fromkeys(ns, v)} for n, v in sizes for ns in ([n], find_tied(task, n)))


def _make_odd(value: int) -> int:
    """A sixteenth less, and odd: the tail is long in blocks of all sizes."""
    return value - value // 16 - 1 | 1


def _make_one_over(value: int) -> int:
    """One more than a power of two: the tail is one element, in all smaller blocks that are powers of two."""
    return (1 << (value - 1).bit_length() - 1) + 1 if value > 1 else value


def _halve_size(task: Task, small: Params, params: Params, least: int) -> Iterator[Params]:
    """A shape with its new size halved as long as it stays new, and has more than `least` elements."""
    name, *tied = (n for n, v in params.items() if v != small.get(n))
    while math.prod(pick_integers(params).values()) > least and params[name] // 2 > _find_tested(task, name):
        params = {**params, **dict.fromkeys((name, *tied), params[name] // 2 | params[name] & 1)}
        yield params


def _round_up(task: Task, small: Params, params: Params) -> Params:
    """An `odd` shape with its new size rounded up to a multiple of what divides that of all shapes, if that is much,
    else of the power of two that divides the timed size."""
    name, *tied = (n for n, v in params.items() if v != small.get(n))
    timed = next(v for n, v in _list_new_sizes(task, small) if n == name and v >= params[name])
    own = (pick_integers(p) for key, p in (*task.shapes, *task.test_shapes) if not is_made(key))
    step = math.gcd(*(sizes[name] for sizes in own if name in sizes))
    if step < GRAIN:
        step = min(timed & -timed, 1 << params[name].bit_length() - 1)  # no more than the size itself
    return {**params, **dict.fromkeys((name, *tied), -(-params[name] // step) * step)}


def _make_joint(task: Task) -> Iterator[list[Params]]:
    """Each timed shape with two new sizes at once, followed by ever smaller ones that also have two; the same odd, in
    the largest and in all.

    The largest size that stays new after halving is halved; if none stays new, the largest of all.
    """
    for _, params in task.shapes:
        shape, smaller = dict(params), list[Params]()
        while sum(v > _find_tested(task, n) for n, v in pick_integers(shape).items()) > 1:
            smaller.append(dict(shape))
            sizes = pick_integers(shape)
            stay_new = [n for n, v in sizes.items() if v // 2 > _find_tested(task, n)]
            largest = max(stay_new or sizes, key=shape.__getitem__)
            shape |= dict.fromkeys(find_tied(task, largest), shape[largest] // 2)
        if smaller:
            yield smaller
            odd: list[Params] = [_make_largest_odd(task, params) for params in smaller]
            yield odd
            every: list[Params] = [{**params, **_list_odd(task, params)} for params in smaller]
            if both := [params for params in every if params not in odd]:
                yield both


def _list_odd(task: Task, params: Params) -> dict[str, int]:
    """The new sizes of a shape, each made odd, that are new then too: no block divides several of them together."""
    odd = {n: _make_odd(v) for n, v in pick_integers(params).items()}
    return {n: v for n, v in odd.items() if v > _find_tested(task, n)}


def _make_largest_odd(task: Task, params: Params) -> Params:
    """A shape whose largest new size, of equal ones the last, is odd: other sizes may have to be powers of two."""
    odd = _list_odd(task, params)
    largest = max(reversed(odd), key=params.__getitem__, default="")
    return {**params, **dict.fromkeys(find_tied(task, largest), odd[largest])} if odd else params


def _make_equal(task: Task, small: Params) -> list[Params]:
    shapes: list[Params] = []
    for _, params in task.shapes:
        sizes = {n: v for n, v in pick_integers(params).items() if n in small and v > EQUAL}
        groups = ([n for n, v in sizes.items() if v == value] for value in sorted(set(sizes.values())))
        shapes += ({**small, **dict.fromkeys(names, EQUAL)} for names in groups if len(names) > 1)
    return _drop_repeated(shapes)


def _make_typed(task: Task) -> list[Params]:
    return [{**task.test_shapes[0][1], **kind} for kind in _list_untested(task)]


def _list_untested(task: Task) -> list[Params]:
    """The timed shapes' dtypes and other values that are not integers, of which no test shape has all."""
    tested = [pick_others(params) for _, params in task.test_shapes]
    kinds = _drop_repeated(pick_others(params) for _, params in task.shapes)
    return [kind for kind in kinds if kind not in tested]


def _drop_repeated(shapes: Iterable[Params]) -> list[Params]:
    """The shapes in order, each once."""
    every = list(shapes)
    return [shape for i, shape in enumerate(every) if shape not in every[:i]]


def pick_others(params: Params) -> Params:
    """What is no size: dtypes, flags, words, floats."""
    return {n: v for n, v in params.items() if type(v) is not int}


def list_typed(task: Task, launches_at: Callable[[str], tuple[Any, ...]]) -> Iterator[str]:
    """The shapes with a timed shape's dtypes and flags, if the launcher takes them."""
    for key in (key for key, _ in task.test_shapes if key.startswith("typed:")):
        with suppress(TaskError):
            launches_at(key)
            yield key


def make_typed_cases(keys: Iterable[str], seed: int) -> list[JudgedCase]:
    """Cases of these shapes."""
    draws = [*((r, seed) for r in TYPED_REGIMES), *(("randn", seed + 7919 * i) for i in range(1, TYPED_DRAWS))]
    return [JudgedCase(key, regime, number) for key in keys for regime, number in draws]


def make_long_cases(
    task: Task,
    seed: int,
    launches_at: Callable[[str], tuple[Any, ...]],
    config: Mapping[str, Any],
    is_taken: Callable[[str], bool] = lambda key: True,
    on_gpu: bool = False,
    fixed: int = 0,
) -> list[JudgedCase]:
    """A case for each made shape that can be afforded here; launches_at returns the seed's launches at a shape.

    Sizes may not go together: none is made of a shape that the launcher refuses, or the reference (not is_taken).
    If the seed has many programs, a few are sampled. An `even` shape is for a launcher that refuses the `odd` one.
    On a GPU, where timed shapes run too, there are fewer, and all run whole. So many elements as `fixed` do not
    count: those of the smallest test shape, which is judged anyway, as a table may be as large at all.
    """
    cases: list[JudgedCase] = []
    refused: set[str] = set()
    joint, most = 0, LONG_SHAPES // 3 if on_gpu else LONG_SHAPES
    for key, _ in task.test_shapes:
        kind = key.partition(":")[0]
        if not is_made(key) or kind == "typed" or sum(c.shape.startswith(kind) for c in cases) >= most:
            continue
        group = ":".join(key.split(":")[:2])  # a shape, then smaller ones in case that it is too large
        if any(f"{c.shape}:".startswith(f"{group}:") for c in cases) or (kind == "even" and key not in refused):
            continue
        try:
            programs, elements = _count_work(launches_at(key), config)
            elements -= fixed
        except (TaskError, *USER_ERRORS):  # a launcher or a grid that does not take such sizes
            refused.add(even_key(key))
            continue
        if kind == "joint" and (elements > JOINT_ELEMENTS or joint + elements > 3 * JOINT_ELEMENTS):
            continue
        alone = kind in ("equal", "odd", "even", "over")
        whole = programs <= (EQUAL if alone else LONG_PROGRAMS) and elements <= LONG_ELEMENTS
        whole = whole and (not alone or programs * elements <= LONG_WORK)
        whole = elements <= LONG_ELEMENTS if on_gpu else whole
        if whole or (not on_gpu and not alone and elements <= SAMPLED_ELEMENTS):
            if not is_taken(key):
                refused.add(even_key(key))
                continue
            joint += elements if kind == "joint" else 0
            cases.append(JudgedCase(key, "randn", seed, sampled=not whole))
    return cases


def make_timed_cases(
    task: Task,
    seed: int,
    launches_at: Callable[[str], tuple[Any, ...]],
    config: Mapping[str, Any],
    is_taken: Callable[[str], bool],
    fixed: int = 0,
) -> list[JudgedCase]:
    """A case for each timed shape that can be afforded without a GPU, the smallest first; see `make_long_cases`.

    All programs run; of the results of larger shapes some rows are compared.
    """
    tested = [params for key, params in task.test_shapes if not is_made(key)]
    left, sizes = 3 * JOINT_ELEMENTS, list[tuple[int, str]]()
    for key, params in task.shapes:
        with suppress(TaskError, *USER_ERRORS):
            if params not in tested:
                sizes.append((_count_work(launches_at(key), config)[1] - fixed, key))
    cases: list[JudgedCase] = []
    for elements, key in sorted(sizes)[:TIMED_SHAPES]:
        left -= elements
        if elements > JOINT_ELEMENTS or left < 0:
            break
        if is_taken(key):
            cases.append(JudgedCase(key, "randn", seed, sampled=elements > LONG_ELEMENTS))
    return cases
