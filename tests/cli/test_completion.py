# SPDX-License-Identifier: Apache-2.0
"""What bash, zsh and fish offer after a line: the shells themselves run the scripts."""
import shutil

import pytest

import ctrun

# An interactive zsh on its own terminal, which prints each match as a line "hit MATCH".
ZSH = r"""
zmodload zsh/zpty
zpty shell zsh -f -i
tell() { zpty -w shell "$1" }
tell 'PROMPT=; stty -echo; autoload -Uz compinit; compinit -D -u'
tell 'source ./script'
tell 'compadd() {
    [[ ${@[1,(i)(-|--)]} == *-(O|A|D)* ]] && { builtin compadd "$@"; return }
    local -a hits; builtin compadd -A hits "$@"
    for hit in $hits; do print -r -- "hit $hit"; done
    builtin compadd "$@"
}'
tell 'show() { _main_complete; print -r -- end""ed; exit }; zle -C show complete-word show'
tell 'bindkey "^I" show; print rea""dy'
zpty -r -m shell out '*ready*'
zpty -w -n shell "$1"$'\t'
zpty -r -m shell out '*ended*'
print -r -- "$out"
"""


def bash(box, name, line):
    words = line.replace("=", " = ").split(" ")  # as readline splits them
    quoted = " ".join(f"'{word}'" for word in words)
    return box.run("bash", "-c", f"source ./script; COMP_WORDS=({quoted});"
                   f"COMP_CWORD={len(words) - 1}; _{name}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
                   ).out.split()


def zsh(box, _name, line):
    run = box.run("zsh", "-f", "-c", ZSH, "zsh", line)
    assert "ended" in run.out, run
    return [part.split("\r")[0].split("\n")[0] for part in run.out.split("hit ")[1:]]


def fish(box, _name, line):
    run = box.run("fish", "--no-config", "-c", "source ./script; complete -C $argv[1]", line,
                  env={"HOME": str(box.dir)})
    assert run.code == 0 and not run.err, run
    return [hit.split("\t")[0].rpartition("=")[2] for hit in run.out.splitlines()]


@pytest.mark.parametrize("shell", [bash, zsh, fish], ids=lambda shell: shell.__name__)
@pytest.mark.parametrize("line, expected", [
    ("ctrun --nn", ["--nnodes"]),
    ("ctrun --nproc-per-node=2 --rdzv-b", ["--rdzv-backend"]),
    ("ctrun --auth m", ["munge"]),
    ("ctrun --auth=m", ["munge"]),
    ("ctrun --log-dir fo", ["folder/"]),
    ("ctrun --rdzv-token-file se", ["secret"]),
    ("ctrun -r 3 tr", ["train.py"]),
    ("ctrunctl st", ["stacks", "status", "stop"]),
    ("ctrunctl kv w", ["wait"]),
    ("ctrunctl signal US", ["USR1", "USR2"]),
    ("ctrunctl logs --f", ["--follow"])])
def test_every_shell_offers_what_fits(box, shell, line, expected):
    if not shutil.which(shell.__name__):
        pytest.skip(f"{shell.__name__} is not installed")
    name = line.split(" ", maxsplit=1)[0]
    box.write("script", box.run(ctrun.program(name), "--print-completion", shell.__name__).out)
    box.path("folder").mkdir()
    for file in ("secret", "train.py"):
        box.write(file, "")
    offered = [hit if hit != "folder" else "folder/" for hit in shell(box, name, line)]
    assert sorted(set(offered)) == expected


@pytest.mark.parametrize("shell", [zsh, fish], ids=lambda shell: shell.__name__)
def test_what_belongs_to_the_program_gets_no_option_of_ours(box, shell):
    if not shutil.which(shell.__name__):
        pytest.skip(f"{shell.__name__} is not installed")
    box.write("script", box.run(ctrun.program("ctrun"), "--print-completion", shell.__name__).out)
    assert shell(box, "ctrun", "ctrun train.py --nn") == []
