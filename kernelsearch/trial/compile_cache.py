"""Answers of compile workers on disk, by content, shared by runs and processes.

A key covers all that decides an answer: canonical source, specialisation with its constexprs and options, target,
precision contract, versions, and the texts of this package's own modules that read a binary. The driver writes the
answers of compile workers, each from a process that executed that one source; entries are read by the channel's
unpickler, which accepts plain data only, and only if the checksum of key and answer is right. A faulty entry counts as
a miss. Timeouts and crashes are not kept: they may not happen again.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from kernelsearch.core.types import Verdict, Word
from kernelsearch.kernel.launch import Specialisation
from kernelsearch.kernel.source import Kernel, canonicalise
from kernelsearch.kernel.targets import Target
from kernelsearch.worker.messages import channel, jobs

MAX_BYTES = 1 << 30
"""Limit of all entries together; the oldest go first."""

_KEPT = 0.8
"""Share of the limit that remains after a clean-up."""

_READERS = ("ir/text.py", "compile/*.py", "verify/precision.py", "kernel/launch.py")
"""Package files whose text is part of the key."""

_DIGEST_BYTES = 32


def default_folder() -> Path:
    """The usual folder of the cache."""
    return Path.home() / ".cache" / "kernelsearch" / "compiled"


@dataclass
class CompileCache:
    """A folder of answers. Every failure of the file system makes a miss, or an answer that is not kept."""

    folder: Path
    versions: Mapping[str, str]
    max_bytes: int = MAX_BYTES
    _added: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def key(self, kernel: Kernel, spec: Specialisation, target: Target, precision: str) -> str:
        """The SHA-256 of all that decides the answer."""
        parts = [*sorted(canonicalise(f.text) for f in kernel.functions), *sorted(kernel.constants)]
        about = repr(
            (spec, target.name, target.capability, target.shared_per_program, precision, sorted(self.versions.items()))
        )
        return hashlib.sha256("\x1f".join([*parts, about, _own_text()]).encode("utf-8", "surrogatepass")).hexdigest()

    def get(self, key: str) -> jobs.Compiled | None:
        path = self._path(key)
        try:
            data = path.read_bytes()
            os.utime(path)  # used now: the clean-up takes the oldest
        except OSError:
            return None
        answer = _unpack(key, data)
        if answer is None:
            _remove(path)
        return answer

    def put(self, key: str, answer: jobs.Compiled) -> None:
        """Keeps a lasting answer. Concurrent writers of one key write the same; the last rename wins."""
        if not _is_lasting(answer.verdict):
            return
        body = zlib.compress(channel.pack(answer), 1)
        path = self._path(key)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
                file.write(_digest(key, body) + body)
            os.replace(file.name, path)
        except OSError:
            return
        with self._lock:
            self._added += len(body)
            clean = self._added > self.max_bytes // 16
            self._added = 0 if clean else self._added
        if clean:
            self.clean()

    def clean(self) -> None:
        """Removes the entries that were not used for longest, until the folder is within its limit."""
        entries = []
        for path in self.folder.glob("*/*"):
            with suppress(OSError):
                about = path.stat()
                entries.append((about.st_mtime, about.st_size, path))
        total = sum(size for _, size, _ in entries)
        if total <= self.max_bytes:
            return
        for _, size, path in sorted(entries):
            if total <= _KEPT * self.max_bytes:
                return
            _remove(path)
            total -= size

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key[2:]


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)


def _digest(key: str, body: bytes) -> bytes:
    return hashlib.sha256(key.encode() + body).digest()


def _unpack(key: str, data: bytes) -> jobs.Compiled | None:
    checksum, body = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    if _digest(key, body) != checksum:
        return None
    try:
        answer = channel.unpack(zlib.decompress(body))
    except (zlib.error, channel.ChannelClosed):
        return None
    return answer if isinstance(answer, jobs.Compiled) else None


def _is_lasting(verdict: Verdict | None) -> bool:
    """Whether an answer would come again: refusals by the compiler or the precision contract, not a worker's fault."""
    return verdict is None or (verdict.word in (Word.COMPILE, Word.PRECISION) and "trace" not in verdict.detail)


@lru_cache(maxsize=1)
def _own_text() -> str:
    root = Path(__file__).resolve().parent.parent
    text = hashlib.sha256()
    for pattern in _READERS:
        for path in sorted(root.glob(pattern)):
            text.update(path.name.encode() + b"\0" + path.read_bytes())
    return text.hexdigest()
