# SPDX-License-Identifier: Apache-2.0
"""The programs print what the manual pages quote, and accept the examples as a reader sees them."""
import html
import os
import pathlib
import re
import shutil
import subprocess

import ctrun
import pytest

MAN = ctrun.ROOT / "man"
PAGES = sorted(path.name for path in MAN.glob("*.[1-8]"))
DIAGRAMS = ("FORMING ->", "launcher ->", "waiting ->")
STUBS = {  # stand-ins for programs of a cluster
    "srun": 'while [ "${1#-}" != "$1" ]; do [ "$1" != -w ] || shift; shift; done; exec "$@"',
    "squeue": "echo 2030-01-01T00:00:00",
    "scontrol": 'echo "$@" >>scontrol.log',
    "apptainer": "exit 0",
}
ELSEWHERE = ("srun", "--hosts", "--nnodes", "mnist", "--rdzv-endpoint", "apptainer", "gpu")
# A rank that lives until it is ended.
LIVES = """import os, pathlib, signal, sys, time
signal.signal(signal.SIGUSR1, lambda *_: print("got USR1", flush=True))
print("hello", *sys.argv[1:], flush=True)
pathlib.Path("up." + os.environ["RANK"]).touch()
while True: time.sleep(0.05)
"""
pytestmark = pytest.mark.skipif(not shutil.which("mandoc"), reason="no mandoc here")


def examples():
    """[(page, text)] of the pages as they are shown: the lines that stand by themselves."""
    found = []
    for page in PAGES if shutil.which("mandoc") else []:
        shown = subprocess.run(["mandoc", "-T", "html", str(MAN / page)], capture_output=True,
                               text=True, check=True).stdout
        for line, block in re.findall(r'<div class="Bd Bd-indent">\s*<code class="Li">(.*?)</code>'
                                      r"|<pre>(.*?)</pre>", shown, re.S):
            text = html.unescape(re.sub(r"<[^>]*>", "", line or block)).strip()
            found.append((page, " ".join(text.split()) if line else text))
    return found


