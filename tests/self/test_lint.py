# SPDX-License-Identifier: Apache-2.0
"""The lints of the architecture find what they must find: small trees with one mistake each."""
import collections
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import ctrun
import pytest

LINT = ctrun.ROOT / "tests" / "lint"


def run(script, *arguments):
    return subprocess.run([sys.executable, "-B", script, *map(str, arguments)], capture_output=True, text=True)


def arrows(root, files):
    """What arrows.py prints for a tree of these files and the object files made of them."""
    objects = {}
    for name, text in files.items():
        path = root / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if name.endswith(".c"):
            top, rest = name.split("/", 1)
            objects[path] = root / "build" / top / "CMakeFiles" / "x.dir" / (rest + ".o")
    for source, target in objects.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([os.environ.get("CC", "cc"), "-c", f"-I{root / 'tree'}", source, "-o", target], check=True)
    done = run(LINT / "arrows.py", root / "tree", root / "build")
    assert done.returncode == 1, done
    return done.stdout


@pytest.mark.parametrize("files, complaint", [
    ({"agent/link/link.h": "", "rendezvous/round/a.c": '#include "agent/link/link.h"\n'},
     "rendezvous/round/a.c:1: agent/link/link.h: rendezvous/round may not use agent/link"),
    ({"agent/link/b.c": "void link_send(void) {}\n",  # without an include line
      "agent/loop/a.c": "void link_send(void);\nvoid a(void) { link_send(); }\n"},
     "agent/loop/a.c: link_send of agent/link/b.c: agent/loop may not use agent/link"),
    ({"agent/loop/a.c": "void b(void);\nvoid a(void) { b(); }\n",
      "agent/loop/b.c": "void a(void);\nvoid b(void) { a(); }\n"},
     "agent/loop/a.c agent/loop/b.c: need each other in a ring"),
    ({"agent/link/a.c": ""}, "agent/link: nothing in it needs agent/loop: take that out of its line"),
    ({"agent/new/a.c": ""}, "agent/new/a.c: its folder is not in the table of folders"),
    ({"worker_sdk/base/a.h": "#include <uv.h>\n"}, "worker_sdk/base/a.h:1: includes <uv.h>"),
    ({f"agent/loop/a{i}.c": "" for i in range(26)}, "agent/loop: 26 .c files: no folder has more than 25"),
    ({"tests/unit/agent/lonk/a_test.c": ""}, "tests/unit/agent/lonk: there is no such folder of the product"),
], ids=("include", "symbol", "ring", "unused", "folder", "door", "size", "mirror"))
def test_a_forbidden_arrow_is_a_complaint(tmp_path, files, complaint):
    assert complaint in arrows(tmp_path, files)


def test_a_table_of_folders_with_a_cycle_is_a_complaint(tmp_path):
    text = (ctrun.ROOT / "cmake" / "folders").read_text()
    broken = text.replace("\nagent/loop               worker_sdk/base\n",
                          "\nagent/loop               worker_sdk/base agent/link\n")
    assert broken != text
    for name in ("cmake", "tests/lint"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "cmake" / "folders").write_text(broken)
    shutil.copy(LINT / "arrows.py", tmp_path / "tests" / "lint")
    assert "agent/loop: agent/link does not stand above it" in run(tmp_path / "tests" / "lint" / "arrows.py", ctrun.ROOT).stdout


@pytest.fixture(name="way")
def copy_the_way(tmp_path):
    """A copy of the files on the two paths, which a test may change."""
    for name in re.findall(r"^[=< ] (\S+/\S+\.c) ", (LINT / "paths.py").read_text(), re.M):
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ctrun.ROOT / name, target)
    assert run(LINT / "paths.py", tmp_path).returncode == 0
    return tmp_path


def test_a_way_that_the_code_does_not_take_is_a_complaint(way):
    path = way / "rendezvous/round/member.c"
    path.write_text(path.read_text().replace("member_assign_ranks", "member_assign"))
    assert "rendezvous/round/member.c does not define member_assign_ranks" in run(LINT / "paths.py", way).stdout


def test_a_way_that_leaves_a_file_out_is_a_complaint(way):
    script = pathlib.Path(shutil.copy(LINT / "paths.py", way / "paths.py"))
    script.write_text(re.sub(r"^  rendezvous/round/round_message.c .*\n", "", script.read_text(), flags=re.M))
    done = run(script, way)
    assert done.returncode == 1 and "nothing above it calls round_fail of rendezvous/round/round_stopping.c" in done.stdout


