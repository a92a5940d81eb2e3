# SPDX-License-Identifier: Apache-2.0
"""tests/gpu/run.py, with an nvidia-smi and a ctest of ours: no GPU is needed to see what it writes."""
import os
import pathlib
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
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "CTRUN_BUILD": str(tmp_path)}
    return subprocess.run([RUN, tmp_path / "RESULTS.md"], env=env, stdout=subprocess.PIPE, text=True, check=False)


def test_verdicts_and_speeds_are_written(tmp_path):
    put(tmp_path, "nvidia-smi", "#!/bin/sh\necho 'GPU 0: one'\necho 'GPU 1: two'\n")
    put(tmp_path, "ctest", CTEST % "notrun")
    (tmp_path / "bin").mkdir()
    put(tmp_path / "bin", "ctrun", "#!/bin/sh\n[ \"$2\" = --nproc-per-node=1 ] || exit 1\n"
        "echo '{\"epoch\": 1, \"images_per_s\": 10}'\necho '{\"epoch\": 2, \"images_per_s\": 1234.4}'\n")
    assert run(tmp_path).returncode == 0
    text = (tmp_path / "RESULTS.md").read_text("utf-8")
    assert "GPU 1: two\n" in text and "| gpu/a | passed |" in text and "| gpu/b | skipped |" in text
    assert "| 1 | nccl | 1234 |" in text and "| 2 | nccl | did not run |" in text


def test_a_failed_test_is_a_failed_run(tmp_path):
    put(tmp_path, "nvidia-smi", "#!/bin/sh\necho 'GPU 0: one'\n")
    put(tmp_path, "ctest", CTEST % "fail")
    assert run(tmp_path).returncode == 1
    assert "| gpu/b | FAILED |" in (tmp_path / "RESULTS.md").read_text("utf-8")


def test_without_a_gpu_nothing_is_run(tmp_path):
    put(tmp_path, "nvidia-smi", "#!/bin/sh\nexit 9\n")
    put(tmp_path, "ctest", "#!/bin/sh\nexit 1\n")
    done = run(tmp_path)
    assert done.returncode == 77 and "no NVIDIA GPU" in done.stdout
    assert not (tmp_path / "RESULTS.md").exists()
