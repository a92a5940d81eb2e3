# SPDX-License-Identifier: Apache-2.0
"""Two wheels of one tree. All is compiled twice, so that scripts/test leaves it to `--all`."""
from test_wheel import backend, sdist, unpacked  # noqa: F401


def test_wheels_that_are_compiled_at_two_places_and_times_are_equal(box, sdist):  # noqa: F811
    """All is compiled, -O0 for its speed; one tree's files are older than the other's."""
    made = []
    for name, options, umask in (("one", (), 0o022), ("another/place", ("--touch",), 0o077)):
        tree = unpacked(box, sdist, name, *options)
        made.append(tree / backend("build_wheel", tree, root=tree, umask=umask, CCACHE_DISABLE="1",
                                   CTRUN_WHEEL_CMAKE="-DCMAKE_C_FLAGS_RELEASE=-O0"))
    assert made[0].name == made[1].name
    assert made[0].read_bytes() == made[1].read_bytes()
