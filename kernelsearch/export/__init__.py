"""Writes confirmed kernels as things that others install: a pip package, a table of configs.

`choose` reads the record, `examine` and `ship` read the task file, `launches` turns a launch spec into Python,
and `package` puts the files together. `templates` holds the code that runs on the machine of the package's user: it
needs torch and triton, and nothing of this project.
"""

import json
from typing import Any

import jinja2

from kernelsearch.core.errors import KernelsearchError
from kernelsearch.core.formats import make_printable

TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader(__name__),
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=jinja2.StrictUndefined,
)


def quote(value: Any) -> str:
    """A text, a number or a list as code: what JSON writes of them is Python and TOML as well."""
    return json.dumps(make_printable(value) if isinstance(value, str) else value, ensure_ascii=False)


def quote_text(text: str) -> str:
    """The one way in which a text that somebody wrote gets into a docstring or a page: a line, which ends none."""
    return quote(" ".join(text.split()))[1:-1]


TEMPLATES.filters |= {"quote": quote, "text": quote_text}


class ExportError(KernelsearchError):
    """There is nothing to export, or a part of it cannot be shipped; the sentence says why and what to do."""


def cannot_ship(file: str, why: str) -> ExportError:
    """The error for a task file (its name) of which a package cannot be made."""
    return ExportError(f"{file} cannot be shipped: {why}")


def render(template: str, **values: Any) -> str:
    """The text of one of the export's Jinja templates."""
    return TEMPLATES.get_template(template).render(values)
