# SPDX-License-Identifier: Apache-2.0
"""tests/gpu/run.py, with an nvidia-smi and a ctest of ours: no GPU is needed to see what it writes."""
import os
import pathlib
import re
import subprocess

RUN = pathlib.Path(__file__).resolve().parents[1] / "gpu" / "run.py"
CTEST = """#!/bin/sh
while [ "$1" != --output-junit ]; do shift; done
cat >"$2" <<END
<testsuite><testcase name="gpu/a" status="run"/><testcase name="gpu/b" status="%s"/></testsuite>
END
"""


def put(folder, name, text):
    path = folder / name
    path.write_text(text, "utf-8")
    path.chmod(0o755)


def run(tmp_path):
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "CTRUN_BUILD": str(tmp_path), "CTRUN_TEST_TORCH": "torch"}
    return subprocess.run([RUN, tmp_path / "report.md"], env=env, stdout=subprocess.PIPE, text=True, check=False)


def test_verdicts_and_speeds_are_written(tmp_path):
    put(tmp_path, "nvidia-smi", "#!/bin/sh\necho 'one, 1 MiB, 580'\necho 'two, 1 MiB, 580'\n")
    put(tmp_path, "ctest", CTEST % "notrun")
    (tmp_path / "bin").mkdir()
    put(tmp_path / "bin", "ctrun", "#!/bin/sh\n[ \"$2\" = --nproc-per-node=1 ] || exit 1\n"
        "for i in 10 1234.4; do echo '{\"images_per_s\": '$i', \"params_digest\": \"beef\"}'; done\n")
    assert run(tmp_path).returncode == 0
    text = (tmp_path / "report.md").read_text("utf-8")
    assert "- two, 1 MiB, 580\n" in text and "| gpu/a | passed |" in text and "| gpu/b | skipped |" in text
    assert "| 1 | 1 | nccl | 1234 | beef |" in text and "| 2 | 2 | nccl | did not run |  |" in text
    assert "\n|---|---|---|---|\n\n" in text


def test_a_section_is_added_with_date_command_and_collectives(tmp_path):
    put(tmp_path, "nvidia-smi", "#!/bin/sh\necho one\n")
    put(tmp_path, "ctest", CTEST % "run")
    (tmp_path / "tests" / "bench").mkdir(parents=True)
    put(tmp_path / "tests" / "bench", "all_reduce", "#!/bin/sh\n"
        "[ \"$*\" = 'nccl 2 3 1' ] || exit 1\nprintf '4 %s\\n4 7.25\\n4 9000\\n1024 11\\n' \"$2\"\n")
    put(tmp_path, "torch", "#!/bin/sh\nshift\n[ \"$*\" = '2 3 1' ] || exit 1\necho 4 77\n")
    (tmp_path / "report.md").write_text("# Seen before\n", "utf-8")
    assert run(tmp_path).returncode == 0
    text = (tmp_path / "report.md").read_text("utf-8")
    assert re.match(r"# Seen before\n\n## \d{4}-\d\d-\d\d: `tests/gpu/run.py`\n\nCommit ", text), text
    assert "| bytes | nccl, 2 ranks | torch's nccl, 2 ranks | host, shared memory, 2 ranks |\n|---|---|---|---|\n" in text
    assert "| 4 | 7.2 | 77.0 | did not run |\n| 1024 | 11.0 | did not run | did not run |\n" in text, text


def test_ranks_that_share_a_gpu_are_hosts_of_their_own(tmp_path):
    put(tmp_path, "nvidia-smi", "#!/bin/sh\necho one\n")
    put(tmp_path, "ctest", CTEST % "run")
    (tmp_path / "bin").mkdir()
    put(tmp_path / "bin", "ctrun", "#!/bin/sh\n[ \"$2\" = --nproc-per-node=2 ] || exit 1\nshift 2\nRANK=1 exec \"$@\"\n")
    put(tmp_path / "bin", "ctrun-mnist", "#!/bin/sh\necho '{\"images_per_s\": 5, \"params_digest\": \"'$NCCL_HOSTID'\"}'\n")
    assert run(tmp_path).returncode == 0
    assert "| 2 | 1 | nccl | 5 | rank-1 |" in (tmp_path / "report.md").read_text("utf-8")


def test_a_failed_test_is_a_failed_run(tmp_path):
    put(tmp_path, "nvidia-smi", "#!/bin/sh\necho one\n")
    put(tmp_path, "ctest", CTEST % "fail")
    assert run(tmp_path).returncode == 1
    assert "| gpu/b | FAILED |" in (tmp_path / "report.md").read_text("utf-8")


def test_without_a_gpu_nothing_is_run(tmp_path):
    put(tmp_path, "nvidia-smi", "#!/bin/sh\nexit 9\n")
    put(tmp_path, "ctest", "#!/bin/sh\nexit 1\n")
    done = run(tmp_path)
    assert done.returncode == 77 and "no NVIDIA GPU" in done.stdout
    assert not (tmp_path / "report.md").exists()
