# SPDX-License-Identifier: Apache-2.0
"""Under a real Slurm no option for nodes, order, endpoint or run id is needed."""
import ctrun
import jax_job


def srun(box, slurm, *words, seconds=60):
    run = slurm.start("login1", "srun", *words)
    return run.wait(seconds), run


def test_srun_alone_makes_one_world_of_two_nodes(box, slurm):
    script = 'echo "$RANK/$WORLD_SIZE $GROUP_RANK $(hostname) $TORCHELASTIC_RUN_ID"'
    code, run = srun(box, slurm(2), "-N2", "--ntasks-per-node=1", ctrun.program("ctrun"),
                     "--nproc-per-node=2", "--no-python", "sh", "-c", script)
    assert code == 0, run
    lines = sorted(run.out.split("\n")[:-1])
    assert [line.rsplit(" ", 1)[0] for line in lines] == [
        "0/4 0 node1", "1/4 0 node1", "2/4 1 node2", "3/4 1 node2"], run
    assert len({line.rsplit(" ", 1)[1] for line in lines}) == 1, run
    assert lines[0].rsplit(" ", 1)[1].startswith("slurm-"), run


def test_a_failing_rank_ends_the_step_with_its_code_on_both_nodes(box, slurm):
    code, run = srun(box, slurm(2), "-N2", "--ntasks-per-node=1", ctrun.program("ctrun"),
                     "--no-python", "sh", "-c", '[ $RANK = 0 ] || exit 7; exec sleep 600')
    assert code == 7, run
    assert run.err.count("rank 1 (node2") == 2, run


def test_jax_without_arguments_is_one_world_of_all_workers(box, slurm):
    python = jax_job.interpreter()
    code, run = srun(box, slurm(2), "-N2", "--ntasks-per-node=1", f"--export=ALL,PYTHON_EXEC={python}", ctrun.program("ctrun"),
                     "--nproc-per-node=2", "--jax", jax_job.SCRIPT, seconds=200)
    assert code == 0 and jax_job.worlds(run) == jax_job.expected(4), run
