# SPDX-License-Identifier: Apache-2.0
"""The recipes of other packagers (RPM, Spack, conda, Lmod, container): each as its own tool reads it,
where that tool is, and all of the tree's version and files."""
import ast
import re
import shutil
import subprocess

import ctrun
import pytest

PACKAGING = ctrun.ROOT / "packaging"
VERSION = re.search(r"project\(ctrun VERSION ([\d.]+)", (ctrun.ROOT / "CMakeLists.txt").read_text())[1]
SPEC = PACKAGING / "rpm/ctrun.spec"


def tool(*words):
    if not shutil.which(words[0]):
        pytest.skip(f"no {words[0]} here")
    return subprocess.run([str(word) for word in words], capture_output=True, text=True)


def test_rpm_reads_the_spec():
    run = tool("rpmspec", "-q", SPEC)
    assert run.returncode == 0, run.stderr
    names = [f"ctrun{part}-{VERSION}-1" for part in ("", "-libs", "-devel")]
    assert [line.rpartition(".")[0] for line in run.stdout.split()] == names


def test_rpmlint_finds_nothing_in_the_spec():
    run = tool("rpmlint", "-r", PACKAGING / "rpm/rpmlintrc", SPEC)
    assert run.returncode == 0 and " 0 errors, 0 warnings" in run.stdout, run.stdout + run.stderr


def test_the_files_of_the_spec_are_those_that_are_installed(box):
    """Each pattern finds something, and each file has a pattern."""
    names = {"_bindir": "bin", "_mandir": "share/man", "_datadir": "share", "_unitdir": "lib/systemd/system",
             "_docdir": "share/doc", "_libdir": "LIB", "_includedir": "include"}
    assert box.run("cmake", "--install", ctrun.BUILD, "--prefix", box.path("tree")).code == 0, box.runs[-1]
    libraries = next(box.path("tree").glob("lib*/**/libctrun.a")).parent
    patterns = [re.sub(r"%\{(\w+)\}", lambda match: names[match[1]], line.split()[-1])
                for line in SPEC.read_text().splitlines() if re.match(r"(%exclude )?%\{_", line)]
    left = {path for path in box.path("tree").rglob("*") if not path.is_dir()}
    for pattern in patterns:
        pattern = pattern.replace("LIB", str(libraries.relative_to(box.path("tree"))))
        found = {path for each in box.path("tree").glob(pattern)
                 for path in ([each] if not each.is_dir() else each.rglob("*")) if not path.is_dir()}
        assert found, pattern
        left -= found
    plugins = {"libctrun-nccl.so", "libctrun-mnist-cuda.so"}  # GPU parts: off there
    assert not {path.name for path in left} - plugins


def test_spacks_recipe_is_python_and_names_options_that_exist():
    text = (PACKAGING / "spack/package.py").read_text()
    tree = ast.parse(text)
    recipe, = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    assert recipe.name == "Ctrun"
    build = (ctrun.ROOT / "cmake/ctrun_find.cmake").read_text() + (ctrun.ROOT / "CMakeLists.txt").read_text()
    options = re.findall(r'define(?:_from_variant)?\("(\w+)"', text)
    assert options and all(option in build for option in options)
    variants = set(re.findall(r'variant\("(\w+)"', text))
    assert set(re.findall(r'[+~](\w+)"', text)) <= variants


def test_condas_recipe_is_yaml_of_this_version_with_the_licence():
    yaml = pytest.importorskip("yaml", reason="no python3-yaml here")
    text = (PACKAGING / "conda/meta.yaml").read_text()
    assert f'set version = "{VERSION}"' in text
    recipe = yaml.safe_load(re.sub(r"\{\{.*?\}\}", "x", re.sub(r"\{%.*?%\}", "", text)))
    assert (PACKAGING / "conda" / recipe["source"]["path"] / "CMakeLists.txt").exists()
    assert (ctrun.ROOT / recipe["about"]["license_file"]).exists()


@pytest.mark.parametrize("lib, is_there", [("lib64", "true"), ("lib", "false")])
def test_the_module_file_runs_in_lua(box, lib, is_there):
    lua = next((name for name in ("lua", "lua5.4", "lua5.3") if shutil.which(name)), "lua")
    stubs = box.write("stubs.lua", "function pathJoin(a, b) return a .. '/' .. b end\n"
                      "function help(t) assert(t) end\nfunction whatis(t) assert(t) end\n"
                      "function prepend_path(n, v) print(n, v) end\n"
                      f"function isDir(p) return {is_there} end\n")
    run = tool(lua, "-e", f"dofile('{stubs}') dofile('{PACKAGING / 'modules/ctrun.lua'}')")
    assert run.returncode == 0, run.stderr
    assert {f"PATH\t/opt/ctrun/{VERSION}/bin", f"LD_LIBRARY_PATH\t/opt/ctrun/{VERSION}/{lib}",
            f"PKG_CONFIG_PATH\t/opt/ctrun/{VERSION}/{lib}/pkgconfig"} <= set(run.stdout.splitlines())


def test_the_image_has_the_programs_of_the_wheel():
    text = (PACKAGING / "oci/Containerfile").read_text()
    copied = re.search(r"^COPY (.*) /$", text, re.M)[1].split()
    backend = (PACKAGING / "wheel/backend.py").read_text()
    assert f"PROGRAMS = {copied}".replace("'", '"') in backend
    assert re.search(r"^FROM scratch$", text, re.M)
