"""`train`: supervised on pages with their answers, then by reward (GRPO) through TRL; the result is a folder for `hf:`.

Each stage writes checkpoints into a folder of its own and its model when it is done; with resume a finished stage is
not repeated, and a broken off one goes on from its last checkpoint.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from kernelsearch.core import extras
from kernelsearch.core.errors import TrainError
from kernelsearch.core.files import write_text
from kernelsearch.core.types import content_digest
from kernelsearch.env import Environment, Question
from kernelsearch.env.levels import LEVELS
from kernelsearch.env.trl_reward import ignore_speed, make_trl_reward
from kernelsearch.propose.engines.base import Ask, Failure
from kernelsearch.propose.grammar import NoGrammar
from kernelsearch.train.dataset import TRAIN, list_rewards, refuse_other_folder
from kernelsearch.train.examples import EDIT
from kernelsearch.train.tiny import TinySize, build_tiny

TINY = "tiny"
SPEED, RIGHT = "speed", "right"
BASE, SUPERVISED, REWARDED, SETTINGS = "base", "supervised", "rewarded", "training.json"
ANSWER_TOKENS = {"edit": 96, "kernel": 2048}
"""The most tokens of an answer while rewards are learnt."""
NEAR = 0.02
"""What a nat of distance from where training by reward begins costs: without it a model loses the form of answers."""

Row = dict[str, Any]


@dataclass(frozen=True)
class TrainOptions:
    """The command's options, as the command line names them.

    epochs are of supervised training, steps of training by reward, each with `group` answers to one page; reward says
    whether that reward counts speed, or only that a kernel is right; with recorded only answers are drawn whose reward
    the record knows, and none is judged. size is that of a tiny model.
    """

    base: str
    data: Path
    out: Path
    form: str = EDIT
    epochs: float = 3.0
    steps: int = 100
    group: int = 8
    reward: str = SPEED
    recorded: bool = False
    rate: float = 3e-4
    reward_rate: float = 3e-5
    temperature: float = 1.0
    lora: bool = False
    seed: int = 0
    save_every: int = 25
    resume: bool = False
    target: str = "auto"
    size: TinySize = field(default_factory=TinySize)


def train(options: TrainOptions, say: Callable[[str], None], environment: Environment | None = None) -> Path:
    """Trains and gives the folder of the model. Raises TrainError."""
    _require_packages()
    refuse_other_folder(options.out, SETTINGS, f'"{BASE}"')
    if (options.out / SETTINGS).is_file() and not options.resume:
        raise TrainError(f"{options.out} has a training already: --resume continues it, or name a new folder")
    pages = read_rows(options.data, options.form)
    if options.base != TINY and not Path(options.base).is_dir():
        raise TrainError(f"{options.base} is no folder with a model: download one first, or use --base {TINY}")
    settings = {**asdict(options), "data": str(options.data), "out": str(options.out)}
    _refuse_other_options(options.out / SETTINGS, settings)
    options.out.mkdir(parents=True, exist_ok=True)
    write_text(options.out / SETTINGS, json.dumps(settings, indent=1) + "\n")
    answers = [answer for row in pages for answer in row["answers"]]
    base = _find_base(options, [write_prompt(row, False) for row in pages] + answers)
    say(f"supervised: {len(answers)} answers to {len(pages)} pages, {options.epochs:g} times each")
    learnt = _train_supervised(options, base, pages)
    if options.steps and pages:
        say(f"by reward: {options.steps} steps of {options.group} answers, from {len(pages)} pages")
        with environment or Environment(options.target) as judged:
            _remember(judged, pages)
            learnt = _train_by_reward(options, learnt, pages, judged)
    _copy_model(learnt, options.out)
    return options.out


def read_rows(data: Path, form: str) -> list[Row]:
    """The training pages of a dataset's folder, of one form. Raises TrainError."""
    path = data / "pages" / f"{TRAIN}.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []
    if not rows or "answers" not in rows[0]:
        raise TrainError(f"{data} has no pages with answers: write them with `kernelsearch dataset {data}`")
    if not (found := [row for row in rows if row["form"] == form]):
        raise TrainError(f"{data} has no pages of the form {form}: search more, or name another --form")
    return found


def _refuse_other_options(file: Path, settings: Row) -> None:
    """Raises TrainError where a training that is to be continued was begun on something else."""
    begun = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    for name in ("base", "data", "form", "lora", "size"):
        if begun.get(name, settings[name]) != settings[name]:
            raise TrainError(f"{file.parent} was begun with {name} {begun[name]}: give the same, or name a new folder")


def _remember(environment: Environment, pages: list[Row]) -> None:
    """What the record measured need not be judged again; without a GPU it is better than an estimate."""
    for page in pages:
        question = Question(page["task_file"], page["parent"], page["form"])
        for answer, reward in zip(page["answers"], list_rewards(page), strict=True):
            environment.remember(question, answer, reward)