@pytest.fixture
def cluster(box):
    """The environment of a shell on a machine with Slurm and ctrun."""
    box.path("bin").mkdir()
    for name, body in STUBS.items():
        box.write(f"bin/{name}", f"#!/bin/sh\n{body}\n", 0o755)
    for name in ("train", "serve"):
        box.write(name, "#!/bin/sh\n", 0o755)
    box.write("train.py", "")
    box.write("plan", "at 1s kill rank=0\n")
    folder = pathlib.Path(ctrun.program("ctrun")).parent
    return {"PATH": f"{box.path('bin')}:{folder}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}


def test_every_page_with_examples_shows_them():
    counts = {page: len(re.findall(r"^\.(?:Dl|Bd -literal)", (MAN / page).read_text(), re.M))
              for page in PAGES}
    shown = [page for page, _ in examples()]
    assert {page: shown.count(page) for page in PAGES} == counts


def test_the_example_of_a_wrong_command_line_is_refused_as_it_says(box):
    said = re.search(r"^\.Ql (unrecognized arguments: (\S+))$", (ctrun.ROOT / "man/ctrun-errors.7").read_text(), re.M)
    run = box.ctrun(said.group(2), "true")
    assert run.code == 2 and f"error[E_USAGE]: {said.group(1)}" in run.err, run


@pytest.mark.parametrize("page, text", examples(), ids=lambda value: value[:40])
def test_an_example_is_accepted_as_it_is_shown(box, cluster, page, text):
    """Those of several machines, and those that train, run as --dry-run, which starts nothing; ctrunctl finds no run."""
    if text.startswith(DIAGRAMS):
        return
    if text.startswith("struct"):
        box.write("x.c", "#include <ctrun.h>\nint f(float *data, size_t count);\n"
                  f"int f(float *data, size_t count) {{ {text}\nreturn 0; }}\n")
        run = box.run(os.environ.get("CC", "cc"), f"-I{ctrun.ROOT}/worker_sdk/include", "-Wall",
                      "-Werror", "-fsyntax-only", "x.c")
        assert run.code == 0, run
        return
    if text.startswith("#"):
        run = box.ctrun("--config", box.write("x.conf", text + "\n"), "--nproc-per-node=1",
                        "--print-config", "train.py")
        assert run.code == 0, run
        return
    if text.startswith("words "):
        run = box.ctrun("--failure-rules", box.write("rules", text + "\n"), "--print-config", "train.py")
        assert run.code == 0, run
        return
    if text.startswith("seed "):  # a plan that cannot be read is E_USAGE
        run = box.run(ctrun.program("ctrunctl"), "chaos", box.write("plan", text + "\n"),
                      env={"CTRUN_CONTROL_DIR": str(box.path("control"))})
        assert run.code == 1 and "E_NOT_FOUND" in run.err, run
        return
    if text.startswith("import "):
        compile(text, page, "exec")
        return
    text = text.replace("--stage=/nfs/venv,", "--stage=")  # does not exist here
    script = box.write("x.sh", text + "\n")
    assert box.run("bash", "-n", script).code == 0
    command = text.split()[0]
    if command in ("cmake", "ctrund") or ("jq" in text and not shutil.which("jq")):
        return
    env = {**cluster, "CTRUN_CONTROL_DIR": str(box.path("control")), "PYTHON_EXEC": ctrun.DEBIAN_PYTHON}
    if "jq" not in text and any(word in text for word in ELSEWHERE):  # jq reads what a run has written
        env["CTRUN_DRY_RUN"] = "1"
    run = box.run("bash", script, env=env)
    if command == "ctrunctl" or "--overlap" in text:
        assert run.code == 1 and "E_NOT_FOUND" in run.err, run
    else:
        assert run.code == 0 and "not found" not in run.err, run


def ctrunctl_lines():
    """The lines of examples that speak to a run on this machine."""
    lines = [line for _, text in examples() for line in text.splitlines() if line.startswith("ctrunctl ")]
    return list(dict.fromkeys(lines))


@pytest.mark.parametrize("line", ctrunctl_lines())
def test_an_example_of_ctrunctl_does_its_work_on_a_live_run(box, cluster, line):
    box.write("train.py", LIVES)
    run = box.start_ctrun("--nproc-per-node=4", "--allow-chaos", "--max-restarts=20", "-r3", "--log-dir=logs", "train.py",
                          env={"PYTHON_EXEC": ctrun.DEBIAN_PYTHON})
    ctrun.wait_until(lambda: all(box.path(f"up.{rank}").exists() for rank in range(4)), lambda: f"up\n{run}")
    done = box.start("bash", "-c", line, env=cluster)
    if " -f" in line:  # it ends with the run
        ctrun.wait_until(lambda: "hello" in done.out, lambda: f"a line\n{done}")
        run.signal(15)
    assert done.wait() == 0, done
    if "USR1" in line:
        ctrun.wait_until(lambda: sum("got USR1" in path.read_text() for path in box.path("logs").rglob("stdout.log")) == 4,
                         lambda: f"each rank has it\n{run}")
    run.signal(15)
    assert run.wait() == 143, run


def test_the_examples_of_ctrunctl_are_found():
    assert {line.split()[1] for line in ctrunctl_lines()} >= {"status", "signal", "logs", "reload", "chaos", "stop"}


def test_the_example_of_ctrund_is_a_run_of_two_nodes(box):
    """As shown, but for the port and the name of the host."""
    text, = [text for page, text in examples() if text.startswith("ctrund ")]
    serve, node = text.replace("\\\n", "").split("\n", 1)
    box.write("secret", "sixteen bytes at least\n", 0o600)
    box.write("train.py", "import os\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])\n")
    served = box.start(ctrun.program("ctrund"), *serve.split()[1:], "--listen=127.0.0.1:0")
    port = ctrun.wait_until(lambda: re.search(r"^listening on 127.0.0.1:(\d+)$", served.out, re.M),
                            lambda: f"the port\n{served}")[1]
    words = node.replace("service1:29400", f"127.0.0.1:{port}").split()[1:]
    runs = [box.start_ctrun("--rdzv-conf=last_call_timeout=30,join_timeout=60", *words, env={"PYTHON_EXEC": ctrun.DEBIAN_PYTHON})
            for _ in range(4)]  # the most that it allows: no last call is waited for
    assert [run.wait() for run in runs] == [0] * 4, runs
    assert sorted(line.split()[-3:] for run in runs for line in run.out.splitlines()) == \
        [[str(rank), "of", "8"] for rank in range(8)], runs
    ctrun.stop(served)


def test_the_examples_of_cmake_set_what_there_is():
    sources = "".join(path.read_text() for path in (ctrun.ROOT / "CMakeLists.txt", *(ctrun.ROOT / "cmake").glob("*.cmake")))
    names = [name for _, text in examples() if text.startswith("cmake ") for name in re.findall(r" -D(CTRUN_\w+)=", text)]
    assert len(names) >= 2
    assert [name for name in names if not re.search(rf"^(?:option|set)\({name}\b.*(?:CACHE|OFF\)|ON\))", sources, re.M)] == []


@pytest.mark.parametrize("code", [0, 1, 75])
def test_the_job_is_requeued_after_75_alone_and_keeps_its_code(box, cluster, code):
    text, = [text for page, text in examples() if "scontrol requeue" in text]
    box.write("bin/srun", f"#!/bin/sh\nexit {code}\n", 0o755)
    run = box.run("bash", box.write("x.sh", text + "\n"), env=cluster)
    assert run.code == code, run
    assert box.path("scontrol.log").exists() == (code == 75), run


# ---- Quotes --------------------------------------------------------------------------------


VALUE = r"\S*\d\S*(?: (?:s|GB)\b)?|'[^']*'\S*|SIG[A-Z]+\S*|/\S+|no-such-program:"


def printed():
    """All strings of the sources, without what formats insert."""
    texts = []
    for folder in ("agent", "launcher", "rendezvous", "worker_sdk"):
        for path in sorted((ctrun.ROOT / folder).rglob("*.[ch]")):
            if path.name == "error.h" and path.parent.name == "base":
                continue  # texts for codes alone, which ctrun prints only where nothing better is known
            source = re.sub(r"/\*.*?\*/", " ", path.read_text(), flags=re.S)
            for match in re.finditer(r'"(?:\\.|[^"\\])*"(?:[\s\\]*"(?:\\.|[^"\\])*")*', source):
                joined = "".join(re.findall(r'"((?:\\.|[^"\\])*)"', match[0]))
                texts.append(re.sub(r"%[-+ #0-9.*]*(?:ll|l|z|h)?[a-zA-Z]", "\0", joined))
    return "\1".join(texts)


def test_each_text_that_ctrun_errors_quotes_is_printed():
    """The words between its values; a sentence may be put together from two strings."""
    texts = printed()
    quotes = re.findall(r"^\.It Sy .*\n\.Ql (.*)", (MAN / "ctrun-errors.7").read_text(), re.M)
    assert len(quotes) > 30
    for quote in quotes:
        for words in (run.split() for run in re.split(VALUE, quote)):
            pieces = 0
            while words:
                most = next((n for n in range(len(words), 0, -1)
                             if " ".join(words[:n]).strip(" ,;()") in texts), 0)
                assert most, (quote, words[0])
                words = words[most:]
                pieces += 1
            assert pieces <= 2, (quote, pieces)
