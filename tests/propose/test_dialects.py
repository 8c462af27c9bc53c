"""Engines for whole kernels: servers' dialects, Anthropic's messages, programs that answer, keys that stay secret."""

import json
import os
import sys
import textwrap
import threading
import time
from pathlib import Path

import edit_seeds
import pytest
import scripted_server as served

from kernelsearch.core.errors import ModelError
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.engines import Ask, Failure, Reply, open_engine
from kernelsearch.propose.engines.recorded_answers import RecordingEngine
from kernelsearch.propose.engines.secrets import scrub
from kernelsearch.propose.grammar import WholeKernel
from kernelsearch.propose.grammar.kernel_file import make_grammar
from kernelsearch.propose.models.answers import check_answer
from kernelsearch.verify import gate

KEY = "sk-test-0123456789abcdef"
ASK = Ask("You write kernels.", "PAGE", None, max_tokens=16_000, turns=(("first", "was refused"),))


@pytest.fixture(autouse=True)
def keys(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)


def opened(spec):
    made = open_engine(spec)
    made._sleep = lambda seconds: None
    return made


def picky(**refusals):
    """A server that refuses each request with one of these words in it, by a sentence; else it answers."""

    def script(request):
        for name, message in refusals.items():
            if name in request:
                return served.Say(status=400, message=message)
        return served.Say(("hello",))

    return script


# ---------------------------------------------------------------- forms of answers


def test_served_models_answer_with_kernels_and_local_ones_with_edits():
    assert [opened(f"openai:http://h/v1#m{o}").answers for o in ("", "?answers=edit", "?answers=both")] == [
        "kernel", "edit", "both",
    ]  # fmt: skip
    assert open_engine(f"command:{sys.executable}").answers == "kernel"
    assert opened("openai:http://h/v1#m?answer_tokens=9000").answer_tokens == 9000
    for wrong in ("answers=all", "answer_tokens=many"):
        with pytest.raises(ModelError, match=wrong.partition("=")[0]):
            open_engine(f"openai:http://h/v1#m?{wrong}")


def test_a_conversation_is_sent_as_turns_and_no_grammar():
    with served.Server(served.always("hello")) as server:
        opened(f"openai:{server.url}#m").complete(ASK)
        _, _, sent = server.requests[0]
    assert [m["role"] for m in sent["messages"]] == ["system", "user", "assistant", "user"]
    assert "structured_outputs" not in sent and "n" not in sent and sent["max_tokens"] == 16_000


def test_recorded_answers_say_which_form_was_asked_for(tmp_path):
    with served.Server(served.always("hello")) as server:
        recording = RecordingEngine(opened(f"openai:{server.url}#m"), str(tmp_path / "a.jsonl"))
        recording.complete(ASK)
        recording.close()
    again = open_engine(f"replay:{tmp_path / 'a.jsonl'}")
    assert again.answers == "kernel" and again.complete(ASK).samples[0].text == "hello"
    assert open_engine(f"replay:{tmp_path / 'a.jsonl'}?answers=both").answers == "both"


# ---------------------------------------------------------------- dialects of openai servers


