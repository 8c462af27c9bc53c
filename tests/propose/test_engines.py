"""Engines behind one contract: specs, what a server can do wrong, secrets, recorded answers, a real tiny model."""

import json
import re

import edit_seeds
import pytest
import scripted
import scripted_server as served
import tiny

from kernelsearch.core.errors import ModelError
from kernelsearch.propose.engines import ENGINES, Ask, Failure, Reply, open_engine, parse_spec, registry
from kernelsearch.propose.engines.base import fit_grammar
from kernelsearch.propose.engines.recorded_answers import RecordingEngine, ReplayEngine
from kernelsearch.propose.engines.registry import AFTER, parse_ahead
from kernelsearch.propose.grammar import build_grammar
from kernelsearch.propose.grammar.answer import parse
from kernelsearch.propose.grammar.kernel_file import hold_kernels
from kernelsearch.propose.models.prompt import SYSTEM

KEY = "sk-test-0123456789abcdef"


@pytest.fixture(scope="module")
def grammar():
    return build_grammar(edit_seeds.seed("softmax"), edit_seeds.task("softmax"))


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture
def ask(grammar):
    return Ask(SYSTEM, grammar.numbered, grammar.for_engine, n=2, seed=3)


def engine(server, options="", sleeps=None):
    made = open_engine(f"openai:{server.url}#tiny{options}")
    made._sleep = (sleeps if sleeps is not None else []).append
    return made


def reply_of(script, ask, options=""):
    with served.Server(script) as server:
        return engine(server, options).complete(ask)


# ---------------------------------------------------------------- specs


@pytest.mark.parametrize("text, said", [
    ("gpt", "unknown model engine"), ("hf:", "names no model"), ("openai:http://h/v1", "names no model"),
    ("openai:h#m", "is no URL"), ("hf:x?colour=red", "has no option 'colour'"),
    ("hf:/nowhere", "no folder with a model"),
    ("openai:http://h/v1#m?timeout=soon", "is a number"), ("openai:http://h/v1#m?grammar=json", "one of ebnf"),
    ("openai:http://h/v1#m?api=rest", "chat, completions, responses"), ("replay:/nowhere.jsonl", "cannot be read"),
])  # fmt: skip
def test_a_bad_spec_is_one_sentence(text, said):
    with pytest.raises(ModelError, match=re.escape(said)) as error:
        open_engine(text)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("url", ["http://user:pw@host/v1", f"http://host/v1?key={KEY}"])
def test_a_key_in_a_url_is_refused_and_not_repeated(url):
    with pytest.raises(ModelError, match="environment") as error:
        open_engine(f"openai:{url}#m")
    assert KEY not in str(error.value) and "pw" not in str(error.value)


def test_every_kind_has_a_form_that_parses():
    for kind, known in ENGINES.items():
        assert parse_spec(known.form).kind == kind


def test_a_missing_extra_is_named():
    import importlib.util

    if importlib.util.find_spec("vllm") is None:
        with pytest.raises(ModelError, match=r"pip install .*\[vllm\]'"):
            open_engine("vllm:some/model")


# ---------------------------------------------------------------- a server


def test_the_grammar_is_sent_and_n_answers_come_back(ask, grammar):
    with served.Server(served.obedient) as server:
        reply = engine(server).complete(ask)
        path, headers, sent = server.requests[0]
    assert isinstance(reply, Reply) and len(reply.samples) == 2
    assert all(parse(s.text) for s in reply.samples)
    assert sent["structured_outputs"] == {"grammar": grammar.for_engine.ebnf} and "guided_grammar" not in json.dumps(
        sent
    )
    assert path.endswith("/chat/completions") and headers["authorization"] == f"Bearer {KEY}"
    assert sent["n"] == 2 and sent["max_tokens"] == 512 and reply.tokens_in > 0 and reply.tokens_out > 0


@pytest.mark.parametrize("status, kind, tries", [(401, "refused", 1), (403, "refused", 1), (404, "refused", 1),
                                                 (429, "busy", 3), (500, "busy", 3), (503, "busy", 3)])  # fmt: skip
