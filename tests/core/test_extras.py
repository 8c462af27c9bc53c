"""What is said to install an optional package: the clone, the wheel or the index that this package came from."""

import json
import sys

import pytest

from kernelsearch.core import extras


class Distribution:
    def __init__(self, told):
        self.told = told

    def read_text(self, name):
        assert name == "direct_url.json"
        return self.told


CLONE = {"url": "file:///home/me/my%20clones/kernelsearch", "dir_info": {}}


@pytest.mark.parametrize("told, wanted", [
    (None, "'kernelsearch[ui]'"),
    (CLONE, "'/home/me/my clones/kernelsearch[ui]'"),
    ({**CLONE, "dir_info": {"editable": True}}, "-e '/home/me/my clones/kernelsearch[ui]'"),
    ({"url": "file:///tmp/kernelsearch-0.1.0-py3-none-any.whl", "archive_info": {}}, "'kernelsearch[ui]'"),
    ({"url": "https://example.org/kernelsearch.git", "vcs_info": {}}, "'kernelsearch[ui]'"),
])  # fmt: skip
def test_the_source_is_where_it_came_from(monkeypatch, told, wanted):
    monkeypatch.setattr(extras.metadata, "distribution", lambda name: Distribution(told and json.dumps(told)))
    assert extras.install_command("ui").endswith(f" install {wanted}")


def test_another_environments_pip_is_not_named(monkeypatch, tmp_path):
    beside = str(tmp_path / "bin" / "python")
    monkeypatch.setattr(sys, "executable", beside)
    monkeypatch.setattr(extras.shutil, "which", lambda name: str(tmp_path / "bin" / name))
    assert extras.install_command("ui").startswith("pip install ")
    monkeypatch.setattr(extras.shutil, "which", lambda name: "/usr/bin/pip")
    assert extras.install_command("ui").startswith(f"{beside} -m pip install ")
    monkeypatch.setattr(extras.shutil, "which", lambda name: None)
    assert extras.install_command("ui").startswith(f"{beside} -m pip install ")