def write_prompt(row: Row, chat: bool) -> Any:
    """A page as the engine asks it: messages for a chat template, else one text."""
    ask = Ask(row["system"], row["page"], None)
    return ask.messages if chat else ask.plain


def _require_packages() -> None:
    try:
        # rollout_func may change; constraints.txt names the tested
        os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
        import accelerate
        import datasets
        import peft
        import trl
        from transformers.utils import logging

        assert accelerate and datasets and peft and trl
        logging.disable_progress_bar()
        datasets.disable_progress_bars()
        warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")  # of what TRL asks it
    except ImportError as missing:
        raise TrainError(f"training needs {missing.name}: {extras.install_command('train')}") from None


def _find_base(options: TrainOptions, texts: list[str]) -> Path:
    if options.base != TINY:
        return Path(options.base)
    base = options.out / BASE
    if not _is_done(options, BASE):
        build_tiny(base, texts, options.size, options.seed)
    return base


def _load(folder: Path) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        return AutoModelForCausalLM.from_pretrained(folder, dtype="auto", local_files_only=True), tokenizer
    except (OSError, ValueError) as error:
        raise TrainError(f"the model in {folder} cannot be loaded: {str(error).splitlines()[0]}") from None


def _common(options: TrainOptions, stage: str) -> dict[str, Any]:
    """Settings that both stages' trainers share."""
    import torch

    gpu = torch.cuda.is_available()
    return dict(
        output_dir=str(options.out / stage), seed=options.seed, use_cpu=not gpu, bf16=gpu and options.base != TINY,
        save_steps=options.save_every, save_total_limit=2, logging_steps=1, report_to="none", disable_tqdm=True,
        gradient_checkpointing=gpu and options.base != TINY,
    )  # fmt: skip


def _as_data(rows: list[Row]) -> Any:
    """The rows for a trainer. With a fingerprint of our own nothing is pickled, which some versions of Arrow refuse."""
    from datasets import Dataset
    from datasets.table import InMemoryTable

    return Dataset(InMemoryTable.from_pylist(rows), fingerprint=content_digest(json.dumps(rows)))


def _lora(options: TrainOptions) -> Any:
    from peft import LoraConfig

    return LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM") if options.lora else None


def _finish(trainer: Any, options: TrainOptions, stage: str, tokenizer: Any) -> Path:
    """Trains, from the stage's last checkpoint on where there is one, and saves the whole model."""
    from transformers.trainer_utils import get_last_checkpoint

    folder = options.out / stage
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(folder)) if folder.is_dir() else None)
    model = trainer.model.merge_and_unload() if options.lora else trainer.model
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return folder


def _is_done(options: TrainOptions, stage: str) -> bool:
    return any((options.out / stage).glob("model*.safetensors"))


def _train_supervised(options: TrainOptions, base: Path, pages: list[Row]) -> Path:
    if _is_done(options, SUPERVISED):
        return options.out / SUPERVISED
    if not pages or not options.epochs:
        return base
    from peft import get_peft_model
    from transformers import TrainingArguments

    from kernelsearch.train.ranking import RankingTrainer, list_choices, pad_choice

    model, tokenizer = _load(base)
    model = get_peft_model(model, _lora(options)) if options.lora else model
    chat = bool(tokenizer.chat_template)

    def collate(rows: list[Row]) -> Row:
        text, end = rows[0]["prompt"], tokenizer.eos_token_id
        if chat:
            text = tokenizer.apply_chat_template(text, tokenize=False, add_generation_prompt=True)
        answers = [tokenizer(a, add_special_tokens=False)["input_ids"] for a in rows[0]["answers"]]
        return pad_choice(tokenizer(text)["input_ids"], answers, rows[0]["rewards"], end)

    rows = [
        {"prompt": write_prompt(page, chat), "answers": answers, "rewards": rewards}
        for page in pages
        for answers, rewards in list_choices(page)
    ]
    arguments = TrainingArguments(
        **_common(options, SUPERVISED), num_train_epochs=options.epochs, learning_rate=options.rate,
        per_device_train_batch_size=1, gradient_accumulation_steps=min(8, len(rows)), warmup_steps=10,
        lr_scheduler_type="linear", remove_unused_columns=False,
    )  # fmt: skip
    trainer = RankingTrainer(model, args=arguments, train_dataset=_as_data(rows), data_collator=collate)
    return _finish(trainer, options, SUPERVISED, tokenizer)


