# SPDX-License-Identifier: Apache-2.0
"""A real etcd of one or more members on this machine, for one test.

    etcd = Etcd(box, members=3, tls=True, auth=True)
    box.start_ctrun(*etcd.options("job"), ...)
    etcd.kill(etcd.leader())
"""
import base64
import json
import os
import shutil
import signal
import ssl
import subprocess
import urllib.error
import urllib.request

import ctrun

USER, PASSWORD = "ctrun", "ctrunpw"


def why_not():
    """Why there can be no etcd here; empty when there can."""
    if not shutil.which("etcd"):
        return "no etcd (Debian: etcd-server)"
    return ""


def _free_ports(count):
    ports = set()
    while len(ports) < count:
        ports.add(ctrun.free_port())
    return list(ports)


def _text(data):
    return base64.b64encode(data.encode()).decode()


def make_token_key(folder):
    """The flag for tokens that hold the number of the last change of users (JWT)."""
    def openssl(*words):
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)

    openssl("genrsa", "-out", "token.key", "2048")
    openssl("rsa", "-in", "token.key", "-pubout", "-out", "token.pub")
    return f"--auth-token=jwt,sign-method=RS256,priv-key={folder}/token.key,pub-key={folder}/token.pub"


def make_ca(folder):
    """ca.pem, server.pem/.key and client.pem/.key (which has no CN: etcd's gateway refuses one)."""
    def openssl(*words):
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)

    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *new, "-days", "2", "-subj", "/CN=test CA", "-keyout", "ca.key",
            "-out", "ca.pem")
    for name, subject in (("server", "/CN=localhost"), ("client", "/O=test")):
        openssl("req", *new, "-subj", subject, "-keyout", f"{name}.key", "-out", f"{name}.csr")
        (folder / f"{name}.ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n"
                                            "extendedKeyUsage=serverAuth,clientAuth\n")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
                "-CAcreateserial", "-days", "2", "-out", f"{name}.pem",
                "-extfile", f"{name}.ext")


