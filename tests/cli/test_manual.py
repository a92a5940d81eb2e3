# SPDX-License-Identifier: Apache-2.0
"""Manual pages, --help and completion scripts must name the same options: an option that is added
in one table and missing elsewhere makes a test fail."""
import re
import shutil
import subprocess

import ctrun
import pytest

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


def verbs(box):
    """The verbs that --help lists."""
    found = re.findall(r"^  (\w+) ", box.run(ctrun.program("ctrunctl"), "--help").out, re.M)
    assert "status" in found
    return found


def help_text(box, name):
    if name != "ctrunctl":
        return box.run(ctrun.program(name), "--help").out
    return "\n".join(box.run(ctrun.program(name), verb, "--help").out for verb in verbs(box))


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
    if name == "ctrunctl":  # options of no verb
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


def test_the_synopsis_of_ctrunctl_has_each_verb_with_its_options(box):
    page = (ctrun.ROOT / "man" / "ctrunctl.1").read_text()
    synopsis = page[page.index(".Sh SYNOPSIS"):page.index(".Sh DESCRIPTION")]
    forms = {}
    for form in synopsis.split(".Nm\n"):
        match = re.match(r"\.Cm (\w+)\n", form)
        if match:
            forms[match[1]] = form
    assert set(forms) == set(verbs(box)), set(forms) ^ set(verbs(box))
    for verb, form in forms.items():
        told = re.findall(r"^ {2,6}(?:-(\w), )?--([a-z-]+)",
                          box.run(ctrun.program("ctrunctl"), verb, "--help").out, re.M)
        written = set(re.findall(r"Fl -?([a-z]+(?:-[a-z]+)*)", form))
        for letter, option in told:
            assert option == "help" or written & {letter, option}, (verb, option)
        assert written <= {word for pair in told for word in pair}, (verb, written)


def test_the_manual_lists_what_is_set_for_a_worker(box):
    page = (ctrun.ROOT / "man/ctrun.1").read_text().partition("Set for every worker:")[2].partition(".Ss ")[0]
    run = box.run("env", "-i", f"TMPDIR={box.dir}", ctrun.program("ctrun"), "--nproc-per-node=2", "--jax",
                  "--port-range=20000-30000", "--net=lo", "--survive=sdk", "--survive-replace=1", "/usr/bin/env")
    names = set(re.findall(r"^(\w+)=", run.out, re.M)) - {"TMPDIR", "PWD", "SHLVL", "_"}
    jax = {name for name in names if name.startswith(("JAX_", "SLURM_"))}  # the page has these at --jax
    assert run.code == 0 and {"RANK", "CTRUN_NET", "CTRUN_MAY_GROW"} <= names and jax, run
    assert not [name for name in names - jax if not re.search(rf"\b{name}\b", page)]


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
        for verb in verbs(box):
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


def test_each_exported_function_has_a_page(tmp_path):
    root = ctrun.ROOT
    subprocess.run(["awk", "-v", f"to={tmp_path}", "-f", root / "man/header_pages.awk", root / "man/libctrun.3",
                    root / "worker_sdk/include/ctrun.h"], check=True)
    texts = {page.name: page.read_text() for page in tmp_path.iterdir()}
    leads = {name: text for name, text in texts.items() if text.startswith(".so ")}
    pages = {name: text for name, text in texts.items() if name not in leads}
    named = {name: page for page, text in pages.items() for name in re.findall(r"^\.Nm (\w+)", text, re.M)}
    exported = re.findall(r"^ +(ctrun_\w+);", (root / "worker_sdk/libctrun.map").read_text(), re.M)
    assert sorted(named) == sorted(exported)
    assert leads == {f"{name}.3": f".so man3/{page}\n" for name, page in named.items() if page != f"{name}.3"}
    for name, page in named.items():
        synopsis, _, description = pages[page].partition(".Sh SYNOPSIS\n")[2].partition(".Sh DESCRIPTION\n")
        assert len(re.findall(rf"\b{name}\(", synopsis)) == 1 and f"{name}(" in description, name
    # A text is right behind what it is about.
    assert "size_t ctrun_zero_total(const struct ctrun_zero *zero);\n.Ed\n.Pp\nElements of" in pages["ctrun_zero.3"]
    assert "struct ctrun_shards;\n.Ed\n.Pp\nA folder of" in pages["ctrun_shards.3"]
    overview = (root / "man/libctrun.3").read_text()
    assert sorted(re.findall(r"Xr (ctrun_\w+) 3", overview.partition(".Sh STOPPING")[0])) == \
        sorted(name[:-2] for name in pages)
    assert "It Dv CTRUN_E_UNREACHABLE\nthe peer cannot be reached\n" in pages["ctrun_store.3"]
    if shutil.which("mandoc"):
        subprocess.run(["mandoc", "-T", "lint", "-W", "warning", *(tmp_path / name for name in pages)], check=True)


@pytest.mark.skipif(not shutil.which("groff"), reason="no groff here")
@pytest.mark.parametrize("page", sorted(page for page in (ctrun.ROOT / "man").glob("*.[1-8]")
                                        if not page.read_text().startswith(".so ")), ids=lambda page: page.name)
def test_man_formats_each_page_for_a_terminal_of_80_columns(page):
    run = subprocess.run(["groff", "-mdoc", "-Tutf8", "-rLL=78n", "-ww", page], capture_output=True, text=True, check=True)
    assert run.stderr == ""