@pytest.mark.parametrize("refusals, gone, there", [
    (dict(max_tokens="Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                     "'max_completion_tokens' instead."), "max_tokens", "max_completion_tokens"),
    (dict(temperature="Unsupported value: 'temperature' does not support 0.8 with this model."), "temperature", "seed"),
    (dict(seed="Unrecognized request argument supplied: seed"), "seed", "temperature"),
    (dict(n="'n' must be 1 for this model"), "n", "seed"), (dict(n="Only n = 1 is supported"), "n", "seed"),
])  # fmt: skip
def test_what_a_server_refuses_in_one_dialect_is_asked_again_in_the_other(refusals, gone, there):
    with served.Server(picky(**refusals)) as server:
        engine = opened(f"openai:{server.url}#m")
        for _ in range(2):
            assert engine.complete(Ask("s", "p", None, n=4)).samples[0].text == "hello"
        sent = [r for _, _, r in server.requests]
    assert gone in sent[0] and all(gone not in r and there in r for r in sent[1:]) and len(sent) == 3  # remembered


def test_several_refusals_in_a_row_end_in_an_answer():
    script = picky(max_tokens="use max_completion_tokens instead", temperature="temperature is not supported",
                   n="n must be 1", seed="Unknown parameter: 'seed'")  # fmt: skip
    with served.Server(script) as server:
        reply = opened(f"openai:{server.url}#m").complete(Ask("s", "p", None, n=2))
        assert isinstance(reply, Reply) and len(server.requests) == 5


def test_a_server_that_refuses_both_dialects_is_one_failure():
    both = served.refusing(400, "max_tokens and max_completion_tokens are not supported")
    with served.Server(both) as server:
        failure = opened(f"openai:{server.url}#m").complete(ASK)
        assert failure.kind == "refused" and len(server.requests) == 2


def test_a_limit_of_answers_that_a_server_names_is_kept():
    large = "max_tokens is too large: 16000. This model supports at most 8192 completion tokens"

    def script(request):
        return served.Say(("hello",)) if request["max_tokens"] <= 8192 else served.Say(status=400, message=large)

    with served.Server(script) as server:
        assert isinstance(opened(f"openai:{server.url}#m").complete(ASK), Reply)
        assert [r["max_tokens"] for _, _, r in server.requests] == [16_000, 8192]


def test_a_model_of_the_responses_api_is_asked_there():
    only = served.refusing(404, "This model is only supported in v1/responses and not in v1/chat/completions.")
    with served.Server(served.in_turn(only, served.always("hello"), served.always("cut", finish="length"))) as server:
        engine = opened(f"openai:{server.url}#m")
        reply, cut = engine.complete(ASK), engine.complete(ASK)
        paths, sent = [p for p, _, _ in server.requests], server.requests[1][2]
    assert [p.rpartition("/")[2] for p in paths] == ["completions", "responses", "responses"]
    assert reply.samples[0].text == "hello" and (reply.tokens_in, reply.tokens_out, reply.tokens_cached) == (30, 7, 5)
    assert sent["max_output_tokens"] == 16_000 and sent["input"][-1]["content"] == "was refused"
    assert cut.samples[0].finish == "length"


HELD = Ask("s", "PAGE", WholeKernel(Kernel.parse(edit_seeds.task("softmax").seed), ("softmax_kernel",)).for_engine)
NO_FIELD = "Unrecognized request argument supplied: structured_outputs"


def test_a_server_that_takes_no_grammar_is_asked_without_and_the_user_reads_so():
    def script(request):
        if "structured_outputs" in request:
            return served.Say(status=400, message=NO_FIELD)
        return served.Say(("hello",))

    with served.Server(script) as server:
        engine = opened(f"openai:{server.url}#m")
        first, second = engine.complete(HELD), engine.complete(HELD)
        last = server.requests[-1][2]
    assert first.samples[0].text == second.samples[0].text == "hello" and "structured_outputs" not in last
    assert any("takes no grammar: its answers are checked here" in n for n in first.notes) and not second.notes


def test_a_grammar_that_a_server_cannot_read_costs_no_answer():
    """The others stay held: only this grammar is left out, and the user reads the server's sentence."""

    def script(request):
        if "kernel" in json.dumps(request.get("structured_outputs", "")):
            return served.Say(status=400, message="Grammar error: too many rules, line 7")
        return served.Say(("hello",))

    small = Ask("s", "PAGE", make_grammar("small", rules='small: "x"\n'))
    with served.Server(script) as server:
        engine = opened(f"openai:{server.url}#m")
        replies = [engine.complete(ask) for ask in (HELD, HELD, small)]
        held = [r.get("structured_outputs") is not None for _, _, r in server.requests]
    assert all(isinstance(r, Reply) for r in replies) and "line 7; its answers are checked here" in replies[0].notes[0]
    assert held == [True, True, False, False, True] and not replies[2].notes


def test_a_refused_setting_is_not_taken_for_the_grammar():
    with served.Server(picky(seed="Unrecognized request argument supplied: seed")) as server:
        reply = opened(f"openai:{server.url}#m").complete(HELD)
        last = server.requests[-1][2]
    assert not reply.notes and "seed" not in last and "structured_outputs" in last


def test_a_template_without_a_system_role_gets_it_in_the_first_question():
    def script(request):
        if request["messages"][0]["role"] == "system":
            return served.Say(status=400, message="System role not supported")
        return served.Say(("hello",))

    with served.Server(script) as server:
        assert isinstance(opened(f"openai:{server.url}#m").complete(ASK), Reply)
        messages = server.requests[1][2]["messages"]
    assert [m["role"] for m in messages] == ["user", "assistant", "user"]
    assert messages[0]["content"] == "You write kernels.\n\nPAGE"


# ---------------------------------------------------------------- anthropic


def anthropic(server, options=""):
    pytest.importorskip("anthropic")
    return opened(f"anthropic:{server.url.removesuffix('/v1')}#model{options}")


def test_anthropic_messages_go_out_and_come_back():
    with served.Server(served.always("hello", "world", finish="length")) as server:
        reply = anthropic(server).complete(ASK)
        path, headers, sent = server.requests[0]
    assert path.endswith("/v1/messages") and any(KEY in v for v in headers.values()) and KEY not in json.dumps(sent)
    assert sent["system"] == "You write kernels." and [m["role"] for m in sent["messages"]] == [
        "user",
        "assistant",
        "user",
    ]
    assert reply.samples[0].text == "helloworld" and reply.samples[0].finish == "length"
    assert (reply.tokens_in, reply.tokens_out, reply.tokens_cached) == (35, 7, 5)


@pytest.mark.parametrize(
    "status, kind, tries", [(401, "refused", 1), (404, "refused", 1), (429, "busy", 2), (529, "busy", 2)]
)
def test_anthropic_refusals_are_one_line_without_the_key(status, kind, tries):
    with served.Server(served.refusing(status, f"no:\n{KEY}")) as server:
        failure = anthropic(server, "?retries=1").complete(ASK)
        assert failure.kind == kind and len(server.requests) == tries
    assert KEY not in failure.reason and "\n" not in failure.reason and str(status) in failure.reason


def test_the_words_of_a_refusal_are_kept():
    with served.Server(served.always("I will not.", refused=True)) as server:
        (sample,) = opened(f"openai:{server.url}#m").complete(ASK).samples
    assert (sample.text, sample.finish) == ("I will not.", "refusal")
    checked = check_answer(sample, WholeKernel(edit_seeds.seed("softmax"), ()), gate.check)
    assert (checked.stage, checked.reason) == ("stopped", "the model refused: I will not.")


def test_an_anthropic_refusal_is_an_empty_answer_that_says_so():
    with served.Server(served.always(finish="refusal")) as server:
        (sample,) = anthropic(server).complete(ASK).samples
    assert (sample.text, sample.finish) == ("", "refusal")


# ---------------------------------------------------------------- programs


def program(tmp_path, body):
    path = tmp_path / "answer.py"
    path.write_text(f"#!{sys.executable}\nimport json, os, sys, time\n" + textwrap.dedent(body))
    path.chmod(0o755)
    return path


def said_by(tmp_path, body, ask=ASK, options=""):
    return open_engine(f"command:{program(tmp_path, body)} --loud{options}").complete(ask)


def test_a_program_reads_the_request_and_its_text_is_the_answer(tmp_path):
    reply = said_by(
        tmp_path,
        """
        request = json.load(sys.stdin)
        (open(sys.argv[0] + ".seen", "w")).write(json.dumps([request, sys.argv[1:]]))
        print("```python\\nx = 1\\n```")
    """,
    )
    request, words = json.loads((tmp_path / "answer.py.seen").read_text())
    assert reply.samples[0].text == "```python\nx = 1\n```\n" and words == ["--loud"]
    assert [m["content"] for m in request["messages"]] == ["You write kernels.", "PAGE", "first", "was refused"]
    assert request["max_tokens"] == 16_000 and request["n"] == 1 and request["grammar"] is None


def test_a_program_may_answer_in_json_with_its_tokens(tmp_path):
    reply = said_by(tmp_path, 'print(json.dumps({"texts": ["a", "b"], "tokens_in": 40, "tokens_out": 10}))')
    assert [s.text for s in reply.samples] == ["a", "b"] and (reply.tokens_in, reply.tokens_out) == (40, 10)
    assert said_by(tmp_path, 'print(json.dumps({"text": "a"}))').samples[0].text == "a"


@pytest.mark.parametrize("body, kind, said", [
    ("sys.exit('it broke\\nat the end')", "busy", "exit code 1: at the end"),
    ('print(json.dumps({"error": "quota used up", "kind": "refused"}))', "refused", "quota used up"),
    ('print(json.dumps({"error": "later"}))', "busy", "later"), ('print("{}")', "busy", "has no answer"),
    ('print(json.dumps({"texts": [3]}))', "busy", "has no answer"),
    ("time.sleep(60)", "busy", "no answer within 0.5 s"),
    ("os.close(0); sys.stdout.write('x' * (5 << 20))", "busy", "bytes"), ("os.abort()", "busy", "exit code -6"),
])  # fmt: skip
def test_what_a_program_does_wrong_is_one_line(tmp_path, body, kind, said):
    failure = said_by(tmp_path, body, options="?timeout=0.5" if "sleep" in body else "")
    assert isinstance(failure, Failure) and failure.kind == kind and said in failure.reason
    assert "\n" not in failure.reason and failure.reason.startswith("answer.py: ")


def test_a_program_that_says_nothing_gives_an_empty_answer(tmp_path):
    assert said_by(tmp_path, "pass").samples[0].text == ""


def test_a_program_dies_with_all_it_started_when_the_engine_is_closed(tmp_path):
    engine = open_engine("command:" + str(program(tmp_path, """
        child = os.fork()
        open(sys.argv[0] + f".{child and 'parent' or 'child'}", "w").write(str(os.getpid()))
        time.sleep(60)
    """)))  # fmt: skip
    answers = []
    thread = threading.Thread(target=lambda: answers.append(engine.complete(ASK)))
    thread.start()
    files = [tmp_path / f"answer.py.{who}" for who in ("parent", "child")]
    until = time.monotonic() + 20
    while not all(f.exists() and f.read_text() for f in files) and time.monotonic() < until:
        time.sleep(0.02)
    engine.close()
    thread.join(20)
    assert isinstance(answers[0], Failure)
    child = int(files[1].read_text())
    while Path(f"/proc/{child}/stat").exists() and " Z " not in Path(f"/proc/{child}/stat").read_text():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize("spec, said", [
    ("command:", "names no model"), ("command:/nowhere/answer", "is no program"),
    ("command:'unclosed", "is no command"), (f"command:prog --key {KEY}", "no place in a command"),
])  # fmt: skip
def test_a_bad_command_is_one_sentence_without_the_key(spec, said):
    with pytest.raises(ModelError, match=said) as error:
        open_engine(spec)
    assert KEY not in str(error.value)


def test_a_file_that_may_not_be_run_is_said(tmp_path):
    path = program(tmp_path, "pass")
    path.chmod(0o644)
    with pytest.raises(ModelError, match="chmod"):
        open_engine(f"command:{path}")


def test_secrets_of_the_environment_are_scrubbed_whatever_their_form(monkeypatch, tmp_path):
    monkeypatch.setenv("MY_SERVICE_TOKEN", "plain-looking-value-7")
    monkeypatch.setenv("TOKENIZERS", "not-a-secret-at-all")
    assert scrub("a plain-looking-value-7 b not-a-secret-at-all") == "a [secret] b not-a-secret-at-all"
    reply = said_by(tmp_path, 'print("the token is", os.environ["MY_SERVICE_TOKEN"])')
    assert "plain-looking" not in reply.samples[0].text
    failure = said_by(tmp_path, 'sys.exit(os.environ["MY_SERVICE_TOKEN"])')
    assert "plain-looking" not in failure.reason


def test_ctrl_c_in_a_terminal_does_not_reach_a_program(tmp_path):
    said = said_by(tmp_path, "sys.stdin.read(); print(os.getpgid(0))").samples[0].text
    assert int(said) != os.getpgid(0)
