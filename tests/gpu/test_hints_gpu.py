"""On a GPU: kernels with one fault each are diagnosed rightly with measured times, healthy ones raise no alarm."""

import binary_alone
import pytest

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("path", binary_alone.KERNELS, ids=lambda p: p.stem)
def test_the_one_fault_is_the_first_hint(path, run):
    said = binary_alone.said(path)
    found = run("hints", path, "--json")
    assert found.code == 0, found.err
    (shape,) = found.json["shapes"]
    assert shape["evidence"] == "measured"
    first = shape["hints"][0]
    assert binary_alone.agrees(said, first["bottleneck"], first["suggestion"].partition(":")[0]), shape
    assert (first["lost"] == 0) == (said["fault"] == "none"), shape
