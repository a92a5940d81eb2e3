# SPDX-License-Identifier: Apache-2.0
"""--gpu-wait: a restart waits until the memory of the GPUs is free. With our own library of the
driver."""
import os
import re
import signal

import ctrun
import pytest
import schema
from clock import Clock

FAKE = ctrun.BUILD / "tests" / "lib" / "fake_nvml"
pytestmark = pytest.mark.skipif(os.path.exists("/proc/driver/nvidia/gpus"), reason="there is a driver here")

# A file ends the first round; in the second one the agent gets GPU memory, which it does not free.
SCRIPT = """
[ $TORCHELASTIC_RESTART_COUNT = 0 ] && while [ ! -e asked ]; do sleep 0.05; done
[ $TORCHELASTIC_RESTART_COUNT = 1 ] && { echo "$PPID ${MIB:-20480}" >held.new; mv held.new held; }
[ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0
exit $((3 + TORCHELASTIC_RESTART_COUNT))
"""


def start(box, *words, env=None):
    return box.start_ctrun("--max-restarts=3", *words, "--no-python", "sh", "-c", SCRIPT, env={
        "LD_LIBRARY_PATH": str(FAKE), "FAKE_NVML_HELD": str(box.path("held")),
        "FAKE_NVML_ASKED": str(box.path("asked")), **(env or {})})


def test_a_restart_waits_for_gpu_memory_and_names_its_holder(box):
    run = start(box, "--gpu-wait=600")
    [held] = box.wait_event("gpu_memory_held")
    assert re.fullmatch(r"pid \d+ \(ctrun-agent\) still holds 20\.0 GiB of GPU 0000:17:00\.0", held["text"]), held
    assert (held["generation"], held["is_over"]) == (2, 0), held
    told = f"waiting up to 5 min 0 s for GPU memory (--gpu-wait): {held['text']}\n"
    ctrun.wait_until(lambda: told in run.err, lambda: f"{told}{run}")  # printed after the event
    assert len(box.events("round_started")) == 2
    box.path("held").unlink()
    assert run.wait() == 0, run
    assert len(box.events("gpu_memory_held")) == 1
    for event in box.events():
        schema.check(event, "events")


def test_the_wait_has_an_end(box):
    clock = Clock(box)
    run = start(box, "--gpu-wait=100", "--rdzv-conf=keep_alive_interval=1000", env=clock.env)
    box.wait_event("gpu_memory_held")
    clock.advance(100)
    assert run.wait() == 0, run
    first, last = box.events("gpu_memory_held")
    assert (first["is_over"], last["is_over"]) == (0, 1)
    assert f"starting anyway: {last['text']}\n" in run.err, run


def test_a_signal_ends_the_wait(box):
    run = start(box, "--gpu-wait=600")
    box.wait_event("gpu_memory_held")
    run.signal(signal.SIGTERM)
    assert run.wait() == 143, run


def test_another_program_that_has_most_of_a_gpu_before_the_first_start_is_named(box):
    holder = box.start("sleep", "1000")
    box.write("held", f"{holder.pid} {(39 << 10) + 1}")  # and the driver's own GiB: 1 MiB above half of 80 GiB
    box.write("asked", "")
    run = start(box)
    told = f"ctrun: warning: GPU memory is in use before the first start: pid {holder.pid} (sleep) holds 39.0 GiB of " \
        "GPU 0000:17:00.0\n"
    ctrun.wait_until(lambda: told in run.err, lambda: f"{told}{run}")
    ctrun.stop(run, holder)


def test_half_of_a_gpu_is_nothing_to_name(box):
    holder = box.start("sleep", "1000")
    box.write("held", f"{holder.pid} {39 << 10}")
    run = start(box, env={"MIB": str(60 << 10)})
    box.wait_event("gpu_memory_held")  # so the first look is over, and has seen less than this
    box.path("held").unlink()
    assert run.wait() == 0 and "before the first start" not in run.err, run
    ctrun.stop(holder)


def test_0_does_not_look(box):
    box.write("asked", "")
    run = start(box, "--gpu-wait=0")
    assert run.wait() == 0 and not box.events("gpu_memory_held"), run
    assert box.ctrun("--gpu-wait=-1", "true").code == 2
