# SPDX-License-Identifier: Apache-2.0
"""tests/bench/record.py, with benchmarks of ours in a folder of its own."""
import pathlib
import re
import shutil
import subprocess

RECORD = pathlib.Path(__file__).resolve().parents[1] / "bench" / "record.py"


def test_what_benchmarks_print_is_added_with_date_command_and_load(tmp_path):
    shutil.copy(RECORD, tmp_path)
    (tmp_path / "one.py").write_text("import sys\nprint('4 B', *sys.argv[1:])\n")
    (tmp_path / "two.py").write_text("print('half')\nraise SystemExit(3)\n")
    (tmp_path / "RESULTS.md").write_text("# Before\n")
    done = subprocess.run([tmp_path / "record.py", "one 2 ranks", "two"], stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1 and done.stdout == "4 B 2 ranks\n\nhalf\n\n", done
    text = (tmp_path / "RESULTS.md").read_text()
    assert re.fullmatch(r"# Before\n\n## \d{4}-\d\d-\d\d, \d+ cores, .*, commit .*\n\n"
                        r"`tests/bench/one.py 2 ranks`; the machine's load before it: [\d.]+\.\n\n```\n4 B 2 ranks\n```\n\n"
                        r"`tests/bench/two.py`; .*: [\d.]+\. \*\*It failed with 3\.\*\*\n\n```\nhalf\n```\n", text), text