def test_refusals_are_one_line_and_only_passing_ones_are_tried_again(ask, status, kind, tries):
    with served.Server(served.refusing(status, f"no:\nyour key {KEY} is not\x1b[31m known")) as server:
        sleeps = []
        failure = engine(server, "?retries=2", sleeps).complete(ask)
        assert len(server.requests) == tries and len(sleeps) == tries - 1
    assert isinstance(failure, Failure) and failure.kind == kind and str(status) in failure.reason
    assert "\n" not in failure.reason and "\x1b" not in failure.reason and KEY not in failure.reason
    assert sleeps == sorted(sleeps)


def test_a_rate_limit_says_how_long_to_wait(ask):
    limited = served.refusing(429, "slow down", headers={"Retry-After": "7"})
    with served.Server(served.in_turn(limited, served.always("x"))) as server:
        sleeps = []
        assert isinstance(engine(server, "", sleeps).complete(ask), Reply)
    assert sleeps == [7.0]


def test_a_timeout_and_an_empty_port_are_said(ask):
    with served.Server(served.always("x", wait_s=1.0)) as server:
        late = engine(server, "?timeout=0.2&retries=0").complete(ask)
    nobody = engine(server, "?retries=0").complete(ask)
    assert "no answer within 0.2 s" in late.reason and late.kind == "busy"
    assert "nothing answers at" in nobody.reason and nobody.kind == "busy"


def test_an_answer_without_choices_is_a_failure_and_not_silence(ask):
    failure = reply_of(served.always(), ask)
    assert isinstance(failure, Failure) and failure.kind == "busy" and "no choices" in failure.reason


def test_a_page_that_is_no_api_is_said(ask):
    failure = reply_of(served.always(raw=b"<html>welcome</html>"), ask)
    assert isinstance(failure, Failure) and "URL" in failure.reason


def test_a_refused_grammar_is_tried_in_the_other_dialect_and_its_position_shown(ask, grammar):
    bad = served.refusing(400, "Grammar error: unexpected token at line 3 column 7")
    with served.Server(served.in_turn(bad, served.always("x"))) as server:
        first = engine(server)
        assert isinstance(first.complete(ask), Reply) and isinstance(first.complete(ask), Reply)
        sent = [r[2]["structured_outputs"]["grammar"] for r in server.requests]
    held = grammar.for_engine
    assert sent == [held.ebnf, held.lark, held.lark]  # what was taken is remembered
    failure = reply_of(bad, ask)
    assert failure.kind == "grammar" and "line 3 column 7" in failure.reason


def test_a_model_without_chat_template_is_asked_plainly(ask):
    without = served.refusing(400, "default chat template is no longer allowed")
    with served.Server(served.in_turn(without, served.always("END\n"))) as server:
        reply = engine(server).complete(ask)
        assert server.requests[1][0].endswith("/completions") and "prompt" in server.requests[1][2]
    assert reply.samples[0].text == "END\n"


def test_a_small_context_is_its_own_kind_of_failure(ask):
    script = served.refusing(400, "This model's maximum context length is 2048 tokens. You asked for 9000")
    failure = reply_of(script, ask)
    assert (failure.kind, failure.limit) == ("context", 2048)


def test_an_answer_that_is_cut_or_empty_comes_back_as_it_is(ask):
    assert reply_of(served.always("LINE 10", finish="length"), ask).samples[0].finish == "length"
    assert reply_of(served.always(""), ask).samples[0].text == ""


def test_a_model_that_repeats_the_key_is_not_believed(ask):
    assert KEY not in reply_of(served.always(f"your key is {KEY}"), ask).samples[0].text


# ---------------------------------------------------------------- recorded answers


def test_what_was_recorded_is_said_again(tmp_path, ask):
    path = tmp_path / "answers.jsonl"
    recording = RecordingEngine(scripted.Scripted(scripted.sampling), str(path))
    first = recording.complete(ask)
    recording.close()
    replayed = open_engine(f"replay:{path}")
    assert [s.text for s in replayed.complete(ask).samples] == [s.text for s in first.samples]
    assert isinstance(replayed.complete(ask), Failure)  # once is all that was recorded


def test_lines_without_a_prompt_answer_in_order(ask):
    replayed = ReplayEngine("replay:", [{"samples": [{"text": "a"}]}, {"failure": "down", "kind": "busy"}])
    assert replayed.complete(ask).samples[0].text == "a"
    assert replayed.complete(ask) == Failure("down", "busy")


