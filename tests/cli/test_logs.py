# SPDX-License-Identifier: Apache-2.0
"""Where output goes: files, tee, prefixes, filters."""
import json
import os
import pathlib
import re
import socket
import subprocess

import ctrun
import launch
import pytest
import schema


def logs(box, base="D"):
    """{"attempt_0/1/stdout.log": text} below the one run directory."""
    runs = list(box.path(base).iterdir())
    assert len(runs) == 1, runs
    return {str(path.relative_to(runs[0])): path.read_text(errors="replace")
            for path in runs[0].rglob("*") if path.is_file() and path.name != "summary.json"}


def test_torchrun_108_redirects_make_the_documented_layout(box):
    run = box.ctrun("--log-dir=D", "--rdzv-id=J", "-r3", "--nproc-per-node=2",
                    "sh", "-c", "echo out $RANK; echo err $RANK >&2")
    assert run.code == 0 and run.out == ""
    assert [path.name[:2] for path in box.path("D").iterdir()] == ["J_"]
    assert logs(box) == {f"attempt_0/{r}/{s}.log": f"{s[3:]} {r}\n" for r in (0, 1)
                         for s in ("stdout", "stderr")}


def test_torchrun_109_a_map_touches_only_its_ranks(box):
    run = box.ctrun("--log-dir=D", "-r", "1:2", "--nproc-per-node=2",
                    "sh", "-c", "echo out; echo err $RANK >&2")
    assert sorted(run.out.splitlines()) == ["out", "out"]
    assert logs(box) == {"attempt_0/1/stderr.log": "err 1\n"}
    assert "err 0\n" in run.err and "err 1\n" not in run.err


def test_torchrun_110_tee_writes_file_and_prefixed_console(box):
    run = box.ctrun("--log-dir=D", "-t3", "sh", "-c", "echo hello; echo oops >&2")
    assert run.out == "[default0]:hello\n" and run.err == "[default0]:oops\n"
    assert logs(box) == {"attempt_0/0/stdout.log": "hello\n", "attempt_0/0/stderr.log": "oops\n"}


def test_torchrun_111_131_132_the_prefix_template(box):
    words = ["-t3", "sh", "-c", "echo hello"]
    template = "<${hostname}|${rank}|${local_rank}|${role_name}|${foo}> "
    expected = f"<{socket.gethostname()}|0|0|default|${{foo}}> hello\n"
    assert box.ctrun("--log-line-prefix-template", template, *words).out == expected
    own = {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "own "}
    both = {**own, "PET_LOG_LINE_PREFIX_TEMPLATE": "pet "}
    assert box.ctrun("--log-line-prefix-template", "opt ", *words, env=both).out == "opt hello\n"
    assert box.ctrun(*words, env=both).out == "pet hello\n"
    assert box.ctrun(*words, env=own).out == "own hello\n"
    assert box.ctrun("--log-line-prefix-template=", *words, env=own).out == "own hello\n"
    assert box.ctrun(*words).out == "[default0]:hello\n"


def test_torchrun_112_a_restart_writes_to_the_next_attempt(box):
    run = box.ctrun("--log-dir=D", "-r1", "--max-restarts=1", "sh", "-c",
                    "echo try $TORCHELASTIC_RESTART_COUNT; exit $((1 - TORCHELASTIC_RESTART_COUNT))")
    assert run.code == 0, run
    assert logs(box) == {"attempt_0/0/stdout.log": "try 0\n", "attempt_1/0/stdout.log": "try 1\n"}


def test_a_log_directory_that_was_removed_does_not_stop_a_restart(box):
    run = box.ctrun("--log-dir=D", "-r1", "--max-restarts=1", "sh", "-c",
                    "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || { rm -r D; exit 1; }; echo again")
    assert run.code == 0, run
    assert logs(box) == {"attempt_1/0/stdout.log": "again\n"}


def test_torchrun_113_filtered_ranks_are_teed_to_files_only(box):
    run = box.ctrun("--log-dir=D", "--local-ranks-filter=0", "-t3", "--nproc-per-node=2",
                    "sh", "-c", "echo out $RANK")
    assert run.out == "[default0]:out 0\n"
    assert logs(box)["attempt_0/1/stdout.log"] == "out 1\n"


def test_torchrun_114_filtered_ranks_without_tee_are_silent(box):
    run = box.ctrun("--local-ranks-filter=0", "--nproc-per-node=2", "sh", "-c",
                    "echo out $RANK; echo err $RANK >&2")
    assert run.out == "out 0\n" and "err 1" not in run.err


