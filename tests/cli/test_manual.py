# SPDX-License-Identifier: Apache-2.0
"""Manual pages, --help and completion scripts against each other: whoever adds an option to one
table is told what else must name it."""
import re
import shutil
import subprocess

import ctrun
import pytest

VERBS = ["status", "signal", "stop", "logs", "kv", "why", "doctor", "migrate"]
PAGES = {"ctrun": "ctrun.1", "ctrunctl": "ctrunctl.1", "ctrund": "ctrund.8",
         "ctrun-mnist": "ctrun-mnist.1"}
OPTION = r"(?:-(\w), )?--([a-z][a-z-]*)(?:[= ](\S+))?"


def page_options(name):
    """The tags of the page's lists: {option: (letter, value)}."""
    text = subprocess.run(["mandoc", "-T", "utf8", "-O", "width=200",
                           str(ctrun.ROOT / "man" / PAGES[name])],
                          capture_output=True, text=True, check=True).stdout
    text = re.sub(r".\x08", "", text)
    found = {}
    for line in text.splitlines():
        match = re.fullmatch(r" {5}" + OPTION + r"(?:  .*)?", line)
        if match:
            found[match[2]] = (match[1], match[3])
    return found


def help_text(box, name):
    if name != "ctrunctl":
        return box.run(ctrun.program(name), "--help").out
    verbs = re.findall(r"^  (\w+) ", box.run(ctrun.program(name), "--help").out, re.M)
    assert set(VERBS) <= set(verbs)
    return "\n".join(box.run(ctrun.program(name), verb, "--help").out for verb in verbs)


def help_options(box, name):
    """{option: (letter, placeholder, its help)}."""
    text = help_text(box, name)
    found = {}
    for match in re.finditer(r"^ {2,6}(?:-(\w), )?--([a-z][a-z-]*)(?: (\S+))?(?:(?: {2,}| (?=\w)|\n"
                             r" +(?!-))(.*(?:\n {16,}.*)*))?$", text, re.M):
        value = match[3]
        if value and not re.match(r"[A-Z\[<]|.*\|", value):
            value = None  # the first word of the help
        found[match[2]] = (match[1], value, match[4] or "")
    return found


@pytest.mark.skipif(not shutil.which("mandoc"), reason="no mandoc here")
@pytest.mark.parametrize("name", PAGES)
def test_each_option_is_in_the_manual_with_its_letter_and_value_and_no_other(box, name):
    told, written = help_options(box, name), page_options(name)
    if name == "ctrunctl":  # not of a verb
        for word in ("print-completion", "version"):
            assert written.pop(word, None) is not None, word
    assert set(told) == set(written), set(told) ^ set(written)
    for option, (letter, value, text) in told.items():
        assert letter == written[option][0], option
        theirs = written[option][1]
        if (value or "").lower() == (theirs or "").lower():
            continue
        # The page may spell the words out that the placeholder stands for.
        assert value and theirs and "|" in theirs, (option, value, theirs)
        for word in theirs.split("|"):
            assert re.search(rf"\b{re.escape(word)}\b", text), (option, word, text)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("name", ["ctrun", "ctrunctl"])
def test_each_option_is_completed_in_every_shell(box, name, shell):
    run = box.run(ctrun.program(name), "--print-completion", shell)
    assert run.code == 0, run
    prefix = "-l " if shell == "fish" else "--"
    for option in help_options(box, name):
        if option != "use-env" and not (shell == "fish" and option == "help"):
            assert re.search(rf"{prefix}{option}\b", run.out), option
    if name == "ctrunctl":
        for verb in VERBS:
            assert re.search(rf"\b{verb}\b", run.out), verb
    if shutil.which(shell):
        assert box.run(shell, "-n", box.write("script", run.out)).code == 0


def test_a_completion_for_no_shell_is_refused(box):
    for words in (["nosuch"], []):
        run = box.run(ctrun.program("ctrunctl"), "--print-completion", *words)
        assert run.code == 2 and "bash, zsh or fish" in run.err


@pytest.mark.parametrize("typed, meant", [("--print-c=bash", "--rdzv-backend"),
                                          ("--h", "usage: ctrun")])
def test_an_abbreviation_of_torchruns_keeps_its_meaning_beside_our_own_options(box, typed, meant):
    """--print-config and --hosts are ours; torchrun knows --print-completion and --help alone."""
    run = box.ctrun(typed)
    assert run.code == 0 and meant in run.out.replace("rdzv_backend", "rdzv-backend"), run


def test_an_abbreviation_of_ours_alone_works_and_an_ambiguous_one_is_refused(box):
    run = box.ctrun("--print-conf", "true")
    assert run.code == 0 and "nnodes" in run.out, run
    run = box.ctrun("--hosts-", "x", "true")
    assert run.code == 2 and "ambiguous" in run.err and "--hosts-file" in run.err, run
