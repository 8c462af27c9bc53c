"""A task file in the command's folder."""

import pytest
from good_task import GOOD


@pytest.fixture
def good(tmp_path):
    """good.py, which is accepted."""
    path = tmp_path / "good.py"
    path.write_text(GOOD)
    return path
