# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel and the sdist (PEP 517), with CMake and nothing that must be downloaded.

A wheel has the programs as scripts, and the package `ctrun` with libctrun and its header. Two builds
of one source are equal byte by byte where the compiler's output is. Settings, from the environment:

    CTRUN_WHEEL_CMAKE       more words for cmake, for example -DCTRUN_STATIC=ON
    CTRUN_WHEEL_LIBRARIES   libctrun for other libcs: FILE:FILE, put in instead of this build's own
    CTRUN_WHEEL_BUILD       a folder in which the tree is built already, and so nothing is compiled

The tag says where it runs, after what the files need: manylinux with the newest glibc symbol, and
musllinux when there is a libctrun for musl; plain linux when they need more than a libc."""
import base64
import gzip
import hashlib
import io
import os
import pathlib
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSION = re.search(r"project\(ctrun VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
STEM = f"ctrun-{VERSION}"
PROGRAMS = ["ctrun", "ctrunctl", "ctrund"]
LIBC = re.compile(r"lib(c|m|dl|rt|pthread)\.so|ld-linux")  # what manylinux permits a file to need
LEFT_OUT = ("tests/", ".ci/")  # of the sdist

# A wheel has no symbolic links, and a second copy of ctrun would be more than a megabyte.
LAUNCH = """#!python
import os, sys
here = os.path.dirname(os.path.abspath(__file__))
os.execv(os.path.join(here, "ctrun"), [os.path.join(here, "ctrun-launch"), *sys.argv[1:]])
"""


def metadata():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return (f"Metadata-Version: 2.1\nName: ctrun\nVersion: {VERSION}\n"
            "Summary: Elastic launcher and rendezvous daemon for distributed training\n"
            "License: Apache-2.0\nRequires-Python: >=3.8\nClassifier: Operating System :: POSIX :: Linux\n"
            "Description-Content-Type: text/markdown\n\n" + text).encode()


def date():
    """The date of all files: SOURCE_DATE_EPOCH, if it is set; never before 1980 (zip)."""
    return max(315532800, int(os.environ.get("SOURCE_DATE_EPOCH", "315532800")))


# ---- What the files need -------------------------------------------------------------------


def needs(path):
    text = subprocess.run(["readelf", "-d", path], check=True, capture_output=True, text=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", text)


def glibc_of(path):
    """The newest version of glibc that it has a symbol of, as (2, 17)."""
    text = subprocess.run(["readelf", "-V", path], check=True, capture_output=True, text=True).stdout
    return max((tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_(\d[\d.]*)", text)),
               default=(2, 5))


def tag(programs, libraries):
    machine = platform.machine()
    musl = [path for path in libraries if not glibc_names(path)]
    others = [path for path in programs + libraries if path not in musl]
    if not all(LIBC.match(name) for path in others for name in needs(path)):
        return f"py3-none-linux_{machine}"
    newest = max(glibc_of(path) for path in others)
    tags = [f"manylinux_{newest[0]}_{newest[1]}_{machine}"]
    if musl and not any(needs(path) for path in programs):
        tags.append(f"musllinux_1_1_{machine}")
    return "py3-none-" + ".".join(tags)


def glibc_names(path):
    return any(name == "libc.so.6" for name in needs(path))


# ---- The wheel -----------------------------------------------------------------------------


def compile_into(build, targets):
    words = ["cmake", "-S", ROOT, "-B", build, "-DCMAKE_BUILD_TYPE=Release", "-DCTRUN_CUDA=OFF",
             "-DCTRUN_TESTS=OFF", "-DCMAKE_SKIP_RPATH=ON", *os.environ.get("CTRUN_WHEEL_CMAKE", "").split()]
    if shutil.which("ninja"):
        words[1:1] = ["-G", "Ninja"]
    subprocess.run(words, check=True)
    subprocess.run(["cmake", "--build", build, "--parallel", str(os.cpu_count()), "--target", *targets],
                   check=True)


def compiled(work):
    """(programs, libraries), stripped, in the folder."""
    ready = [pathlib.Path(name) for name in os.environ.get("CTRUN_WHEEL_LIBRARIES", "").split(":") if name]
    build = os.environ.get("CTRUN_WHEEL_BUILD")
    if not build:
        build = pathlib.Path(work, "build")
        compile_into(build, PROGRAMS + ([] if ready else ["libctrun"]))
    found = [pathlib.Path(build, "bin", name) for name in PROGRAMS]
    found += [] if ready else [pathlib.Path(build, "lib", "libctrun.so")]
    ours = [pathlib.Path(shutil.copy(path, work)) for path in found]
    subprocess.run(["strip", *ours], check=True)
    return ours[:len(PROGRAMS)], ready or ours[len(PROGRAMS):]


def pages():
    """{name: text} of the manual."""
    with tempfile.TemporaryDirectory() as made:
        subprocess.run(["awk", "-v", f"to={made}", "-f", ROOT / "man/header_pages.awk", ROOT / "man/libctrun.3",
                        ROOT / "worker_sdk/include/ctrun.h"], check=True)
        found = [*(ROOT / "man").glob("*.[1-8]"), *pathlib.Path(made).iterdir()]
        return {page.name: page.read_bytes() for page in sorted(found)}


def contents(programs, libraries):
    """{name in the wheel: (mode, bytes)} without RECORD and WHEEL."""
    found = {}
    for path in sorted((ROOT / "python/ctrun").iterdir()):
        if path.suffix in (".py", ".typed"):
            found[f"ctrun/{path.name}"] = (0o644, path.read_bytes())
    found["ctrun/include/ctrun.h"] = (0o644, (ROOT / "worker_sdk/include/ctrun.h").read_bytes())
    for path in libraries:
        name = "libctrun.so.0" if glibc_names(path) else "libctrun_musl.so.0"
        found[f"ctrun/lib/{name}"] = (0o755, path.read_bytes())
    for path in programs:
        found[f"{STEM}.data/scripts/{path.name}"] = (0o755, path.read_bytes())
    found[f"{STEM}.data/scripts/ctrun-launch"] = (0o755, LAUNCH.encode())
    for name, text in pages().items():
        if not name.startswith("ctrun-mnist."):  # which is not in it
            found[f"{STEM}.data/data/share/man/man{name[-1]}/{name}"] = (0o644, text)
    found[f"{STEM}.dist-info/METADATA"] = (0o644, metadata())
    found[f"{STEM}.dist-info/licenses/LICENSE"] = (0o644, (ROOT / "LICENSE").read_bytes())
    return found


def write_wheel(path, files):
    record = f"{STEM}.dist-info/RECORD"
    lines = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as out:
        def put(name, mode, data):
            info = zipfile.ZipInfo(name, time.gmtime(date())[:6])
            info.external_attr = (0o100000 | mode) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            out.writestr(info, data)

        for name, (mode, data) in sorted(files.items()):
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(data)}\n")
            put(name, mode, data)
        put(record, 0o644, "".join([*lines, f"{record},,\n"]).encode())


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with tempfile.TemporaryDirectory(prefix="ctrun-wheel-") as work:
        programs, libraries = compiled(work)
        tags = tag(programs, libraries)
        files = contents(programs, libraries)
    python, abi, platforms = tags.split("-")
    files[f"{STEM}.dist-info/WHEEL"] = (0o644, "".join([
        "Wheel-Version: 1.0\nGenerator: ctrun\nRoot-Is-Purelib: false\n",
        *(f"Tag: {python}-{abi}-{each}\n" for each in platforms.split("."))]).encode())
    name = f"{STEM}-{tags}.whl"
    write_wheel(pathlib.Path(wheel_directory, name), files)
    return name


# ---- The sdist -----------------------------------------------------------------------------


def sources():
    """The tracked files, or all files of an unpacked sdist."""
    if (ROOT / ".git").exists():
        names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True,
                               text=True).stdout.split("\0")[:-1]
    else:
        names = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file()]
    return sorted(name for name in names if not name.startswith(LEFT_OUT) and name != "PKG-INFO")


def build_sdist(sdist_directory, config_settings=None):
    name = f"{STEM}.tar.gz"
    with open(pathlib.Path(sdist_directory, name), "wb") as raw, \
            gzip.GzipFile("", "wb", 9, raw, mtime=date()) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as out:
        def put(path, mode, data):
            info = tarfile.TarInfo(f"{STEM}/{path}")
            info.mode, info.size, info.mtime = mode, len(data), date()
            out.addfile(info, io.BytesIO(data))

        put("PKG-INFO", 0o644, metadata())
        for path in sources():
            executable = os.access(ROOT / path, os.X_OK)
            put(path, 0o755 if executable else 0o644, (ROOT / path).read_bytes())
    return name


def get_requires_for_build_wheel(config_settings=None):
    return [] if shutil.which("cmake") else ["cmake", "ninja"]