def test_a_way_with_more_files_than_its_limit_is_a_complaint(way):
    script = pathlib.Path(shutil.copy(LINT / "paths.py", way / "paths.py"))
    text = script.read_text()
    script.write_text(re.sub(r'": \((\d+), 3, """', r'": (10, 2, """', text))
    done = run(script, way)
    assert done.returncode == 1 and done.stdout.count("10 and 2 are the most") == 2


@pytest.mark.parametrize("source, header, is_found", [
    ("agent/link/link.c", "agent/guard/fence.h", True),
    ("agent/link/link.c", "agent/worker/worker.h", False),
    ("rendezvous/round/round.c", "rendezvous/session/run.h", False),
    ("worker_sdk/base/str.c", "worker_sdk/wire/frame.h", False),
    ("launcher/config/config.c", "launcher/run/merge.h", False),
    ("worker_sdk/comm/nccl/nccl.c", "worker_sdk/session/session_private.h", False),
    ("launcher/run/launch.c", "launcher/ssh/ssh.h", False),
])
def test_the_compiler_finds_only_the_headers_that_a_folder_may_use(source, header, is_found):
    """cmake/ctrun_folders.cmake"""
    assert (ctrun.ROOT / header).is_file()
    [command] = [unit["command"] for unit in json.loads((ctrun.BUILD / "compile_commands.json").read_text())
                 if unit["file"] == str(ctrun.ROOT / source)]
    words = shlex.split(command)
    words[words.index("-o") + 1] = os.devnull
    done = subprocess.run([*words, "-include", header, "-fsyntax-only"], cwd=ctrun.BUILD, capture_output=True, text=True)
    assert (done.returncode == 0) == is_found, done
    assert is_found or f"{header}: No such file" in done.stderr


def test_each_folder_compiles_its_own_sources_and_sees_what_its_line_says():
    sees, found = {}, collections.Counter()
    for line in (ctrun.ROOT / "cmake/folders").read_text().splitlines():
        if line and not line.startswith("#"):
            folder, *words = line.split()
            siblings = [f"{folder.split('/')[0]}/{word}" for word in words]
            sees[folder] = {folder}.union(*(sees.get(s) or sees[w] for s, w in zip(siblings, words)))
    for unit in json.loads((ctrun.BUILD / "compile_commands.json").read_text()):
        words = shlex.split(unit["command"])
        made = pathlib.PurePath(words[words.index("-o") + 1])
        if made.parts[0] in ("worker_sdk", "rendezvous", "agent", "launcher") and made.name != "stub.c.o":
            file = pathlib.Path(unit["file"])
            root = ctrun.BUILD if file.is_relative_to(ctrun.BUILD) else ctrun.ROOT
            folder = str(file.relative_to(root).parent)
            roots = {word[2:] for word in words if word.startswith(f"-I{ctrun.BUILD}/headers/")}
            assert made.as_posix().startswith(f"{folder}/CMakeFiles/"), unit
            assert roots == {f"{ctrun.BUILD}/headers/{name.replace('/', '.')}" for name in sees[folder]}, unit
            found[folder] += 1
    assert set(found) == {folder for folder in sees if any((ctrun.ROOT / folder).glob("*.c"))} - {"examples", "examples/llm"}


HEADER = """#include <stddef.h>
#define CTRUN_API __attribute__((visibility("default")))
struct ctrun_error { int code; char text[8]; };
struct ctrun_stats { size_t size; int waits; };
enum ctrun_op { CTRUN_SUM, CTRUN_MAX };
CTRUN_API int ctrun_send(int count, enum ctrun_op op, struct ctrun_error *err);
CTRUN_API int ctrun_get_stats(struct ctrun_stats *out, struct ctrun_error *err);
"""
BODIES = """#include "worker_sdk/include/ctrun.h"
int ctrun_send(int count, enum ctrun_op op, struct ctrun_error *err) { return count + (int)op + err->code; }
int ctrun_get_stats(struct ctrun_stats *out, struct ctrun_error *err) { return out->waits + err->code; }
"""


