# SPDX-License-Identifier: Apache-2.0
"""Scripts that start torchrun start ctrun with one word changed: the same ranks and arguments."""
import pytest
import scripts


@pytest.mark.parametrize("name", scripts.SCRIPTS)
def test_a_script_with_one_word_changed_has_the_ranks_and_arguments_it_had(box, name):
    scripts.stage(box)
    before = scripts.SCRIPTS[name][0]
    ranks, words, run = scripts.ranks(box, scripts.for_ctrun(before))
    assert ranks == scripts.expected(name), run
    assert box.events("worker_started"), "it was not ctrun that ran"
    if scripts.has_torch():
        assert (ranks, words) == scripts.ranks(box, before)[:2]