def test_a_filter_that_shows_no_rank_of_the_node_is_warned_of(box):
    run = box.ctrun("--local-ranks-filter=8,9", "--nproc-per-node=2", "echo", "out")
    assert run.code == 0 and not run.out and run.err == (
        "ctrun: warning: --local-ranks-filter=8,9: this node has local ranks 0 to 1, of which it shows none on the console\n")
    run = box.ctrun("--local-ranks-filter=1", "--nproc-per-node=2", "true")
    assert not run.err, run


def test_torchrun_115_filters_collect_matching_lines(box):
    run = box.ctrun("--log-dir=D", "--duplicate-stdout-filters=apple,pear,a,,b", "-t3",
                    "--nproc-per-node=2", "sh", "-c",
                    "echo an apple; echo a plum; echo pears; echo a,b")
    assert run.code == 0
    lines = logs(box)["attempt_0/filtered_stdout.log"].splitlines()
    assert sorted(lines) == sorted(f"[default{r}]:{t}" for r in (0, 1)
                                   for t in ("an apple", "pears", "a,b"))


def test_filters_collect_no_line_of_a_rank_that_is_not_shown(box):
    run = box.ctrun("--log-dir=D", "--duplicate-stdout-filters=apple", "-t3", "--local-ranks-filter=1",
                    "--nproc-per-node=2", "sh", "-c", "echo an apple")
    assert run.code == 0
    assert logs(box)["attempt_0/filtered_stdout.log"] == "[default1]:an apple\n"


LINKS = """
folder=$(dirname "$TORCHELASTIC_ERROR_FILE")
[ "$CTRUN_ROLE_RESTART_COUNT" = 1 ] && echo text && exit 0
ln -s "$PRECIOUS" "$folder/../../summary.json.new"
ln -sf "$PRECIOUS" "$folder/stdout.log"
exit 5
"""


def test_no_file_is_written_through_a_link_in_the_log_directory(box):
    """Who may write there may have left it: it leads to any file of the user who starts the run."""
    box.write("precious", "kept")
    run = box.ctrun("--log-dir=D", "-r3", "--role", f"w=1:sh -c '{LINKS}'", "--role-restarts=w=1",
                    env={"PRECIOUS": str(box.path("precious"))})
    assert run.code == 0 and box.path("precious").read_text() == "kept", run
    [summary] = box.path("D").glob("*/summary.json")
    assert not summary.is_symlink() and json.loads(summary.read_text())["exit_code"] == 0


def test_a_log_directory_that_cannot_be_made_is_told_with_the_remedy(box):
    run = box.ctrun("--log-dir=/proc/x", "-r3", "true")
    assert run.code == 1, run
    assert re.match(r"ctrun: error\[E_NOT_FOUND\]: rank 0 \(\S+\) could not be started: log directory /proc/x: "
                    "No such file or directory; choose another --log-dir", run.err), run
    assert "\ntrue could not be started\n" in run.err and "exitcode  : 1 (could not be started)" in run.err, run


def test_torchrun_116_without_log_dir_files_go_to_tmpdir(box):
    run = box.ctrun("-r1", "sh", "-c", "echo hello")
    assert run.code == 0
    found = list(box.dir.glob("torchelastic_*/*/attempt_0/0/stdout.log"))
    assert [path.read_text() for path in found] == ["hello\n"]


def test_the_folder_of_log_files_is_named_at_the_start_once(box):
    logs = box.path("logs")
    run = box.ctrun("--nproc-per-node=2", "--redirects=3", f"--log-dir={logs}", "-v", "--max-restarts=1", "sh", "-c",
                    "exit 3")
    [folder] = logs.iterdir()
    assert run.err.count("log files: ") == 1 and f"ctrun: info: log files: {folder}\n" in run.err, run
    assert "log files: " not in box.ctrun("--nproc-per-node=2", "-v", f"--log-dir={logs}", "true").err


def test_an_unused_temporary_log_directory_goes_away(box):
    assert box.ctrun("true").code == 0
    assert not list(box.dir.glob("torchelastic_*"))


def test_torchrun_117_log_dir_dev_null_makes_nothing(box):
    dump = launch.Dump(box)
    run = box.ctrun("--log-dir=/dev/null", "-r3", dump.program, env=dump.env)
    assert run.code == 0
    assert dump.environments()[0]["TORCHELASTIC_ERROR_FILE"] == ""
    assert not list(box.dir.glob("torchelastic_*"))


