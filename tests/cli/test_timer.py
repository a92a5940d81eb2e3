# SPDX-License-Identifier: Apache-2.0
"""The file timer: a worker is killed unless it releases its timer in time."""
import stat

import ctrun
import launch
import pytest

ON = {"TORCHELASTIC_ENABLE_FILE_TIMER": "1"}

# set_timer SCOPE SECONDS-FROM-NOW SIGNAL; negative seconds since 1970 release.
FUNCTIONS = """format() {
    printf '{"version": 1, "pid": %d, "scope_id": "%s", "expiration_time": %s, "signal": %d}\\n' "$@"
}
line() { format "$@" >"$TORCHELASTIC_TIMER_FILE"; }
set_timer() { line $$ "$1" "$(($(date +%s%N) / 1000000 + $2 * 1000))e-3" "$3"; }
"""


def script(box, text):
    return box.write("worker.sh", "#!/bin/sh\n" + FUNCTIONS + text, 0o755)


def left_pipes(box):
    return list(box.dir.glob("watchdog_timer_*"))


def test_torchrun_120_an_expired_timer_kills_its_worker_with_its_signal(box):
    worker = script(box, '[ -p "$TORCHELASTIC_TIMER_FILE" ] || exit 9\n'
                         "set_timer forward 0 10\nsleep 60\n")
    run = box.ctrun(worker, env=ON)
    assert run.code == 128 + 10, run
    assert "timer expired: scope forward; sent SIGUSR1" in run.err
    assert box.events("timer_expired")[0]["scope"] == "forward"
    assert not left_pipes(box)


def test_torchrun_120_the_pipe_is_where_the_user_wants_it(box):
    path = box.write("timer", "in the way")
    run = box.ctrun("sh", "-c", f'[ "$TORCHELASTIC_TIMER_FILE" = {path} ] && [ -p {path} ]',
                    env={**ON, "TORCHELASTIC_TIMER_FILE": path})
    assert run.code == 0, run
    assert not box.path("timer").exists()


@pytest.mark.parametrize("value", ["0", "yes", ""])
def test_torchrun_120_no_pipe_unless_it_is_asked_for(box, value):
    dump = launch.Dump(box)
    run = box.ctrun(dump.program, env={**dump.env, "TORCHELASTIC_ENABLE_FILE_TIMER": value})
    assert run.code == 0 and "TORCHELASTIC_TIMER_FILE" not in dump.environments()[0]


def test_torchrun_121_a_released_timer_is_off_and_a_new_line_replaces_the_old(box):
    # In one write, so that the agent reads all lines before it looks at the first timer.
    worker = script(box, 'lines="$(format $$ a 1 9; format $$ b 1 9; format $$ c 9e9 9;\n'
                         'format $$ a -1 0; format $$ b 9e9 9; format $$ c 1 10)"\n'
                         "printf '%s\\n' \"$lines\" >\"$TORCHELASTIC_TIMER_FILE\"\nsleep 60\n")
    run = box.ctrun(worker, env=ON)
    assert run.code == 128 + 10, run
    assert [event["scope"] for event in box.events("timer_expired")] == ["c"]


def test_torchrun_151_the_other_workers_are_stopped_and_the_pipe_is_removed(box):
    worker = script(box, '[ "$RANK" = 1 ] && set_timer step 0 9\nsleep 60\n')
    run = box.ctrun("--nproc-per-node=2", "--exit-code=torchrun", worker, env=ON)
    assert run.code == 1, run
    assert run.err.splitlines()[-1].startswith("=") and "exitcode  : -9 (pid: " in run.err
    assert "rank 1" in run.err.split("last lines")[0]
    assert not left_pipes(box)


def test_an_expired_timer_uses_a_restart_and_is_forgotten_in_the_next_round(box):
    worker = script(box, 'if [ "$TORCHELASTIC_RESTART_COUNT" = 0 ]; then\n'
                         "set_timer later 600 9; set_timer step 0 9; sleep 60\nfi\n")
    run = box.ctrun("--max-restarts=1", worker, env=ON)
    assert run.code == 0, run
    assert len(box.events("timer_expired")) == 1


@pytest.mark.parametrize("trap,code", [("trap '' TERM", 137), ("trap 'exit 0' TERM", 143)])
def test_a_worker_cannot_talk_itself_out_of_its_timer(box, trap, code):
    worker = script(box, f"{trap}\nset_timer step 0 15\nwhile :; do sleep 0.05; done\n")
    run = box.ctrun("--shutdown-timeout=1", worker, env=ON)
    assert run.code == code, run
    assert "timer expired: scope step; sent SIGTERM" in run.err


def test_a_child_of_a_worker_stands_for_it(box):
    worker = script(box, "sh -c '. ./functions; set_timer child 0 9; sleep 60'\n")
    box.write("functions", FUNCTIONS)
    run = box.ctrun(worker, env=ON)
    assert run.code == 137 and "scope child" in run.err, run


def test_lines_of_other_processes_and_rubbish_do_nothing(box):
    other = box.start("sleep", "60")
    worker = script(box, f"line {other.pid} x 0 9\nline 1 x 0 9\nline -1 x 0 9\nline 0 x 0 9\n"
                         "pipe=$TORCHELASTIC_TIMER_FILE\n"
                         "{ echo; echo not json; echo '[[[['; echo '{}'; "
                         "echo '{\"pid\": \"a\"}'; } >$pipe\n"
                         "head -c 100000 /dev/zero | tr '\\0' x >$pipe; echo >$pipe\n"
                         f"line $$ x 0 999\nset_timer after 0 10\nsleep 60\n")
    run = box.ctrun(worker, env=ON)
    assert run.code == 128 + 10, run  # it still reads what is meant for it
    assert other.code is None
    other.signal(9)


def test_the_pipe_is_nobody_elses(box):
    run = box.start_ctrun("sh", "-c", "while [ ! -e go ]; do sleep 0.05; done", env=ON)
    box.wait_event("worker_started")
    assert stat.S_IMODE(left_pipes(box)[0].stat().st_mode) == 0o600
    box.write("go", "")
    assert run.wait() == 0


TORCH = """import os
from torch.distributed.elastic import timer
from torch.distributed.elastic.timer.file_based_local_timer import FileTimerClient
timer.configure(FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))
with timer.expires(after=600, scope="passes"):
    pass
with timer.expires(after=0.2, scope="hangs"):
    import time
    time.sleep(60)
"""


def test_torchrun_120_121_the_client_of_pytorch_works(box):
    probe = box.run(ctrun.DEBIAN_PYTHON, "-c",
                    "import importlib.util as u; raise SystemExit(u.find_spec('torch') is None)")
    if probe.code != 0:
        pytest.skip("no torch for " + ctrun.DEBIAN_PYTHON)
    run = box.ctrun("--no-python", ctrun.DEBIAN_PYTHON, box.write("t.py", TORCH), env=ON)
    assert run.code == 137 and "scope hangs" in run.err, run
