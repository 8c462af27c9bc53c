"""Autotune: every config of the seed's space in enumeration order, as `triton.autotune` does.

The comparison for everything else: exhaustive and blind to results (Triton's own decorator, which also
has no pruning unless told how). Unlike it, each config is judged and a crash is one row.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelsearch.core.types import Proposal, ProposalKind, Trial, config_key
from kernelsearch.kernel.space import Space
from kernelsearch.search.contract import Start


@dataclass(frozen=True)
class Params:
    """Nothing to choose: the order is the space's own."""


class Strategy:
    rewrites = ordered = False

    def __init__(self, params: Params, start: Start) -> None:
        self.start = start
        own = config_key(start.config)
        every = ({**start.config, **point} for point in Space(start.space).iterate_configs())
        self.configs = (c for c in every if config_key(c) != own)  # the seed's own config is trial 0
        self.listed: list[dict] = []

    def ask(self, number: int) -> Proposal | None:
        while len(self.listed) < number:
            config = next(self.configs, None)
            if config is None:
                return None
            self.listed.append(config)
        return Proposal(ProposalKind.RETUNE, (self.start.kernel,), config=self.listed[number - 1])

    def tell(self, trial: Trial) -> None:
        """Results change nothing."""