def test_torchrun_118_odd_bytes_and_missing_newlines_do_no_harm(box):
    run = box.ctrun("--log-dir=D", "-t1", "sh", "-c", r"printf '\377\376 odd\nlast'")
    assert run.code == 0
    assert "[default0]:" in run.out and "last" in run.out
    [file] = box.path("D").rglob("stdout.log")
    assert file.read_bytes() == b"\xff\xfe odd\nlast"


def test_torchrun_119_all_teed_output_is_there_at_the_end(box):
    run = box.ctrun("-t1", "--nproc-per-node=4", "seq", "1", "20000")
    assert run.code == 0
    lines = run.out.splitlines()
    for rank in range(4):
        prefix = f"[default{rank}]:"
        assert [line for line in lines if line.startswith(prefix)] == [
            f"{prefix}{i}" for i in range(1, 20001)]


def test_torchrun_150_ranks_never_share_a_line(box):
    script = box.write("w.py", "import sys, os\nfor i in range(500):\n"
                       "    sys.stdout.write(os.environ['RANK'] * 50)\n"
                       "    sys.stdout.write('\\n')\n")
    run = box.ctrun("--nproc-per-node=3", script)
    assert run.code == 0
    assert sorted(run.out.splitlines()) == sorted(str(r) * 50 for r in range(3) for _ in range(500))


def test_maps_take_local_ranks_above_9(box):
    run = box.ctrun("--log-dir=D", "-r", "11:1", "--nproc-per-node=12", "sh", "-c", "echo $RANK")
    assert run.code == 0
    assert logs(box) == {"attempt_0/11/stdout.log": "11\n"}


def ranks_of(prefix):
    """[0, 1, 3] for "[default0-1,3]:"."""
    found = []
    for part in prefix.strip("[]:default").split(","):
        low, _, high = part.partition("-")
        found += range(int(low), int(high or low) + 1)
    return found


def alike(box, ranks, *words):
    """Runs victims with --collapse, which write at about the same time."""
    run = box.start_ctrun("--collapse", f"--nproc-per-node={ranks}", *words[:-1],
                          ctrun.program("victim"), "touch", "ready%r", "await", "go", *words[-1])
    ctrun.wait_until(lambda: len(list(box.dir.glob("ready*"))) == ranks, "all are ready")
    box.path("go").touch()
    assert run.wait() == 0, run
    return run


def test_a_line_that_ranks_write_alike_is_shown_once(box):
    words = [word for i in range(100) for word in ("write", f"line {i}\\n", "err", "oops\\n")]
    run = alike(box, 4, words)
    shown = run.out.splitlines()
    for rank in range(4):
        mine = [line.split(" ", 1)[1] for line in shown if rank in ranks_of(line.split()[0])]
        assert mine == [f"line {i}" for i in range(100)]
    assert len(shown) < 400, run.out  # as many as without --collapse
    assert re.search(r"^\[\d-\d\] oops$", run.err, re.M)


def test_collapsed_lines_of_a_tee_have_its_prefix_and_files_are_whole(box):
    run = alike(box, 3, "--log-dir=D", "-t1", ["write", "hello\\nlast"])
    for text in ("hello", "last"):
        found = [line.rpartition(":")[0] for line in run.out.splitlines() if line.endswith(text)]
        assert all(prefix.startswith("[default") for prefix in found)
        assert sorted(rank for prefix in found for rank in ranks_of(prefix)) == [0, 1, 2]
    assert logs(box) == {f"attempt_0/{r}/stdout.log": "hello\nlast" for r in range(3)}


def test_a_collapsed_flood_is_complete_and_in_order(box):
    run = box.ctrun("--collapse", "--nproc-per-node=3", "seq", "1", "20000")
    assert run.code == 0
    mine = {rank: [] for rank in range(3)}
    for line in run.out.splitlines():
        prefix, text = line.split()
        for rank in ranks_of(prefix):
            mine[rank].append(text)
    assert all(lines == [str(i) for i in range(1, 20001)] for lines in mine.values())


def test_a_slow_console_loses_no_collapsed_line(box):
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [ctrun.program("ctrun"), "--collapse", "--nproc-per-node=2", ctrun.program("victim"),
         "@0", "flood", "8000000", "@1", "write", "quiet\\n", "touch", str(box.path("quiet"))],
        stdout=writer, env=box.env)
    os.close(writer)
    ctrun.wait_until(box.path("quiet").exists, "the quiet rank is done, though nobody reads")
    assert process.poll() is None  # the other one waits
    with open(reader, "rb") as file:
        lines = file.read().splitlines()
    assert process.wait(30) == 0
    assert len(lines) == 100001 and b"[1] quiet" in lines


