"""A wheel from files, byte for byte the same for the same files: sorted, with a fixed time (PEP 427, PEP 639)."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from collections.abc import Mapping

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip file can say."""


def wheel(
    distribution: str, version: str, metadata: str, files: Mapping[str, bytes], licence: bytes
) -> tuple[str, bytes]:
    """(File name, content) of a pure Python wheel. files are by their path as installed."""
    name = distribution.replace("-", "_")
    info = f"{name}-{version}.dist-info"
    whole = {
        **files,
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: kernelsearch\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/licenses/LICENSE": licence,
    }
    record = io.StringIO()  # CSV: the tables of configs have a comma in their names
    rows = [(path, _digest(data), len(data)) for path, data in sorted(whole.items())]
    csv.writer(record, lineterminator="\n").writerows([*rows, (f"{info}/RECORD", "", "")])
    whole[f"{info}/RECORD"] = record.getvalue().encode()
    ordered = sorted(whole.items(), key=lambda item: (item[0].startswith(info), item[0]))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path, data in ordered:
            entry = zipfile.ZipInfo(path, EPOCH)
            entry.compress_type, entry.external_attr, entry.create_system = zipfile.ZIP_DEFLATED, 0o644 << 16, 3
            archive.writestr(entry, data)
    return f"{name}-{version}-py3-none-any.whl", buffer.getvalue()


def _digest(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
