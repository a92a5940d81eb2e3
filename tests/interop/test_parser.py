# SPDX-License-Identifier: Apache-2.0
"""Every option of torchrun's own parser, tried with ctrun: names, values, defaults, abbreviations
and PET_ variables. The parser is Debian's torch 1.13's, and that of the interpreter that
CTRUN_TEST_TORCH names; so the test names an option of a later release that ctrun does not have."""
import json
import subprocess

import pytest
from test_torchrun import HERE, interpreter

# Values that are valid and not the default; other options take "7" or "word" by their type.
VALUES = {"nnodes": "3:3", "nproc_per_node": "3", "rdzv_backend": "c10d", "redirects": "1", "tee": "2",
          "rdzv_conf": "a=b", "event_log_handler": "console", "start_method": "fork",
          "local_ranks_filter": "0", "signals_to_handle": "SIGTERM", "node_rank": "0",
          "rdzv_endpoint": "h:1", "local_addr": "127.0.0.1"}
# Refused in one line that names them, as ctrun-torchrun(7) says.
REFUSED = {"logs_specs", "numa_binding"}
# ctrun shows what the value means.
SHOWN = {"rdzv_endpoint": "h port 1", "shutdown_timeout": "7 s"}
# Defaults that ctrun resolves for a run of one node, and defaults of 1.13 that later ones changed.
RESOLVED = {"rdzv_backend", "rdzv_endpoint", "rdzv_id", "log_line_prefix_template", "shutdown_timeout"}
CHANGED_SINCE_113 = {"monitor_interval", "master_port"}
TWO_NODES = {"master_port", "node_rank", "rdzv_endpoint"}  # options that need two nodes


@pytest.fixture(scope="module", params=["debian", "newer"])
def parser(request):
    run = subprocess.run([interpreter(request.param), HERE / "torch_parser.py"], cwd=HERE,
                         capture_output=True, text=True, check=True)
    return {"kind": request.param, **json.loads(run.stdout)}


def settings(box, *words, env=None):
    box.write("true", "")  # --run-path needs a script, and does not search PATH
    run = box.ctrun("--print-config", "--json", *words, "true", env=env)
    return json.loads(run.out)["settings"] if run.code == 0 else run


def value_of(option):
    return VALUES.get(option["dest"], "7" if option["type"] in ("int", "float") else "word")


def words_for(option, name):
    words = [name] if option["is_flag"] else [f"{name}={value_of(option)}"]
    return (["--nnodes=2"] if option["dest"] in TWO_NODES else []) + words


def check(found, option, origin, words):
    if option["dest"] in REFUSED:
        text = "--" + option["dest"].replace("_", "-")
        assert not isinstance(found, dict) and found.code and text in found.err, (words, found)
        return
    assert isinstance(found, dict), (words, found)
    setting = found[option["dest"].replace("_", "-")]
    value = "yes" if option["is_flag"] else SHOWN.get(option["dest"], value_of(option))
    assert setting == {"value": value, "from": origin}, words


def test_every_option_of_torchruns_parser_means_the_same(box, parser):
    assert len(parser["options"]) >= 20
    for option in parser["options"]:
        for name in option["names"] + option["letters"]:
            if option["dest"] == "print_completion":
                assert box.ctrun(f"{name}=bash").out.startswith("#")
                continue
            words = words_for(option, name)
            check(settings(box, *words), option, "command line", words)


def test_every_option_has_torchruns_default(box, parser):
    found = settings(box)
    skipped = RESOLVED | REFUSED | (CHANGED_SINCE_113 if parser["kind"] == "debian" else set())
    for option in parser["options"]:
        if option["dest"] in skipped | {"print_completion"}:
            continue
        setting = found[option["dest"].replace("_", "-")]
        theirs = "no" if option["is_flag"] else str(option["default"] or "")
        theirs = "0" if option["default"] == 0 and not option["is_flag"] else theirs
        assert (setting["value"], setting["from"]) == (theirs, "default"), option


def test_every_variable_of_torchruns_parser_is_read(box, parser):
    for option in parser["options"]:
        if option["dest"] in REFUSED | {"print_completion"}:
            continue
        name = "PET_" + option["dest"].upper()
        env = {name: "1" if option["is_flag"] else value_of(option)}
        words = ["--nnodes=2"] if option["dest"] in TWO_NODES else []
        check(settings(box, *words, env=env), option, name, env)


def test_every_beginning_of_a_name_means_what_it_means_to_torchrun(box, parser):
    """A beginning of several options of torchrun is refused; options that only ctrun has change
    nothing."""
    if parser["kind"] == "debian":
        pytest.skip("torch 1.13 had one spelling of each, and fewer options")
    options = {option["dest"]: option for option in parser["options"]}
    for prefix, dest in parser["prefixes"].items():
        if dest is None:
            run = box.ctrun(prefix, "x", "true")
            assert run.code == 2 and "ambiguous option" in run.err, (prefix, run)
        elif dest not in REFUSED | {"print_completion"}:
            words = words_for(options[dest], prefix)
            check(settings(box, *words), options[dest], "command line", words)