def _train_by_reward(options: TrainOptions, start: Path, pages: list[Row], environment: Environment) -> Path:
    if _is_done(options, REWARDED) and _count_steps(options.out) >= options.steps:
        return options.out / REWARDED
    from trl import GRPOConfig, GRPOTrainer

    model, tokenizer = _load(start)
    chat = bool(tokenizer.chat_template)
    pages = [page for page in pages if not options.recorded or _differ(page)]
    rollouts = _make_rollouts(options, pages, environment)
    counted: Row = {"value": ignore_speed} if options.reward == RIGHT else {}
    reward = make_trl_reward(environment, **counted, end=tokenizer.eos_token_id)
    rows = [
        {"prompt": write_prompt(r, chat), **{name: r[name] for name in ("task_file", "parent", "form")}} for r in pages
    ]
    arguments = GRPOConfig(
        **_common(options, REWARDED), max_steps=options.steps, learning_rate=options.reward_rate, warmup_steps=2,
        lr_scheduler_type="constant_with_warmup",
        per_device_train_batch_size=options.group, num_generations=options.group, temperature=options.temperature,
        max_completion_length=ANSWER_TOKENS[options.form], beta=NEAR,
        scale_rewards="none",  # a page whose answers differ by noise is not to weigh as much as one with a real gain
    )  # fmt: skip
    trainer = GRPOTrainer(
        model, reward_funcs=reward, args=arguments, train_dataset=_as_data(rows),
        processing_class=tokenizer, peft_config=_lora(options), rollout_func=rollouts,
        callbacks=[_make_writer(options.out)],
    )  # fmt: skip
    folder = _finish(trainer, options, REWARDED, tokenizer)
    _write_steps(options.out, trainer.state.log_history)
    return folder


def _make_writer(out: Path) -> Any:
    """Writes the steps with each checkpoint, for whoever looks on and for a training that is broken off."""
    from transformers import TrainerCallback

    class Writer(TrainerCallback):
        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            _write_steps(out, state.log_history)

    return Writer()


def _write_steps(out: Path, history: Sequence[Mapping[str, Any]]) -> None:
    """Writes `rewards.jsonl`: each step by reward with its mean reward and the share of answers at each level."""
    steps = [
        {"step": row["step"], "reward": row["reward"], "levels": {k: row.get(f"level/{k}", 0.0) for k in LEVELS}}
        for row in history
        if "reward" in row
    ]
    write_text(out / "rewards.jsonl", "".join(json.dumps(step) + "\n" for step in steps))


def _count_steps(out: Path) -> int:
    """The steps by reward that a finished training has."""
    file = out / "rewards.jsonl"
    return len(file.read_text(encoding="utf-8").splitlines()) if file.is_file() else 0


def _differ(page: Row) -> bool:
    """Whether the record knows a better and a worse answer to a page: else a group of them teaches nothing."""
    return len({reward.value for reward in list_rewards(page)}) > 1


@dataclass(frozen=True)
class _Listed:
    """A grammar of these answers alone."""

    answers: list[str]
    after_thought = None

    @property
    def lark(self) -> str:
        return f"start: {' | '.join(map(json.dumps, self.answers))}"

    ebnf = lark


def _make_grammar(row: Row, environment: Environment) -> Any:
    """What answers to a page are held to; None where nothing can be asked of its kernel."""
    form = environment.make_form(Question(row["task_file"], row["parent"], row["form"]))
    return None if isinstance(form, NoGrammar) else form.for_engine


def _make_rollouts(options: TrainOptions, pages: list[Row], environment: Environment) -> Callable[..., Row]:
    """TRL's function that writes the answers: held to the grammar of their page, as in a search.

    The gradient is that of the model without its mask, so that it also learns to keep to the grammar by itself.
    """
    from kernelsearch.propose.engines.transformers_local import TransformersLocal

    asked = {key: row for row in pages for key in (str(write_prompt(row, True)), str(write_prompt(row, False)))}

    def write(prompts: list[Any], trainer: Any) -> Row:
        model, tokenizer = trainer.accelerator.unwrap_model(trainer.model).eval(), trainer.processing_class
        engine = TransformersLocal("train", options.base, model, tokenizer)
        read, written = [], []
        for number, (key, group) in enumerate(groupby(map(str, prompts))):
            row, n = asked[key], len(list(group))
            grammar = _Listed(row["answers"]) if options.recorded else _make_grammar(row, environment)
            seed = options.seed + 1000 * trainer.state.global_step + number
            most = ANSWER_TOKENS[options.form]
            said = engine.write(Ask(row["system"], row["page"], grammar, n, most, options.temperature, seed))
            if isinstance(said, Failure):
                raise TrainError(f"answers cannot be held to the grammar of a page: {said.reason}")
            read += [said.prompt] * n
            written += [tokens + [tokenizer.eos_token_id] * whole for tokens, whole in said.answers]
        model.train()
        return {"prompt_ids": read, "completion_ids": written, "logprobs": None}

    return write


def _copy_model(folder: Path, out: Path) -> None:
    """Puts a stage's model into OUT itself."""
    model, tokenizer = _load(folder)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
