"""A file or folder is there whole, the old one or the new, wherever its writer was killed: every step is tried."""

import json
import os
import subprocess
import sys

import pytest

from kernelsearch.core import files

NEW = {"a.txt": b"new a", "deep/er/b.txt": b"new b", ".mark": b"new"}

DRIVER = '''
"""Writes a place in a child that stops before its n-th step in the file system and is killed there, for n = 1, 2, ...

Prints what was found afterwards for each n, until a child comes to its end.
"""
import json, os, shutil, signal, sys, time
from pathlib import Path
from kernelsearch.core import files

kind, number, exchange, root = sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
place = root / "place"
OLD = {"a.txt": b"old a", "old.txt": b"old"}
NEW = {"a.txt": b"new a", "deep/er/b.txt": b"new b", ".mark": b"new"}
if exchange == "two renames":
    files._exchange = lambda one, other: False


def tree(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def fresh():
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    if kind == "folder":
        for name, data in OLD.items():
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).write_bytes(data)
    elif kind == "file":
        place.write_text("old")


def seen():
    if not place.exists():
        return "nothing"
    if place.is_file():
        return place.read_text()
    return {str(OLD): "old", str(NEW): "new"}.get(str(dict(sorted(tree(place).items()))), "HALF")


OLD, NEW = dict(sorted(OLD.items())), dict(sorted(NEW.items()))


def child(stop, told):
    steps = [0]

    def step(event, args):
        if event.split(".")[0] in ("open", "os", "shutil", "ctypes", "fcntl", "tempfile"):
            steps[0] += 1
            if steps[0] == stop:
                os.write(told, b"here")
                while True:
                    time.sleep(1)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.addaudithook(step)
    files.write_text(place, "new") if kind.endswith("file") else files.write_folder(place, NEW)


found = []
for stop in range(1, 200):
    fresh()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            child(stop, write)
        except KeyboardInterrupt:
            code = 1
        finally:
            os._exit(code)
    os.close(write)
    reached = os.read(read, 9) == b"here"  # else the child has ended, which closed the pipe
    if reached:
        os.kill(pid, number)
    os.waitpid(pid, 0)
    os.close(read)
    left = sorted(p.name for p in root.iterdir() if p != place)
    found.append([seen(), left])
    if not reached:
        break
print(json.dumps(found))
'''


def killed(kind, number, root, exchange="exchange"):
    """(What stood at the place, what lay beside it) after the writer was killed before its first, second, ... step."""
    command = [sys.executable, "-c", DRIVER, kind, str(number), exchange, str(root / "work")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("signal", [9, 2])
@pytest.mark.parametrize(
    ("kind", "before"), [("folder", "old"), ("new folder", "nothing"), ("file", "old"), ("new file", "nothing")]
)
def test_wherever_the_writer_is_killed_the_old_or_the_new_stands_whole(kind, before, signal, tmp_path):
    found = killed(kind, signal, tmp_path)
    states = [state for state, _ in found]
    assert set(states) == {before, "new"} and len(states) >= 4
    assert states == sorted(states, key=lambda s: s == "new")  # once it is the new one it stays so
    assert found[-1] == ["new", []]


def test_without_an_exchange_in_one_step_ctrl_c_still_brings_the_old_one_back(tmp_path):
    found = killed("folder", 2, tmp_path, "two renames")
    assert {state for state, _ in found} == {"old", "new"} and found[-1] == ["new", []]


def test_a_links_target_is_replaced_and_a_pipe_is_written_to(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    files.write_text(link, "new")
    assert link.is_symlink() and target.read_text() == "new" and target.stat().st_mode & 0o777 == 0o640
    read, write = os.pipe()
    files.write_text(f"/dev/fd/{write}", "through")
    assert os.read(read, 99) == b"through"
    os.close(read), os.close(write)


def test_what_cannot_be_written_is_an_error_and_leaves_nothing(tmp_path):
    with pytest.raises(OSError):
        files.write_text(tmp_path / "none" / "f", "x")
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError):
        files.write_folder(tmp_path / "file" / "place", NEW)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
