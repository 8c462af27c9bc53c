"""One device launch in numbers: the work of its binary with these arguments on this target.

Everything follows from the binary and the launch; counts of sampled programs, where there are any, correct it, since
they include masks. Times are those of one resource alone, at the target's rates.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from kernelsearch.compile.code import Access, Code, Dot, Loop, Scalar
from kernelsearch.core.types import ArgFact, TensorFact
from kernelsearch.kernel.targets import Target
from kernelsearch.measure.static_model import trips
from kernelsearch.measure.static_model.counters import Counters
from kernelsearch.measure.static_model.counts import LaunchCounts
from kernelsearch.measure.static_model.occupancy import BinaryResources, compute_programs_per_sm

DRAM_LATENCY_NS = 700.0
"""Round number for a load that misses L2 on Hopper; microbenchmarks in the literature give 500 to 800 ns."""
SECTOR = 32
LANES_PER_CLOCK = 128
SPECIAL_PER_CLOCK = 16
SHARED_BYTES_PER_CLOCK = 128
DIVIDE = 8
"""Instructions of a float32 division, without its reciprocal."""
UNROLLED, UNROLLED_ELEMENTS = 4, 16
"""ptxas unrolls a loop up to four times and starts the loads of these iterations together, if a thread loads fewer than
16 elements per iteration and no barrier is between them (SASS of sm_90, and times on an H100:
studies/hints/findings.md)."""
DATA_LENGTH, CHANGED = "a loop's length depends on data", "the compiler made other loops"
BLIND = frozenset({DATA_LENGTH, CHANGED})
"""What the model cannot see: such an estimate leaves no candidate out and puts none first."""
WIDTHS = {"i1": 1, "u1": 1, "i8": 1, "u8": 1, "i16": 2, "fp16": 2, "bf16": 2, "i32": 4, "fp32": 4, "i64": 8, "fp64": 8}


@dataclass(frozen=True)
class DeviceLaunch:
    """A launch as data: its binary (machine and code), grid, arguments by parameter name, options, target.

    counts are from sampled programs, counters from the hardware; both may be missing.
    """

    function: str
    machine: BinaryResources
    code: Code
    grid: tuple[int, int, int]
    args: Mapping[str, ArgFact]
    target: Target
    options: Mapping[str, object] = field(default_factory=dict)
    counts: LaunchCounts | None = None
    counters: Counters | None = None

    # ------------------------------------------------------------ sizes

    @cached_property
    def programs(self) -> int:
        return math.prod(self.grid)

    @cached_property
    def occupancy(self) -> int:
        """Programs that an SM holds at once."""
        return compute_programs_per_sm(self.machine, self.target)

    @cached_property
    def resident(self) -> int:
        """Programs on the fullest SM at once."""
        return min(self.occupancy, -(-self.programs // self.target.num_sms))

    def evaluate(self, value: Scalar) -> int | None:
        """The value of an expression in the middle program, in the first turn of every loop."""
        middle: dict[str, Callable[[Any], int | None]]
        middle = {"arg": self._number_of, "pid": lambda a: self.grid[a] // 2, "grid": lambda a: self.grid[a]}
        return trips.evaluate(value, lambda name: middle.get(name[0], lambda depth: 0)(name[1]))

    def _number_of(self, name: str) -> int | None:
        arg = self.args.get(name)
        return int(arg) if isinstance(arg, (bool, int)) else None

    def trips_of(self, loops: Iterable[Loop]) -> float:
        """How often a program runs the body inside these loops, in the mean.

        An only loop of unknown length has what sampled programs counted; others count once.
        """
        nest = tuple(loops)
        known = self._count_trips(nest)
        if known is None and self.counts is not None and {b.loops for b in self.code.blocks} <= {(), nest[:1]}:
            return self.counts.iterations
        if known is None:
            known = math.prod(t for n in range(len(nest)) if (t := self._count_trips(nest[n : n + 1])) is not None)
        return known

    def _count_trips(self, nest: tuple[Loop, ...]) -> float | None:
        if nest not in self._trips:
            self._trips[nest] = trips.count_trips(nest, self.grid, self._number_of)
        return self._trips[nest]

    @cached_property
    def extrapolates(self) -> tuple[str, ...]:
        """What no kernel has that the model was fitted to, in words; its times are then less sure than its error says.

        Those kernels are in `studies/spaces/tasks/`: each loop stands alone, and the launch gives its length.
        """
        nests = {block.loops for block in self.code.blocks}
        unknown = any(self._count_trips(nest) is None for nest in nests)
        nested = any(len(nest) > 1 for nest in nests)
        guessed = any(block.guessed for block in self.code.blocks)
        found = {DATA_LENGTH: unknown, "a loop inside a loop": nested, CHANGED: guessed}
        return tuple(words for words, is_there in found.items() if is_there)

    @cached_property
    def _trips(self) -> dict[tuple[Loop, ...], float | None]:
        return {}

    def tensor_bytes_of(self, name: str) -> float:
        """The size of a tensor argument; infinite if unknown."""
        arg = self.args.get(name)
        return float(math.prod(arg.shape) * WIDTHS.get(arg.dtype, 1)) if isinstance(arg, TensorFact) else math.inf

    # ------------------------------------------------------------ memory

    def tile_bytes_of(self, access: Access) -> int:
        return access.width * math.prod(access.shape)

    def moved_bytes_of(self, access: Access) -> float:
        """Bytes that all programs move by one access; an excess over the whole tensor is its masked edge."""
        total = self.tile_bytes_of(access) * self.trips_of(access.loops) * self.programs
        whole = self.tensor_bytes_of(access.base)
        return whole if whole < total < 2 * whole else total

    @cached_property
    def main_accesses(self) -> tuple[Access, ...]:
        """The accesses of tiles (at least 32 elements), without those that move little."""
        tiles = [a for a in self.code.accesses if math.prod(a.shape) >= 32 and a.kind != "atomic"]
        most = max(map(self.moved_bytes_of, tiles), default=0.0)
        return tuple(a for a in tiles if self.moved_bytes_of(a) >= 0.05 * most)

    @property
    def main_loads(self) -> tuple[Access, ...]:
        return tuple(a for a in self.main_accesses if a.kind == "load")

    @cached_property
    def traffic(self) -> float:
        """Bytes that the programs load and store."""
        if self.counts is not None:
            return self.counts.load_bytes + self.counts.store_bytes
        return sum(map(self.moved_bytes_of, self.code.accesses))

    @cached_property
    def footprint(self) -> float:
        """Distinct bytes that must cross the memory bus."""
        if self.counts is not None and self.counts.footprint_bytes:
            return self.counts.footprint_bytes
        moved: dict[tuple[str, bool], float] = defaultdict(int)
        for a in self.code.accesses:
            moved[a.base, a.kind == "load"] += self.moved_bytes_of(a)
        return sum(min(n, self.tensor_bytes_of(base)) for (base, _), n in moved.items())

    def sector_ratio_of(self, access: Access) -> float:
        """Bytes of the 32-byte sectors that a tile touches, over the bytes that it uses (1 at best)."""
        strides = [number for s in access.strides if (number := self.evaluate(s)) is not None]
        if len(strides) < len(access.strides) or not access.shape:
            return 1.0
        steps = ((abs(s) * access.width, n) for s, n in zip(strides, access.shape, strict=True))
        axes = sorted((stride, n) for stride, n in steps if stride and n > 1)
        run, rows = access.width, 1  # run: bytes next to each other
        for stride, n in axes:
            if stride <= run and rows == 1:
                run = stride * (n - 1) + run
            elif stride < SECTOR and rows == 1:
                return max(1.0, stride / access.width)
            else:
                rows *= n
        used = access.width * math.prod(n for _, n in axes)
        return max(1.0, -(-run // SECTOR) * SECTOR * rows / used)

    @cached_property
    def bytes_in_flight(self) -> float:
        """Bytes of loads that an SM has in flight: those of one iteration of the busiest loop, times stages in use."""
        bodies: dict[tuple[Loop, ...], int] = defaultdict(int)
        moved: dict[tuple[Loop, ...], float] = defaultdict(int)
        for a in self.main_loads:
            bodies[a.loops] += self.tile_bytes_of(a)
            moved[a.loops] += self.moved_bytes_of(a)
        if not bodies:
            return math.inf
        body = max(moved, key=lambda loops: moved[loops])
        return float(bodies[body]) * min(self.iterations_ahead(body), self.trips_of(body)) * self.resident

    def iterations_ahead(self, loops: tuple[Loop, ...]) -> int:
        """The number of iterations whose loads are in flight together: pipelined, unrolled by ptxas, or one."""
        if not loops:
            return 1
        if self.is_pipelined:
            return max(1, self.machine.num_stages - 1)
        if self.is_synchronised(loops):
            return 1
        elements = sum(math.prod(a.shape) for a in self.main_loads if a.loops == loops)
        each = max(1, elements // (self.target.warp_size * self.machine.num_warps))
        return max(1, min(UNROLLED, UNROLLED_ELEMENTS // each))

    def is_synchronised(self, loops: tuple[Loop, ...]) -> bool:
        """Whether the warps of a program wait for each other in every iteration."""
        inside = (*self.code.reduced, *(e.loops for e in self.code.exchanges), *(d.loops for d in self.code.dots))
        return self.machine.num_warps > 1 and any(one[: len(loops)] == loops for one in inside)

    @cached_property
    def is_pipelined(self) -> bool:
        return bool(self.machine.mix["cp_async"] or self.machine.mix["tma"])

    @cached_property
    def bytes_needed_in_flight(self) -> float:
        """Bytes that an SM must have in flight to use its share of the bandwidth (Little's law)."""
        return DRAM_LATENCY_NS * self.target.bandwidth_gbps / self.target.num_sms

    # ------------------------------------------------------------ work

    @cached_property
    def flops(self) -> float:
        """Floating operations of the matrix products."""
        if self.counts is not None and self.counts.flops_dot:
            return sum(self.counts.flops_dot.values())
        return sum(2.0 * d.m * d.n * d.k * self.trips_of(d.loops) for d in self.code.dots) * self.programs

    @property
    def has_matrix_instructions(self) -> bool:
        return bool(self.machine.mix["wgmma"] or self.machine.mix["mma"])

    def rate_tflops(self, dots: Iterable[Dot]) -> float:
        """The tensor cores' rate for the operands of these products."""
        kinds = {d.dtype for d in dots if not d.widened}
        return self.target.tf32_tflops if kinds == {"f32"} else self.target.tensor_tflops

    def _count_work(self, kind: str) -> float:
        return sum(w.elements * self.trips_of(w.loops) for w in self.code.work if w.kind == kind) * self.programs

    # ------------------------------------------------------------ times in microseconds, each resource alone

    @cached_property
    def dram_us(self) -> float:
        return self.footprint / (self.target.bandwidth_gbps * 1e3)

    @cached_property
    def l2_us(self) -> float:
        return self.traffic / (self.target.l2_bandwidth_gbps * 1e3)

    @cached_property
    def tensor_us(self) -> float:
        """The time of the matrix products at the tensor cores' rate."""
        return self.flops / (self.rate_tflops(self.code.dots) * 1e6)

    @cached_property
    def issue_us(self) -> float:
        lanes = self.counts.elements if self.counts is not None else self._count_work("float")
        return (lanes + DIVIDE * self._count_work("divide")) / self._lanes_per_us(LANES_PER_CLOCK)

    @cached_property
    def special_us(self) -> float:
        return (self._count_work("special") + self._count_work("divide")) / self._lanes_per_us(SPECIAL_PER_CLOCK)

    def shared_memory_us(self, conflicts: bool) -> float:
        turns = ((e.ways if conflicts else 1.0, e) for e in self.code.exchanges)
        passes = sum(ways * e.size_bytes * self.trips_of(e.loops) for ways, e in turns)
        return passes * self.programs / self._lanes_per_us(SHARED_BYTES_PER_CLOCK)

    @cached_property
    def chain_us(self) -> float:
        """The time of the dependent loads of one program, times the rounds of programs."""
        chains = (self.trips_of(a.loops) / self.iterations_ahead(a.loops) for a in self.main_loads)
        rounds = max(1, -(-self.programs // (self.target.num_sms * self.occupancy)))
        return rounds * max([1.0, *chains]) * DRAM_LATENCY_NS / 1e3

    @cached_property
    def roofline_us(self) -> float:
        """The larger time of memory traffic and matrix products, which cannot be avoided."""
        return max(self.dram_us, self.tensor_us)

    @cached_property
    def expected_us(self) -> float:
        """The time of the launch without faults and without its start."""
        return max(self.roofline_us, self.l2_us, self.issue_us, self.special_us, self.shared_memory_us(False))

    def _lanes_per_us(self, per_clock: float) -> float:
        """Lanes (or bytes) per microsecond on the SMs that have programs."""
        busy = min(self.target.num_sms, self.programs)
        return per_clock * busy * self.target.clock_ghz * 1e3
