"""A release: what is built from the source archive installs, and holds all that its commands need."""

import json
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import kernelsearch

ROOT = Path(__file__).resolve().parents[1]
ASKED = """
import json, sys
from pathlib import Path
from importlib.metadata import metadata
import kernelsearch
from kernelsearch.search.strategies import list_shipped, load, strategies_folder
from kernelsearch.tasks import shipped
place = Path(kernelsearch.__file__).resolve().parents[1]
tasks = shipped.names()
print(json.dumps({
    "place": str(place), "strategies": [load(name).__name__ for name in list_shipped()],
    "inside": strategies_folder().is_relative_to(place), "tasks": list(tasks),
    "version": metadata("kernelsearch")["Version"],
}))
"""


def build(source, out, kind):
    """The archive that the build backend makes of a source tree."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(out)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return max(out.iterdir(), key=lambda path: path.stat().st_mtime_ns)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The source archive, and the wheel that is built of it, as `python -m build` does."""
    folder = tmp_path_factory.mktemp("release")
    sdist = build(ROOT, folder / "dist", "sdist")
    (folder / "source").mkdir()
    subprocess.run(["tar", "-xzf", sdist, "-C", folder / "source"], check=True)
    (source,) = (folder / "source").iterdir()
    return sdist, build(source, folder / "dist", "wheel")


@pytest.mark.slow
def test_the_wheel_of_the_source_archive_installs_and_has_all_that_its_commands_need(built, tmp_path):
    _, wheel = built
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--disable-pip-version-check"]
    subprocess.run([*pip, "--target", str(tmp_path / "site"), str(wheel)], check=True)
    environment = {"PYTHONPATH": str(tmp_path / "site"), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    asked = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, "-c", ASKED], **asked)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["place"] == str(tmp_path / "site") and said["inside"]
    assert len(said["strategies"]) == len(list((ROOT / "strategies").glob("*.py")))
    assert {"softmax", "matmul", "cross_entropy"} <= set(said["tasks"]) and said["version"] == kernelsearch.__version__
    command = [sys.executable, str(tmp_path / "site/bin/kernelsearch"), "new", "softmax"]
    assert subprocess.run(command, **asked).returncode == 0
    assert (tmp_path / "softmax.py").read_text() == (ROOT / "studies/softmax/softmax.py").read_text()


def test_the_metadata_is_what_an_index_takes(built):
    sdist, wheel = built
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (about,) = (n for n in names if n.endswith(".dist-info/METADATA"))
        head = Parser().parsestr(archive.read(about).decode())
        assert {n.split("/")[0] for n in names} == {"kernelsearch", about.split("/")[0]}
        assert f"{about.rpartition('/')[0]}/licenses/LICENSE" in names
        assert not [n for n in names if re.search(r"\.(pyc|db|whl)$|__pycache__", n)]
    assert (head["Name"], head["Version"], head["License-Expression"]) == (
        "kernelsearch",
        kernelsearch.__version__,
        "MIT",
    )
    assert head["Description-Content-Type"] == "text/markdown" and "# kernelsearch" in head.get_payload()
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"CHANGELOG.md", "CITATION.cff", "LICENSE", "README.md", "constraints.txt", "scripts/test"} <= inside
    assert not [n for n in inside if n.startswith((".ci", ".venv", ".git/"))]


def test_version_changelog_and_citation_agree():
    version = kernelsearch.__version__
    assert re.search(rf"^## {re.escape(version)} \(", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {version}\n" in citation and "\nlicense: MIT\n" in citation
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["description"] in citation
