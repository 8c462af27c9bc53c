"""Sizes that are drawn in secret between those of a task, and sizes that are large together."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernelsearch.core.errors import TaskError
from kernelsearch.core.timed_shapes import DRAWN
from kernelsearch.tasks.task import Task
from kernelsearch.worker.messages.jobs import SIZES

Params = Mapping[str, Any]

DRAWN_ELEMENTS = 2**17
"""Elements of the inputs of a shape with secret sizes where there is no GPU."""
EQUAL_PAIRS = 2
"""Shapes with secret sizes of which two are equal."""
SHARE_OF_EMPTY = 0.2
"""Of lengths that may be 0, the share that is."""
LEAST_LENGTH = 16
"""The largest number of a list of lengths: smaller ones may be axes."""
DRAWS = 8
"""Attempts to draw a shape that the task takes."""


def draw_shapes(
    task: Task,
    seed: int,
    number: int,
    count: Callable[[str], int],
    most: int,
    is_taken: Callable[[str], bool],
    apart: bool = False,
) -> list[str]:
    """The keys of shapes with secret sizes inside of the range that the task's own shapes span.

    Each size is log-uniform between its least and its largest value: a secret start, then steps of the golden ratio, so
    that few shapes leave no wide gap; sizes that are equal in all shapes stay equal. By turns all of a shape are
    multiples of 16, one more than multiples of a large power of 2 (with apart one off a multiple of 16), primes or
    even, as Triton specialises kernels by that; with apart each size is a multiple of 16 in half of the shapes,
    whatever the others are. In a few shapes more, two sizes that may be are equal. All but one are halved until the
    inputs have at most `most` elements by count. What is not taken is drawn again: as multiples of what divides a size
    in all of the task's shapes, at last with those sizes as powers of two, or as they are, that are so in all of them.
    """
    rng = random.Random(f"{seed}/sizes")
    own, names = _list_varying(task)
    kinds, starts = rng.sample(_KINDS, len(_KINDS)), {name: rng.random() for name in names}
    kinds = [_add_one if kind is _step_beside and not apart else kind for kind in kinds]
    found, others = list[str](), [k for k in kinds if k is not _KINDS[0]]
    smallest, largest = ({n: end(p[n] for p in own) for n in names} for end in (min, max))
    multiples = [(a, b) for a, b in itertools.permutations(names, 2) if b not in find_tied(task, a)]
    multiples = [(a, b) for a, b in multiples if all(p[a] % p[b] == 0 for p in own)]
    divisors = {n: math.gcd(*(p[n] for p in own)) for n in names}
    pairs = [(a, b) for a, b in itertools.combinations(names, 2) if b not in find_tied(task, a)]
    pairs = [(a, b) for a, b in pairs if max(smallest[a], smallest[b]) <= min(largest[a], largest[b])]
    pairs = rng.sample(pairs, 0 if apart else min(EQUAL_PAIRS, len(pairs)))
    for shape in range(number + len(pairs) if names else 0):
        base, params = task.shapes[shape % len(task.shapes)]
        for attempt in range(DRAWS):
            sizes: dict[str, int] = {}
            for axis, name in enumerate(names, 1):
                low, high = smallest[name], largest[name]
                place = (starts[name] + (shape + attempt * number) * axis * GOLDEN) % 1.0
                size = round(low * (high / low) ** place)
                kind = kinds[shape % len(kinds)]
                if apart:
                    kind = _KINDS[0] if shape >> (axis - 1) % 3 & 1 else others[shape // 2 % len(others)]
                size = kind(size) if size > 32 else size
                if attempt >= DRAWS // 4:
                    size = max(1, size // divisors[name]) * divisors[name]
                if attempt >= DRAWS // 2 and all(p[name] & (p[name] - 1) == 0 for p in own):
                    size = params[name] if attempt >= DRAWS - 2 else 1 << size.bit_length() - 1
                sizes |= dict.fromkeys({*find_tied(task, name)} & {*names}, min(max(size, low), high))
            if attempt >= DRAWS // 4:
                sizes |= _keep_multiples(sizes, multiples)
            for a, b in pairs[shape - number :][:1] if shape >= number else ():
                size = min(max(sizes[a], smallest[b]), largest[b])
                sizes |= dict.fromkeys({*find_tied(task, a), *find_tied(task, b)} & {*names}, size)
            key = _fit_drawn(base, sizes, smallest, count, most, kept=names[shape % len(names)])
            if key and key not in found and is_taken(key):
                found.append(key)
                break
    return found


def draw_lists(
    task: Task, seed: int, number: int, count: Callable[[str], int], most: int, is_taken: Callable[[str], bool]
) -> list[str]:
    """The keys of shapes with secret lengths in the task's lists of them, as those of sequences that lie together.

    A list has at most as many as the task's, each log-uniform between the least and the largest that is at its place in
    any shape (of pairs `(queries, keys)` there are two places). Half of them, and of the differences where the second
    of two is never less, lie at multiples of 16 or beside them.
    """
    rng, found = random.Random(f"{seed}/lists"), list[str]()
    own = [p for key, p in (*task.shapes, *task.test_shapes) if not is_made(key)]
    names = [n for n, v in own[0].items() if max(_list_leaves(v), default=0) >= LEAST_LENGTH]
    names = [n for n in names if all(_list_leaves(p.get(n)) for p in own)]
    for shape in range(number if names else 0):
        for _ in range(DRAWS):
            base, params = (*task.shapes, *task.test_shapes)[shape % len(own)]
            lists = {n: _draw_list([p[n] for p in own], params[n], rng) for n in names}
            key = _name_drawn(base, {n: repr(v).replace(" ", "") for n, v in lists.items()})
            if key not in found and count(key) <= most and is_taken(key):
                found.append(key)
                break
    return found


def _list_leaves(value: Any) -> list[int]:
    """The numbers of a list of lengths, or of tuples of them; none of another value."""
    inner = value if isinstance(value, (list, tuple)) and value else ()
    leaves = [leaf for item in inner for leaf in (item if isinstance(item, (list, tuple)) else [item])]
    return leaves if all(type(leaf) is int and leaf >= 0 for leaf in leaves) else []


def _draw_list(known: Sequence[Any], base: Any, rng: random.Random) -> Any:
    """Other lengths like these lists', as many as base's or fewer."""
    rows = [item if isinstance(item, (list, tuple)) else [item] for value in known for item in value]
    places = [*zip(*rows)] if len({*map(len, rows)}) == 1 else [tuple(itertools.chain(*rows))] * max(map(len, rows))
    rises = len(places) == 2 and all(row[0] <= row[-1] for row in rows)

    def draw(place: int) -> int:
        least, most = min(places[place]), max(1, *places[place])
        low = max(1, least)
        return near(round(low * (most / low) ** rng.random())) if least or rng.random() > SHARE_OF_EMPTY else 0

    def near(length: int) -> int:
        """Half of them at a multiple of 16 or beside it, where blocks end."""
        return max(1, length // 16 * 16 + rng.choice((-1, 0, 1))) if length > 15 and rng.random() < 0.5 else length

    drawn = list[Any]()
    for item in base[: rng.randint(1, len(base))]:
        one = [draw(place) for place in range(len(item) if isinstance(item, (list, tuple)) else 1)]
        one[1:] = [one[0] + near(max(0, one[1] - one[0]))] if rises else one[1:]
        drawn.append(type(item)(one) if isinstance(item, (list, tuple)) else one[0])
    return type(base)(drawn)


def _keep_multiples(sizes: Mapping[str, int], multiples: Sequence[tuple[str, str]]) -> dict[str, int]:
    """The sizes of which the first is a multiple of the second, made so again; a first one grows to the second."""
    kept = dict(sizes)
    for a, b in sorted(multiples, key=lambda pair: kept[pair[1]]):
        kept[a] = max(1, kept[a] // kept[b]) * kept[b]
    return kept


def draw_large(task: Task, seed: int, number: int, is_taken: Callable[[str], bool]) -> list[str]:
    """The keys of shapes in which all sizes are large together: each lies between half of a timed one and that, and is
    not a multiple of 16 where such are taken.
    """
    rng = random.Random(f"{seed}/large")
    own, names = _list_varying(task)
    found = list[str]()
    for _ in range(number if names else 0):
        for attempt in range(DRAWS):
            base, params = rng.choice(task.shapes)
            sizes: dict[str, int] = {}
            for name in (n for n in names if n not in sizes):
                high = params[name]
                low = max(min(p[name] for p in own), high // 2)
                size = round(low * (high / low) ** rng.random())
                kind = _KINDS[0] if attempt >= DRAWS // 2 else rng.choice(_KINDS[1:])
                size = min(max(kind(size) if size > 32 else size, low), high)
                sizes |= dict.fromkeys({*find_tied(task, name)} & {*names}, size)
            key = _name_drawn(base, sizes)
            if key not in found and is_taken(key):
                found.append(key)
                break
    return found


def _list_varying(task: Task) -> tuple[list[Params], list[str]]:
    """(The task's own shapes, the names of sizes that are not the same in all of them)."""
    own = [p for key, p in (*task.shapes, *task.test_shapes) if not is_made(key)]
    names = [n for n, v in pick_integers(own[0]).items() if all(type(p.get(n)) is int and p[n] > 0 for p in own)]
    return own, [n for n in names if len({p[n] for p in own}) > 1]


def _name_drawn(base: str, sizes: Mapping[str, Any]) -> str:
    return f"{DRAWN}{base}:" + " ".join(f"{n}={v}" for n, v in sizes.items())


def _fit_drawn(
    base: str, sizes: dict[str, int], smallest: dict[str, int], count: Callable[[str], int], most: int, kept: str
) -> str:
    """The key of a drawn shape that is not too large, the size `kept` as drawn if it can be; empty if none is."""
    while True:
        key = _name_drawn(base, sizes)
        try:
            if count(key) <= most:
                return key
        except TaskError:
            return ""
        others = [n for n, v in sizes.items() if v > smallest[n] and v != sizes[kept]]
        largest = max(others or [kept], key=sizes.__getitem__)
        half, step = sizes[largest] // 2, sizes[largest] & -sizes[largest]  # at least 16, it still divides the half
        half = half | sizes[largest] & 1 if step < 16 or half < step else half // step * step
        smaller = max(half, smallest[largest])
        if smaller >= sizes[largest]:
            return ""
        sizes = {n: smaller if v == sizes[largest] else v for n, v in sizes.items()}


def _make_prime(size: int) -> int:
    """The largest prime that is not above a size of at least 2."""
    return next(n for n in range(size, 1, -1) if all(n % d for d in range(2, math.isqrt(n) + 1)))


def _step_beside(size: int) -> int:
    """One more or less than a multiple of 16."""
    return size // 16 * 16 + (1 if size % 2 else -1)


def _add_one(size: int) -> int:
    """One more than a multiple of the largest power of 2 that a size has twice at least: alone in any block."""
    step = 1 << max(4, size.bit_length() - 2)
    return size // step * step + 1


GOLDEN = (math.sqrt(5) - 1) / 2
_KINDS: tuple[Callable[[int], int], ...] = (
    lambda size: size // 16 * 16,
    _step_beside,
    _make_prime,
    lambda size: size // 16 * 16 + 2 * (size % 7 + 1),
)


def is_made(key: str) -> bool:
    """True if `add_long_shapes` made this shape."""
    return key.partition(":")[0] in (*SIZES, "typed")


def find_tied(task: Task, name: str) -> list[str]:
    """The names of sizes that are equal to a size in every shape, its own among them."""
    own = [params for key, params in (*task.shapes, *task.test_shapes) if not is_made(key)]
    return [n for n in {**pick_integers(own[0]), name: 0} if all(p.get(n) == p.get(name) for p in own)]


def pick_integers(params: Params) -> dict[str, int]:
    """The integers that can be sizes."""
    return {n: v for n, v in params.items() if type(v) is int and v > 0}
