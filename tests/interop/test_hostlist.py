# SPDX-License-Identifier: Apache-2.0
"""Our hostlists compared with Slurm's own: thousands of random ones, valid and not."""
import os
import random
import shutil
import subprocess

import ctrun
import pytest

TOGETHER = 250  # valid lists that one call of scontrol expands
SEED = int(os.environ.get("CTRUN_TEST_SEED", "27"))


@pytest.fixture
def scontrol(box):
    program = shutil.which("scontrol")
    if not program:
        pytest.skip("scontrol is not installed")
    env = {**os.environ, "SLURM_CONF": box.write("slurm.conf",
                                                 "ClusterName=x\nSlurmctldHost=localhost\n")}

    def ask(text):
        done = subprocess.run([program, "show", "hostnames", text], env=env, timeout=60,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True)
        return done.returncode == 0 and "nvalid" not in done.stderr, done.stdout.split()

    if not ask("n[1-2]")[0]:
        pytest.skip("scontrol does not work here")
    return ask


def ours(lists):
    out = subprocess.run([ctrun.program("hostnames"), *lists], capture_output=True, text=True,
                         timeout=60, check=True).stdout
    found = [[]]
    for line in out.splitlines():
        if line in ".!":
            found[-1] = (line == ".", found[-1])
            found.append([])
        else:
            found[-1].append(line)
    return found[:-1]


def number(r):
    return str(r.choice([r.randrange(10), r.randrange(200), r.randrange(5000)])).zfill(
        r.choice([1, 1, 2, 3, 4]))


def ranges(r):
    parts = []
    for _ in range(r.randrange(1, 4)):
        first = number(r)
        last = str(int(first) + r.randrange(12)).zfill(len(first))
        parts.append(first if r.random() < 0.4 else f"{first}-{last}")
    return f"[{','.join(parts)}]"


def item(r):
    name = r.choice(["n", "gpu-", "node", "a.b", "r1x", "x_y", ""])
    text = name or "h"
    for depth in range(r.choice([0, 1, 1, 1, 2])):
        text = (name if depth == 0 else text + r.choice(["", "n", "-"])) + ranges(r)
    return text


def valid(r):
    return r.choice([",", ",", ",,", " "]).join(item(r) for _ in range(r.randrange(1, 4)))


def test_t27_ten_thousand_hostlists_are_what_scontrol_makes_of_them(scontrol):
    r = random.Random(SEED)
    lists = [valid(r) for _ in range(10000)]
    for at in range(0, len(lists), TOGETHER):
        some = lists[at:at + TOGETHER]
        parsed = ours(some)
        assert all(is_valid for is_valid, _ in parsed), (
            SEED, [text for text, (good, _) in zip(some, parsed) if not good])
        good, names = scontrol(",".join(some))
        assert good and [name for _, one in parsed for name in one] == names, (SEED, some)


@pytest.mark.parametrize("text", [
    "gpu-[01-02]x", "n[001-003,7],gpu-[01-02]x", "n[3-1]", "n[]", "a[b-d]", "n[1-10:2]", "n[-1]",
    "n[1--2]", "n[1-3]]", "x[1-2]y[3-4]z", "n[1-70000]"])
def test_what_scontrol_refuses_is_refused(scontrol, text):
    good, names = scontrol(text)
    assert not good or not names, (text, names)
    assert ours([text])[0][0] is False, text