def test_collapsed_lines_of_a_restart_have_their_ranks(box):
    run = box.ctrun("--collapse", "--nproc-per-node=2", "--max-restarts=1", "sh", "-c",
                    "echo try $TORCHELASTIC_RESTART_COUNT; exit $((1 - TORCHELASTIC_RESTART_COUNT))")
    assert run.code == 0
    again = [ranks_of(line.split()[0]) for line in run.out.splitlines() if line.endswith("try 1")]
    assert sorted(sum(again, [])) == [0, 1]


COLORED = ["\033[36m[default0]:\033[0mhello apple\n", "\033[33m[default1]:\033[0mhello apple\n"]


def test_prefixes_have_a_colour_for_each_rank_and_files_have_none(box):
    run = box.ctrun("--nproc-per-node=2", "--log-dir=logs", "-t", "3", "--color=always",
                    "--duplicate-stdout-filters=apple", "sh", "-c", "echo hello apple")
    assert run.code == 0 and sorted(run.out.splitlines(keepends=True)) == sorted(COLORED), run
    for path in box.path("logs").rglob("*.log"):
        assert "\033" not in path.read_text(), path


@pytest.mark.parametrize("words, env, is_colored", [
    ([], {}, True), ([], {"NO_COLOR": "1"}, False), ([], {"TERM": "dumb"}, False),
    (["--color=never"], {}, False)])
def test_on_a_terminal_prefixes_are_coloured_unless_the_user_objects(box, words, env, is_colored):
    line = " ".join([ctrun.program("ctrun"), "--nproc-per-node=2", "-t3", *words,
                     "sh -c 'echo hello apple'"])
    run = box.run("script", "-qec", line, "/dev/null", env={"TERM": "xterm", "NO_COLOR": "", **env})
    assert run.code == 0 and ("\033[36m[default0]:\033[0mhello" in run.out) == is_colored, run
    assert is_colored or "\033" not in run.out, run


def test_without_a_terminal_there_is_no_colour(box):
    run = box.ctrun("--nproc-per-node=2", "-t3", "sh", "-c", "echo hello apple", env={"TERM": "xterm"})
    assert run.code == 0 and "\033" not in run.out + run.err and "[default1]:hello" in run.out, run


def test_a_full_log_file_is_renamed_and_a_new_one_begun(box):
    run = box.ctrun("--log-dir=D", "-r1", "--log-max-size=1K", "--log-keep=2", "seq", "1", "1000")
    assert run.code == 0, run
    files = logs(box)
    names = [f"attempt_0/0/stdout.log{end}" for end in (".2", ".1", "")]
    assert sorted(files) == sorted(names)
    text = "".join(files[name] for name in names)
    assert all(len(each) <= 1024 for each in files.values())
    assert text.splitlines() == [str(i) for i in range(1001 - len(text.splitlines()), 1001)]


def test_a_restart_renames_nothing_of_the_attempt_before(box):
    run = box.ctrun("--log-dir=D", "-t1", "--log-max-size=1k", "--log-keep=1", "--max-restarts=1",
                    "sh", "-c", "seq 1 400; exit $((1 - TORCHELASTIC_RESTART_COUNT))")
    assert run.code == 0, run
    files = logs(box)
    assert sorted(files) == [f"attempt_{i}/0/stdout.log{end}" for i in (0, 1) for end in ("", ".1")]
    assert files["attempt_0/0/stdout.log"] == files["attempt_1/0/stdout.log"]


def test_the_file_of_matching_lines_has_the_same_limit(box):
    run = box.ctrun("--log-dir=D", "-t1", "--log-max-size=1K", "--duplicate-stdout-filters=1",
                    "--nproc-per-node=2", "seq", "1", "500")
    assert run.code == 0, run
    files = logs(box)
    assert {"attempt_0/filtered_stdout.log", "attempt_0/filtered_stdout.log.1"} <= set(files)
    lines = "".join(text for name, text in files.items() if "filtered" in name).splitlines()
    assert all(re.fullmatch(r"\[default[01]\]:\d+", line) for line in lines)


def test_limits_of_log_files_that_make_no_sense_are_refused(box):
    for words in (["--log-max-size=big"], ["--log-max-size=10"], ["--log-max-size=1KX"],
                  ["--log-max-size=99999999999T"], ["--log-keep=2"],
                  ["--log-max-size=1M", "--log-keep=-1"]):
        run = box.ctrun(*words, "true")
        assert run.code == 2 and words[-1].partition("=")[0] in run.err, run


