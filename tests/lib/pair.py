# SPDX-License-Identifier: Apache-2.0
"""Two nodes of one run, and workers that print the addresses that they got."""
import ctrun

# A worker that connects to MASTER_ADDR:MASTER_PORT, and prints these and its interfaces.
WORKER = """
import os, socket
e = os.environ
socket.create_connection((e["MASTER_ADDR"], int(e["MASTER_PORT"])), timeout=60).close()
print("told", e["RANK"], e["MASTER_ADDR"], e["MASTER_PORT"],
      e.get("NCCL_SOCKET_IFNAME", "-"), e.get("GLOO_SOCKET_IFNAME", "-"), flush=True)
"""

# Rank 0 serves at MASTER_PORT itself, as torch's env:// does without an agent's store.
SERVER = """
import os, socket, time
e = os.environ
place = (e["MASTER_ADDR"], int(e["MASTER_PORT"]))
print("store", e["RANK"], e["TORCHELASTIC_USE_AGENT_STORE"], flush=True)
if e["RANK"] == "0":
    server = socket.create_server(("", place[1]))
    count = 0
    while count < int(e["WORLD_SIZE"]) - 1:
        count += server.accept()[0].recv(1) == b"x"
deadline = time.monotonic() + 20
while e["RANK"] != "0":
    try:
        socket.create_connection(place, timeout=60).send(b"x")
        break
    except ConnectionRefusedError:
        assert time.monotonic() < deadline
        time.sleep(0.01)
"""
NOT_SHARED = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def start(box, hosts, node, endpoint, *options, env=None):
    script = box.path("worker.py")
    if not script.exists():
        script.write_text(WORKER)
    return hosts.start(node, ctrun.program("ctrun"), *([] if any(word.startswith("--nnodes=") for word in options) else
                         ["--nnodes=2"]), f"--rdzv-endpoint={endpoint}",
                       "--rdzv-id=addresses", *options, str(script), env=env)


def run_both(box, hosts, endpoint, *options, **how):
    runs = [start(box, hosts, node, endpoint, *options, **how) for node in ("node1", "node2")]
    assert [run.wait(30) for run in runs] == [0, 0], runs
    return runs


def told(run):
    """What each worker of a node printed: rank, master address, port, NCCL's and gloo's
    interface."""
    found = [line.split()[1:] for line in run.out.splitlines() if line.startswith("told ")]
    assert found, run
    return found


def names(hosts, node, *lines):
    text = "\n".join(("127.0.0.1 localhost",) + lines)
    hosts.sh(node, f"echo '{text}' >/etc/hosts")
