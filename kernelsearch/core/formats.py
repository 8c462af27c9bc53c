"""Numbers as text: times with a unit, speed-ups with their evidence, configs in one line, what a verdict covers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kernelsearch.core.types import LAUNCH_OPTIONS, Config, Hint, is_gain

# Characters on which `str.splitlines` breaks a line but Python's tokenizer does not, other control characters, and
# those that show a text in another order than it is read.
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


def make_printable(text: str) -> str:
    """A text that may come from anybody, without what would steer a terminal."""
    return UNSEEN.sub("", _ESCAPE.sub("", text))


def format_time(us: float) -> str:
    """A time in the unit that needs no exponent: `8.21 us`, `1.310 ms`, `2.4 s`."""
    if us < 1000:
        return f"{us:.3g} us" if us < 100 else f"{us:.1f} us"
    if us < 1e6:
        return f"{us / 1000:.4g} ms"
    return f"{us / 1e6:.3g} s"


def format_seed(configs: int = 0) -> str:
    """`the seed`, or for an autotuned one with that many configs `the seed at the best of its 12 configs`."""
    return f"the seed at the best of its {configs} configs" if configs else "the seed"


def format_speedup(score: float, evidence: str, configs: int = 0) -> str:
    """`1.84x the seed (estimated)`, from a score, which is time over the seed's time; configs: see `format_seed`."""
    return f"{format_ratio(1 / score)}x {format_seed(configs)} ({evidence})"


def format_ratio(speedup: float) -> str:
    """`1.84`; with a third digit, cut, where two would make a gain of what is none (`is_gain`): `1.007`."""
    rounded = f"{speedup:.2f}"
    return rounded if is_gain(speedup) or not is_gain(float(rounded)) else f"{math.floor(1000 * speedup) / 1000:.3f}"


def format_gain(gain: float | None) -> str:
    """`1.46x`, as `format_ratio` has it; `-` if it is not known."""
    return f"{format_ratio(gain)}x" if gain else "-"


def format_config(values: Config) -> str:
    """`BLOCK=1024 num_warps=4`: constexprs in capitals first, as they are written in a kernel."""
    names = sorted(values, key=lambda n: (n.rpartition(".")[2][:1].islower(), n))
    return " ".join(f"{name}={values[name]}" for name in names)


def format_triton_config(values: Config) -> str:
    """`triton.Config({"BLOCK": 1024}, num_warps=4)`, to be pasted; of one function's values, in their order."""
    constants = ", ".join(f'"{name}": {value!r}' for name, value in values.items() if name not in LAUNCH_OPTIONS)
    options = "".join(f", {name}={value!r}" for name, value in values.items() if name in LAUNCH_OPTIONS)
    return f"triton.Config({{{constants}}}{options})"


def shorten_rows(rows: Sequence[str], most: int = 12) -> list[str]:
    """The rows, which go from the worst to the best; of many the ends and the middle, with how many are left out."""
    if len(rows) <= most:
        return list(rows)
    ends, middle = most // 3, len(rows) // 2
    out = f"    ... {{}} of {len(rows)} shapes between ..."
    between = out.format(middle - ends), out.format(len(rows) - ends - middle - 1)
    return [*rows[:ends], between[0], rows[middle], between[1], *rows[-ends:]]


def format_count(number: int, thing: str) -> str:
    """`1 trial`, `2 trials`."""
    return f"{number} {thing}" if number == 1 else f"{number:,} {thing}s"


def format_origin(edit: str, proposer: str | None) -> str:
    """What made a kernel: "exp2 by edits", "kernel:gpt by gpt"; a file that was given is not the proposer's work."""
    author = edit.partition(":")[2]
    given = author.endswith(".py") and author not in (proposer or "")  # else it is the name of a program that proposes
    return f"the kernel in {author}" if given else f"{edit} by {proposer or 'a proposer'}"


def format_kernels(number: int, accepted: int) -> str:
    """`14 kernels`, or `14 kernels (1 never accepted)`."""
    rejected = f" ({number - accepted} never accepted)" if accepted < number else ""
    return f"{format_count(number, 'kernel')}{rejected}"