FLOOD = "i=0; while [ $i -lt 3000 ]; do echo line $i of $RANK; i=$((i+1)); done"


def left_out(box, rank):
    events = box.events("output_left_out", rank=rank)
    return sum(event["lines"] for event in events), sum(event["bytes"] for event in events)


def test_a_rank_that_floods_is_shown_in_part_and_what_is_missing_is_told(box):
    run = box.ctrun("--log-dir=D", "-t1", "--log-rate-limit=1K", "--nproc-per-node=2", "sh", "-c",
                    f"[ $RANK = 0 ] && exec echo quiet; {FLOOD}")
    assert run.code == 0, run
    text = "".join(f"line {i} of 1\n" for i in range(3000))
    assert logs(box)["attempt_0/1/stdout.log"] == text  # files are whole
    shown = [line for line in run.out.splitlines() if line.startswith("[default1]:")]
    assert all(re.fullmatch(r"\[default1\]:line \d+ of 1", line) for line in shown)
    assert 1024 / 30 < len(shown) < 1500, len(shown)  # at least the lines of one second
    lines, size = left_out(box, 1)
    assert lines + len(shown) == 3000
    assert size == len(text) - sum(len(line) + 1 - len("[default1]:") for line in shown)
    assert "rank 1: " in run.err and "--log-rate-limit" in run.err, run
    assert "[default0]:quiet" in run.out and left_out(box, 0) == (0, 0)
    for event in box.events():
        schema.check(event, "events")


def test_the_last_lines_of_a_rank_that_floods_are_in_the_report(box):
    run = box.ctrun("--log-rate-limit=1K", "sh", "-c",
                    f"({FLOOD}) >&2; echo the cause >&2; exit 3")
    assert run.code == 3, run
    assert "line 2999 of 0" in run.err and "the cause" in run.err, run
    lines, _ = left_out(box, 0)
    assert lines > 1500


def test_a_line_that_is_longer_than_the_limit_is_whole_or_not_there(box):
    box.write("long.py", "import sys\n"
              "for c in 'ab': sys.stdout.write(c * 300000 + '\\n')\n"
              "sys.stdout.write('end')\n")
    run = box.ctrun("--log-rate-limit=1K", "--no-python", ctrun.DEBIAN_PYTHON, "long.py")
    assert run.code == 0, run
    assert run.out == "a" * 300000 + "\n"
    assert left_out(box, 0) == (2, 300004)  # the second line, and the third, which has no end


def test_long_teed_lines_of_ranks_that_write_at_once_are_whole(box):
    box.write("long.py", "import os\n"
              "for i in range(5): print(os.environ['RANK'] * 500000)\n")
    run = box.ctrun("-t1", "--nproc-per-node=2", "long.py")
    assert run.code == 0, run.err
    assert sorted(run.out.splitlines()) == [
        f"[default{rank}]:" + rank * 500000 for rank in "01" for _ in range(5)]


def test_a_teed_line_of_any_length_has_one_prefix_and_one_end(box):
    box.write("long.py", "print('a' * 3000000 + '\\nend', end='')\n")
    run = box.ctrun("-t1", "long.py")
    assert run.code == 0, run.err
    assert run.out == "[default0]:" + "a" * 3000000 + "\n[default0]:end"


def test_the_limit_counts_before_lines_are_collapsed_and_0_is_none(box):
    run = box.ctrun("--collapse", "--log-rate-limit=1K", "--nproc-per-node=2", "sh", "-c",
                    FLOOD.replace(" of $RANK", ""))
    assert run.code == 0 and len(run.out.splitlines()) < 3000, run
    assert box.events("output_left_out")
    run = box.ctrun("--log-rate-limit=0", "--nproc-per-node=2", "sh", "-c", FLOOD)
    assert run.code == 0 and len(run.out.splitlines()) == 6000
    for words in ("--log-rate-limit=fast", "--log-rate-limit=10"):
        run = box.ctrun(words, "true")
        assert run.code == 2 and words in run.err, run


def test_the_summary_names_the_log_directory_only_when_something_is_in_it(box):
    fails = ["--nproc-per-node=1", "sh", "-c", "echo words >&2; exit 3"]
    run = box.ctrun("-r2", "--log-dir", str(box.path("logs")), *fails)
    named = re.search(r"^  logs +: (\S+)$", run.err, re.M)
    assert named and list(pathlib.Path(named[1]).glob("*/stderr.log")), run
    assert "\n  logs " not in box.ctrun(*fails).err
