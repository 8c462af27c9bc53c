"""Words and numbers for people."""

import pytest

from kernelsearch.core.formats import shorten_reason

LISTING = "at 6:12:\ndef k(x_ptr):\n    x = tl.arange(0, 3)\n        ^\narange's range must be a power of 2"


@pytest.mark.parametrize(
    "reason, said",
    [
        (LISTING, "arange's range must be a power of 2"),
        ("needs  300 KB\nof shared memory", "needs 300 KB of shared memory"),
        ("at 6 of 7 rows", "at 6 of 7 rows"),
        ("", ""),
    ],
)
def test_a_compilers_listing_is_its_last_line(reason, said):
    assert shorten_reason(reason) == said
