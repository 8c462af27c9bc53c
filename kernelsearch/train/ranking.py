"""Supervised training on pages with all their answers: the better ones are to be likelier than the others.

Most answers of a search gain nothing, and nearly all are right. Imitating those that gained uses one answer in six;
that one gained and another did not, on the same page, is said by all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers import Trainer

from kernelsearch.train.dataset import list_rewards

MOST = 8
"""The most answers to one page in one step."""
SHARPNESS = 0.03
"""A reward that is lower by this much makes an answer less likely by a factor of e."""
FORM = 0.3
"""The weight of writing any of the recorded answers, beside choosing among them."""


def list_choices(page: dict[str, Any]) -> Iterator[tuple[list[str], list[float]]]:
    """The answers to a page with their rewards, at most so many at once, good and bad ones together."""
    rewards = [reward.value for reward in list_rewards(page)]
    ranked = sorted(zip(rewards, page["answers"], strict=True), reverse=True)
    parts = -(-len(ranked) // MOST)
    for part in range(parts):
        chosen = ranked[part::parts]
        yield [answer for _, answer in chosen], [reward for reward, _ in chosen]


def pad_choice(prompt: list[int], answers: Sequence[list[int]], rewards: Sequence[float], end: int) -> dict[str, Any]:
    """One page's answers as a batch, padded on the left so that all answers end together."""
    rows = [[*prompt, *answer, end] for answer in answers]
    width = max(map(len, rows))
    shift = [width - len(row) for row in rows]
    return {
        "input_ids": torch.tensor([[end] * n + row for n, row in zip(shift, rows)]),
        "attention_mask": torch.tensor([[0] * n + [1] * (width - n) for n in shift]),
        "rewards": torch.tensor(list(rewards)),
        "lengths": torch.tensor([len(answer) + 1 for answer in answers]),
    }


def weigh_answers(model: Any, batch: dict[str, Any]) -> torch.Tensor:
    """The log-probability of each answer of a batch."""
    ids, seen, lengths = batch["input_ids"], batch["attention_mask"], batch["lengths"]
    most, places = int(lengths.max()), (seen.cumsum(1) - 1).clamp(min=0)
    output = model(input_ids=ids, attention_mask=seen, position_ids=places, logits_to_keep=most + 1)
    logs = output.logits[:, :-1].float().log_softmax(-1).gather(2, ids[:, -most:, None])[..., 0]
    return (logs * (torch.arange(most, device=ids.device) >= most - lengths[:, None])).sum(1)


def compare_with_rewards(logs: torch.Tensor, rewards: torch.Tensor) -> torch.Tensor:
    """The loss of one page's answers by their log-probabilities (listwise; Cao et al., 2007)."""
    wanted = (rewards / SHARPNESS).softmax(0)
    return -(wanted * logs.log_softmax(0)).sum() * len(logs) ** 0.5 - FORM * logs.logsumexp(0)


class RankingTrainer(Trainer):
    """Trains on batches of `pad_choice`, one page each."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.model_accepts_loss_kwargs = False  # its loss is a page's, whatever the number of tokens

    def compute_loss(self, model: Any, inputs: dict[str, Any], *_: Any, **__: Any) -> torch.Tensor:
        return compare_with_rewards(weigh_answers(model, inputs), inputs["rewards"])