def abi(root, *options, changes=()):
    """Runs abi.py on a library with these changes."""
    texts = []
    for text in (HEADER, BODIES):
        for old, new in changes:
            text = text.replace(old, new)
        texts.append(text)
    (root / "worker_sdk/include").mkdir(parents=True, exist_ok=True)
    (root / "tests/lint").mkdir(parents=True, exist_ok=True)
    (root / "worker_sdk/include/ctrun.h").write_text(texts[0])
    (root / "bodies.c").write_text(texts[1])
    subprocess.run([os.environ.get("CC", "cc"), "-g", "-shared", "-fPIC", f"-I{root}", root / "bodies.c",
                    "-o", root / "libctrun.so"], check=True)
    return run(LINT / "abi.py", *options, root, root / "libctrun.so")


@pytest.mark.skipif(not shutil.which("abidiff"), reason="abigail-tools is not installed")
@pytest.mark.parametrize("is_fine, old, new", [
    (True, "", ""),
    (True, "int waits;", "int waits; long later;"),
    (True, "CTRUN_API int ctrun_send", "CTRUN_API void ctrun_more(void);\nCTRUN_API int ctrun_send"),
    (True, "int ctrun_get_stats(struct ctrun_stats *out, struct ctrun_error *err) {",
     "int ctrun_get_stats(struct ctrun_stats *out, struct ctrun_error *err) { out->size = 3;"),
    (False, "int waits;", "int later, waits;"),
    (False, "int waits;", "long waits;"),
    (False, "int waits;", "int waits, later;"),  # older programs have something else there
    (False, "int waits;", ""),
    (False, "struct ctrun_stats { size_t size; int waits; };", "struct ctrun_stats { size_t size; float waits; long later; };"),
    (False, "char text[8];", "char text[8]; int line;"),  # it has no size
    (False, "int count", "long count"),
    (False, "ctrun_send(int count, ", "ctrun_send("),
    (False, "ctrun_get_stats", "ctrun_ask_stats"),
    (False, "CTRUN_SUM, CTRUN_MAX", "CTRUN_MAX, CTRUN_SUM"),
])
def test_a_change_that_breaks_older_programs_is_a_complaint(tmp_path, is_fine, old, new):
    recorded = abi(tmp_path, "--record")
    assert recorded.returncode == 0, recorded
    changes = [(old, new)] if old else []
    if "waits" in old and "waits" not in new:
        changes.append(("out->waits", "0"))
    if "count" in old and "count" not in new:
        changes.append(("return count", "return 0"))
    done = abi(tmp_path, changes=changes)
    assert (done.returncode == 0) == is_fine, done
    assert is_fine or "older programs would break" in done.stdout, done


@pytest.mark.parametrize("line, complaint", [
    ("__attribute__((access(read_only, 1))) int f(const int *);", "__attribute__((access("),
    ("int f(void) { return __builtin_bit_cast(1); }", "__builtin_bit_cast"),
    ("#if __has_builtin(x)\n#endif", "__has_builtin"),
    ("int f(int) { return 0; }", "error:"),
    ("_Static_assert(1);", "error:"),
], ids=("attribute", "builtin", "has", "unnamed", "assert"))
def test_what_gcc_8_does_not_have_is_a_complaint(tmp_path, line, complaint):
    if complaint == "error:" and not shutil.which("musl-gcc"):
        pytest.skip("no musl-gcc here (musl-tools)")
    for name in ("agent", "launcher", "rendezvous", "worker_sdk", "examples"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.c").write_text("__attribute__((format(printf, 1, 2))) void say(const char *text, ...);\n")
    sound = subprocess.run(["sh", LINT / "portable.sh", tmp_path], capture_output=True, text=True)
    assert sound.returncode == 0, sound
    (tmp_path / "agent" / "a.c").write_text(f"{line}\n")
    done = subprocess.run(["sh", LINT / "portable.sh", tmp_path], capture_output=True, text=True)
    assert done.returncode == 1 and "agent/a.c:1:" in done.stdout and complaint in done.stdout, done


@pytest.mark.parametrize("text, is_fine", [
    ("void agent_tell_loss(void);\n", False), ("void tell(void) {}\n", False), ("int told_count;\n", False),
    ("int untold_x;\n", False), ("int told;\n", True), ('/* tell_x */ char *a = "has_said ";\n', True)])
def test_a_name_that_does_not_say_what_is_done_is_a_complaint(tmp_path, text, is_fine):
    path = tmp_path / "agent" / "a.c"
    path.parent.mkdir()
    path.write_text(text)
    done = run(LINT / "words.py", tmp_path)
    assert (done.returncode == 0) == is_fine, done