class Etcd:
    def __init__(self, box, members=1, tls=False, auth=False, jwt=False):
        self.box = box
        self.tls = tls
        self.auth = auth
        self.dir = box.path("etcd")
        self.dir.mkdir()
        self._token = None
        self._context = None
        self._flags = [make_token_key(self.dir)] if jwt else []
        if tls:
            make_ca(self.dir)
            self._context = ssl.create_default_context(cafile=str(self.dir / "ca.pem"))
            self._context.load_cert_chain(self.dir / "client.pem", self.dir / "client.key")
        ports = _free_ports(2 * members)
        self.ports, self._peers = ports[:members], ports[members:]
        self._runs = [None] * members
        for index in range(members):
            self.start(index)
        ctrun.wait_until(lambda: self.leader() is not None, "etcd has a leader", 30)
        (self.dir / "password").write_text(PASSWORD + "\n")
        if auth:
            self.enable_users()

    # ---- Members

    def start(self, index):
        scheme = "https" if self.tls else "http"
        client = f"{scheme}://127.0.0.1:{self.ports[index]}"
        peer = [f"http://127.0.0.1:{port}" for port in self._peers]
        words = ["etcd", "--name", f"m{index}", "--data-dir", str(self.dir / f"data{index}"),
                 "--listen-client-urls", client, "--advertise-client-urls", client,
                 "--listen-peer-urls", peer[index], "--initial-advertise-peer-urls", peer[index],
                 "--initial-cluster", ",".join(f"m{i}={url}" for i, url in enumerate(peer)),
                 "--initial-cluster-token", self.box.mark, "--logger", "zap",
                 "--log-outputs", str(self.dir / f"log{index}"), *self._flags]
        if self.tls:
            words += ["--cert-file", str(self.dir / "server.pem"),
                      "--key-file", str(self.dir / "server.key"),
                      "--trusted-ca-file", str(self.dir / "ca.pem"), "--client-cert-auth"]
        env = {name: "" for name in os.environ if name.startswith("ETCD_")}
        self._runs[index] = self.box.start(*words, env=env)

    def kill(self, index):
        self._runs[index].signal(signal.SIGKILL)
        self._runs[index].wait()

    def freeze(self, index):
        """It stays connected and sends nothing more."""
        self._runs[index].signal(signal.SIGSTOP)

    def thaw(self, index):
        self._runs[index].signal(signal.SIGCONT)

    def down(self):
        for run in self._runs:
            if run and run.code is None:
                run.signal(signal.SIGKILL)
                run.wait()

    # ---- Calls

    def call(self, path, body, index=None):
        """The answer of that member, or of the first that answers; None when there is none."""
        for at in range(len(self.ports)) if index is None else [index]:
            request = urllib.request.Request(
                f"{'https' if self.tls else 'http'}://127.0.0.1:{self.ports[at]}/v3/{path}",
                json.dumps(body).encode())
            if self._token:
                request.add_header("Authorization", self._token)
            try:
                with urllib.request.urlopen(request, timeout=20, context=self._context) as answer:
                    return json.load(answer)
            except (urllib.error.URLError, OSError):
                continue
        return None

    def leader(self):
        """The index of the member that leads; None while there is none."""
        for index, run in enumerate(self._runs):
            if not run or run.code is not None:
                continue
            status = self.call("maintenance/status", {}, index)
            if status and status.get("leader") == status["header"]["member_id"]:
                return index
        return None

    def _must(self, path, body):
        """As call(); again until there is an answer."""
        return ctrun.wait_until(lambda: self.call(path, body), f"etcd answers {path}")

    def enable_users(self):
        for name, password in (("root", "rootpw"), (USER, PASSWORD)):
            self._must("auth/user/add", {"name": name, "password": password})
        self._must("auth/role/add", {"name": "root"})
        self._must("auth/role/add", {"name": "jobs"})
        self._must("auth/role/grant", {"name": "jobs", "perm": {
            "permType": "READWRITE", "key": _text("/ctrun/"), "range_end": _text("/ctrun0")}})
        self._must("auth/user/grant", {"user": "root", "role": "root"})
        self._must("auth/user/grant", {"user": USER, "role": "jobs"})
        self._must("auth/enable", {})
        self._token = self._must("auth/authenticate", {"name": "root", "password": "rootpw"})["token"]

    def add_user(self, name):
        self._must("auth/user/add", {"name": name, "password": "pw"})

    def keys(self, prefix="/ctrun/"):
        """{key: value} below the prefix."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        found = self.call("kv/range", {"key": _text(prefix), "range_end": _text(end)}) or {}
        return {base64.b64decode(kv["key"]).decode(): base64.b64decode(kv.get("value", ""))
                for kv in found.get("kvs", [])}

    def put(self, key, value):
        return self.call("kv/put", {"key": _text(key), "value": _text(value)})

    def delete(self, key):
        return self.call("kv/deleterange", {"key": _text(key)})

    def compact(self):
        revision = self.call("kv/range", {"key": _text("/")})["header"]["revision"]
        return self.call("kv/compaction", {"revision": revision})

    # ---- ctrun's side

    @property
    def endpoint(self):
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def options(self, run_id="job", **conf):
        """ctrun's options to use it; the password is in a file."""
        if self.tls:
            conf = {"protocol": "https", "cacert": self.dir / "ca.pem",
                    "cert": self.dir / "client.pem", "key": self.dir / "client.key", **conf}
        if self._token:
            conf = {"user": USER, "password_file": self.dir / "password", **conf}
        return ["--rdzv-backend=etcd", f"--rdzv-endpoint={self.endpoint}", f"--rdzv-id={run_id}",
                "--rdzv-conf=" + ",".join(f"{key}={value}" for key, value in conf.items())]