def test_a_damaged_record_is_named_by_line(tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"samples": [{"text": "a"}]}\n{"samples": [3]}\n')
    with pytest.raises(ModelError, match="line 2"):
        open_engine(f"replay:{path}")


# ---------------------------------------------------------------- a tiny model in this process


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    pytest.importorskip("transformers")
    return open_engine(f"hf:{tiny.build(tmp_path_factory.mktemp('tiny'))}?device=cpu&dtype=float32")


def test_a_random_model_stays_inside_the_grammar(local, grammar):
    reply = local.complete(Ask(SYSTEM, grammar.numbered, grammar.for_engine, n=3, temperature=1.0, seed=1))
    assert [s.finish for s in reply.samples] == ["stop"] * 3
    assert all(parse(s.text) for s in reply.samples)
    assert reply.tokens_in == local.count(local._text(Ask(SYSTEM, grammar.numbered, grammar.for_engine)))
    assert reply.tokens_out == sum(s.tokens for s in reply.samples) > 0


def test_an_answer_that_begins_within_a_thought_has_a_grammar_of_its_own():
    held = hold_kernels(("k",), ("x_ptr",))
    assert fit_grammar(held, "...<|assistant|>\n<think>\n") is held.after_thought != held
    assert fit_grammar(held, "What is <think> for?") is held and fit_grammar(None, "<think>") is None


def test_the_same_seed_gives_the_same_answers_and_leaves_torch_alone(local, grammar):
    import torch

    before = torch.random.get_rng_state()
    one, two, other = (
        local.complete(Ask(SYSTEM, "x", grammar.for_engine, n=2, max_tokens=24, seed=s)) for s in (5, 5, 6)
    )
    assert one.samples == two.samples != other.samples
    assert torch.equal(before, torch.random.get_rng_state())


def test_an_answer_without_room_is_cut(local, grammar):
    reply = local.complete(Ask(SYSTEM, "x", grammar.for_engine, n=1, max_tokens=2, seed=1))
    assert reply.samples[0].finish == "length"


def test_answers_that_nobody_wants_any_more_are_cut(local, grammar):
    ask, same = (Ask(SYSTEM, "x", grammar.for_engine, n=2, max_tokens=16, seed=5) for _ in range(2))
    local.stop(ask)
    cut, whole = local.complete(ask), local.complete(same)
    assert [s.tokens for s in cut.samples] == [1, 1] and min(s.tokens for s in whole.samples) > 1


def test_on_a_cpu_a_model_in_this_process_is_asked_ahead_unless_told_not_to():
    assert parse_ahead({}, cpu=True) == AFTER and parse_ahead({}, cpu=False) is None
    assert parse_ahead({"ahead": "off"}, cpu=True) is None and parse_ahead({"ahead": "16"}, cpu=False) == 16
    with pytest.raises(ModelError, match="ahead=on: it is off, or a number"):
        parse_ahead({"ahead": "on"}, cpu=True)


def test_a_model_in_this_process_is_loaded_once_for_all_that_ask_it(monkeypatch):
    made = []

    def make(spec):
        made.append(scripted.Scripted(scripted.sampling))
        return made[-1]

    monkeypatch.setattr(registry, "open_engine", make)
    opened = registry.EngineCache()
    one, two, served_one, served_two = (
        opened.engine(s) for s in ("hf:a", "hf:a", "openai:http://h/v1#m", "openai:http://h/v1#m")
    )
    assert len(made) == 3 and served_one is not served_two
    one.close()
    assert not hasattr(made[0], "closed") and isinstance(two.inner, scripted.Scripted)
    opened.close()
    assert made[0].closed


def test_a_prompt_beyond_the_context_and_a_bad_grammar_are_failures(local, grammar):
    long = local.complete(Ask(SYSTEM, "x = 1\n" * 9000, grammar.for_engine))
    assert (long.kind, long.limit) == ("context", 8192)

    class Bad:
        lark, ebnf, digest = 'start: "a" (', "", ""

    refused = local.complete(Ask(SYSTEM, "x", Bad()))
    assert refused.kind == "grammar" and "refuses the grammar" in refused.reason


def test_a_broken_model_folder_is_one_line(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="cannot be loaded") as error:
        open_engine(f"hf:{tmp_path}")
    assert "\n" not in str(error.value)