def format_duration(seconds: float) -> str:
    """`0:42`, `12:05` or `1:02:03`."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


def format_bytes(size: float) -> str:
    """`96 bytes`, `16.4 kB`, `1.05 GB`."""
    for unit, one in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= one:
            return f"{size / one:.3g} {unit}"
    return f"{size:.3g} bytes"


def format_advice(hint: Hint, edits: bool = True) -> str:
    """A hint's advice: `edit online: ...`, `num_warps: ...` or `by hand: ...`; edits says whether to name edits."""
    word, _, rest = hint.suggestion.partition(": ")
    if word == "none":
        return f"by hand: {rest}" if edits else rest
    if not rest or word in LAUNCH_OPTIONS or word == "tile size":
        return hint.suggestion
    return f"edit {hint.suggestion}" if edits else rest


def explain_hint(hint: Hint, edits: bool = True) -> tuple[str, str, str]:
    """A hint in three texts: its rule with the gain to expect, why, and the change to make."""
    head = f"{hint.name} ({hint.bottleneck})" if hint.name else hint.bottleneck
    if hint.lost:
        head += f": up to {1 / (1 - min(hint.lost, 0.99)):.2f}x faster (an estimate), if {hint.assuming}"
    why = hint.why or ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in hint.evidence.items())
    return head, why, format_advice(hint, edits)


def shorten_reason(reason: str) -> str:
    """A verdict's reason in one line: of a compiler's listing its last line, which says what is wrong."""
    lines = [" ".join(line.split()) for line in reason.splitlines() if line.strip()]
    return lines[-1] if _LISTING.match(reason) and lines else " ".join(lines)


_LISTING = re.compile(r"\s*at \d+:\d+:\n")


def blank_numbers(text: str) -> str:
    """The text with 0 for every number: equal for reasons of one kind."""
    return _NUMBERS.sub("0", " ".join(text.split()))


_NUMBERS = re.compile(r"\d+(?:\.\d+)?")


def format_verdict(word: str) -> str:
    """A verdict's word without its `reject-`, for narrow columns."""
    return word.removeprefix("reject-")


def format_interval(ratio: Mapping[str, float]) -> str:
    """`1.420x [1.410, 1.430]`: a speed-up with its interval."""
    return f"{ratio['ratio']:.3f}x [{ratio['low']:.3f}, {ratio['high']:.3f}]"


LEFT_OUT = "it is left out"
"""The end of a note on a shape that is too large."""
CLAIMS, BETWEEN = "claims", "sizes between those of the shapes"
"""The field of a verdict's detail with judged numbers by an input's name, and the name there of the claim of sizes,
which is made only where the task's own kernel is right at all that were drawn."""
FAILED = "failed"
"""The field of a verdict's detail with how the task's own kernel fails at made sizes: `shape`, `sizes`, `verdict`,
`how` and `reason` of each, where it is wrong first."""

Claims = Mapping[str, Sequence[Any]]
RANGES: Claims = {BETWEEN: [True]}


def describe_failures(failed: Sequence[Mapping[str, str]]) -> str:
    """`is wrong at n=257 and 2 other sizes (n=129, n=4097): 1 of 257 elements ...`; of no failures empty."""
    if not failed:
        return ""
    first, *others = failed
    sizes = f" ({', '.join(f['sizes'] for f in others)})" if others else ""
    more = f" and {format_count(len(others), 'other size')}{sizes}" if others else ""
    return f"{first['how']} at {first['sizes']}{more}: {first['reason']}"


def make_claims(judged: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    """The judged values by name; of floats the least and the largest, as a pair."""
    values: dict[str, list[Any]] = {}
    for name, value in judged:
        values[name] = sorted({*values.get(name, ()), value})
    return {name: [[own[0], own[-1]]] if type(own[0]) is float else own for name, own in values.items()}


def list_spans(sizes: Iterable[int], claims: Claims) -> tuple[tuple[int, int], ...]:
    """The claimed sizes of an axis as (least, largest), given those in the task's shapes; neighbours are one span."""
    spans: list[tuple[int, int]] = []
    for size in sorted({*sizes}):
        joined = spans and (claims.get(BETWEEN) == [True] or size == spans[-1][1] + 1)
        spans.append((spans.pop()[0] if joined else size, size))
    return tuple(spans)


def spell_values(values: Sequence[Any], to: str = " to ") -> str:
    pairs = (v if isinstance(v, (tuple, list)) else (v,) for v in values)
    return " or ".join(to.join(map(repr, dict.fromkeys(pair))) for pair in pairs)
