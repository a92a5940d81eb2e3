# SPDX-License-Identifier: Apache-2.0
"""The type hints of `import ctrun`: mypy --strict over the package and over what a user writes."""
import subprocess

import ctrun
import pypi

WRITTEN = """
import io
from typing import Optional
import ctrun

def train(start: int, end: int) -> None:
    facts: ctrun.Run = ctrun.run()
    rank: int = facts.rank
    with ctrun.store() as store:
        store.set(f"from/{rank}", b"")
        store.set("text", "a")
        store.wait(["text"], timeout=3)
        value: bytes = store.get("text")
        count: int = store.add("n") + store.add("n", -1)
        was_there: bool = store.delete("text")
    for step in range(start, end):
        ctrun.step(step)
        ctrun.metric("loss", 0.5)
        ctrun.batch(range(4))
        if ctrun.should_stop():
            with ctrun.hold("last.pt") as file:
                written: int = file.write(b"x")
            break
    ctrun.hold_wait(timeout=60)
    found: Optional[io.BufferedReader] = ctrun.held("last.pt")
    try:
        ctrun.run()
    except ctrun.Error as error:
        code: int = error.code
        text: str = error.text
"""
MISTAKES = {
    'ctrun.step("7")': "arg-type",
    "ctrun.metric(1, 0.5)": "arg-type",
    "rank: str = ctrun.run().rank": "assignment",
    'text: str = ctrun.store().get("key")': "assignment",
    "ctrun.should_stop(1)": "call-arg",
    "ctrun.Run().rank_of": "attr-defined",
}


def mypy(box, *words):
    python = pypi.python_with("mypy")
    return subprocess.run([python, "-m", "mypy", "--strict", "--cache-dir", box.path("cache"), *words], cwd=box.dir,
                          env={"MYPYPATH": str(ctrun.ROOT / "python"), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True)


def test_the_package_itself_has_no_mistake(box):
    """torch, lightning and transformers may be missing."""
    run = mypy(box, "--ignore-missing-imports", "-p", "ctrun")
    assert run.returncode == 0 and "no issues found in 7 source files" in run.stdout, run.stdout + run.stderr


def test_what_a_user_writes_is_taken_and_mistakes_are_found(box):
    assert (ctrun.ROOT / "python/ctrun/py.typed").exists()
    box.write("right.py", WRITTEN)
    box.write("wrong.py", "import ctrun\n" + "\n".join(MISTAKES) + "\n")
    run = mypy(box, "right.py")
    assert run.returncode == 0, run.stdout + run.stderr
    run = mypy(box, "wrong.py")
    for number, (text, kind) in enumerate(MISTAKES.items(), 2):
        assert any(line.startswith(f"wrong.py:{number}: error:") and f"[{kind}]" in line
                   for line in run.stdout.splitlines()), (text, run.stdout)
