"""The reward for `verifiers` and OpenEnv; `scripts/test-adapters` runs this, as CI has neither package."""

import asyncio
from types import SimpleNamespace

import pytest

from kernelsearch.core.errors import TaskError
from kernelsearch.env import Environment, Question
from kernelsearch.env.adapters import make_openenv, make_verifiers_taskset
from kernelsearch.env.levels import FASTER, GATE, Reward

ROWS = [
    {"task_file": f"{name}.py", "parent": "a kernel", "form": "edit", "system": "Be brief.", "page": f"Page of {name}."}
    for name in ("softmax", "rotary")
]
GOOD = "EDIT drop_mask 1\nEND"
REWARDS = {
    GOOD: Reward(0.9, FASTER, "twice as fast", evidence="estimated"),
    "import os": Reward(0.1, GATE, "line 1"),
}


@pytest.fixture
def environment():
    with Environment("h100") as environment:
        for row in ROWS:
            for answer, reward in REWARDS.items():
                environment.remember(Question(row["task_file"], row["parent"], row["form"]), answer, reward)
        yield environment


def test_verifiers_has_a_task_for_each_page_and_the_referees_reward(environment):
    pytest.importorskip("verifiers.v1")
    tasks = list(make_verifiers_taskset(environment, ROWS).load())
    assert [t.data.prompt for t in tasks] == [r["page"] for r in ROWS]
    assert tasks[0].data.system_prompt == "Be brief."
    for answer, reward in REWARDS.items():
        trace = SimpleNamespace(last_reply=answer, is_truncated=False, info={})
        assert asyncio.run(tasks[1].kernelsearch(trace)) == reward.value
        assert trace.info["kernelsearch"] == {
            "level": reward.level, "reason": reward.reason, "evidence": reward.evidence,
        }  # fmt: skip
    with pytest.raises(TaskError, match="no pages"):
        make_verifiers_taskset(environment, [])


def test_openenv_shows_a_page_takes_an_answer_and_gives_the_reward(environment):
    pytest.importorskip("openenv.core.env_server")
    made = make_openenv(environment, ROWS)
    with pytest.raises(TaskError, match="reset"):
        made.step(made.action(text=GOOD))
    assert made.reset().page == "Page of softmax." and made.reset().page == "Page of rotary."
    assert made.reset(seed=2).page == "Page of softmax."
    told = made.step(made.action(text=GOOD))
    assert told.done and told.reward == 0.9 and (told.level, told.reason) == (FASTER, "twice as fast")
    assert made.state.step_count == 1
    with pytest.raises(TaskError, match="no pages"):
        make_openenv(environment, [])


def test_openenv_serves_it(environment):
    server = pytest.importorskip("openenv.core.env_server")
    client = pytest.importorskip("fastapi.testclient")
    made = make_openenv(environment, ROWS)
    with client.TestClient(server.create_app(type(made), made.action, made.observation)) as http:
        page = http.post("/reset", json={"seed": 1}).json()
        assert page["observation"]["page"] == "Page of rotary." and not page["done"]
