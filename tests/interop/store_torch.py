# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of test_store_*.py, run by whatever interpreter has the torch in question:

    store_torch.py operations PORT          every operation that its client has; prints "ok"
    store_torch.py serve 0|1                hosts a store until standard input ends; prints the port
    store_torch.py gloo PORT RANK SIZE      init_process_group and an all_reduce; prints "ok"
    store_torch.py attempt                  under torchrun: whether an attempt before this one left
                                            a key in the store; the first one kills itself
"""
import datetime
import os
import signal
import sys
import threading

import torch
import torch.distributed as dist

IS_LEGACY = torch.__version__.startswith("1.")  # no CHECK in Python, no extended operations


def seconds(n):
    return datetime.timedelta(seconds=n)


def connect(port, timeout=30, **how):
    return dist.TCPStore("127.0.0.1", port, None, False, seconds(timeout),
                         wait_for_workers=False, **how)


def same(got, wanted):
    assert got == wanted, f"{got!r}, not {wanted!r}"


def fails(call, *arguments):
    try:
        call(*arguments)
    except Exception as error:
        return str(error)
    raise AssertionError(f"{call} did not fail")


def simple(store):
    store.set("k", "v")
    same(store.get("k"), b"v")
    store.set("k0", "")
    same(store.get("k0"), b"")
    store.set("", "emptykey")
    same(store.get(""), b"emptykey")
    same([store.add("c", n) for n in (1, 41, -50, 0)], [1, 42, -8, -8])
    same(store.get("c"), b"-8")
    same(store.compare_set("cs", "", "first"), b"first")
    same(store.compare_set("cs", "first", "second"), b"second")
    same(store.compare_set("cs", "nope", "third"), b"second")
    same(store.compare_set("cs", "", "fourth"), b"second")
    same(store.compare_set("cs-missing", "exp", "new"), b"exp")
    same(store.num_keys(), 5)
    same([store.delete_key("k"), store.delete_key("k")], [True, False])
    store.wait(["c", "cs"])
    store.wait([])
    store.set("large", "x" * 5000000)
    same(len(store.get("large")), 5000000)
    store.delete_key("large")


def prefixes(store):
    dist.PrefixStore("outer", dist.PrefixStore("inner", store)).set("a", "1")
    same(store.get("inner/outer/a"), b"1")
    same(dist.PrefixStore("inner", store).get("outer/a"), b"1")


def timeouts(port, store):
    """A late set must not shift the replies to the client that gave up waiting. (Nothing helps a
    client of 1.13 when the set comes before its next request.)"""
    fails(store.wait, ["never"], datetime.timedelta(milliseconds=200))
    keys = store.num_keys()
    late = connect(port)
    late.set("never", "x")
    late.get("never")  # SET has no reply; this one comes after it was done
    same(store.num_keys(), keys + 1)
    same(store.get("never"), b"x")


def release(port, store, wait, act):
    """wait() in a thread ends by act() on another connection."""
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    act(connect(port))
    thread.join(30)
    assert not thread.is_alive(), "still waiting"


def wakes(port, store):
    release(port, store, lambda: store.get("w1"), lambda other: other.set("w1", ""))
    release(port, store, lambda: store.get("w2"), lambda other: other.add("w2", 1))
    release(port, store, lambda: store.get("w3"), lambda other: other.compare_set("w3", "", "x"))
    release(port, store, lambda: store.wait(["w4", "w5"]),
            lambda other: (other.set("w4", "x"), other.set("w5", "x")))


def extended(port, store):
    same(store.check(["c", "cs"]), True)
    same(store.check(["c", "absent"]), False)
    same(store.check([]), True)
    store.append("ap", "abc")
    store.append("ap", "def")
    same(store.get("ap"), b"abcdef")
    store.multi_set(["m1", "m2"], ["one", "two"])
    same(store.multi_get(["m1", "m2"]), [b"one", b"two"])
    same(store.multi_get([]), [])
    store.multi_set([], [])
    release(port, store, lambda: store.get("w6"), lambda other: other.append("w6", "x"))
    release(port, store, lambda: store.get("w7"), lambda other: other.multi_set(["w7"], ["x"]))


def newest(port, store):
    assert {"c", "cs", "m1"} <= set(store.list_keys())
    other = store.clone()
    release(port, store, lambda: store.barrier("bar", 2), lambda _: other.barrier("bar", 2))
    fails(store.barrier, "alone", 2, datetime.timedelta(milliseconds=200))
    dist.PrefixStore("pre", store).barrier("pb", 1)
    dist.PrefixStore("pre", store).clone().set("x", "y")
    same(store.get("pre/x"), b"y")


def queues(port):
    store = connect(port, use_libuv=True)
    same(store.queue_len("q"), 0)
    for element in ("x", "", "z"):
        store.queue_push("q", element)
    same(store.queue_len("q"), 3)
    same([store.queue_pop("q"), store.queue_pop("q", False), store.queue_pop("q")],
         [b"x", b"", b"z"])
    fails(store.queue_pop, "q", False)
    release(port, store, lambda: same(store.queue_pop("q"), b"late"),
            lambda _: connect(port, use_libuv=True).queue_push("q", "late"))


def operations(port):
    store = connect(port)
    simple(store)
    prefixes(store)
    timeouts(port, store)
    wakes(port, store)
    if not IS_LEGACY:
        extended(port, store)
    if hasattr(store, "list_keys"):
        newest(port, store)
    if hasattr(store, "queue_push"):
        queues(port)
    fails(store.add, "cs", 1)  # not a number: this connection ends
    same(connect(port).get("cs"), b"second")
    same(dist.TCPStore("127.0.0.1", port, 1, False, seconds(30)).get("cs"), b"second")


def serve(use_libuv):
    how = {} if IS_LEGACY else {"use_libuv": bool(int(use_libuv))}
    store = dist.TCPStore("127.0.0.1", 0, None, True, seconds(30), wait_for_workers=False, **how)
    print(store.port, flush=True)
    sys.stdin.read()
    os._exit(0)


def gloo(port, rank, size):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK=rank, WORLD_SIZE=size,
                      TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RESTART_COUNT="0")
    dist.init_process_group("gloo", timeout=seconds(60))
    tensor = torch.full((1000,), float(rank) + 1)
    dist.all_reduce(tensor)
    same(tensor[0].item(), sum(range(1, int(size) + 1)))
    group = dist.new_group(list(range(int(size))))
    dist.barrier(group)
    dist.destroy_process_group()


def attempt():
    store, _, _ = next(dist.rendezvous("env://", timeout=seconds(60)))
    restarts = os.environ["TORCHELASTIC_RESTART_COUNT"]
    print(f"attempt {restarts}: {'used' if store.check(['left']) else 'new'}", flush=True)
    store.set("left", "x")
    if restarts == "0":
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    mode, arguments = sys.argv[1], sys.argv[2:]
    if mode == "serve":
        serve(*arguments)
    elif mode == "gloo":
        gloo(*arguments)
    elif mode == "attempt":
        attempt()
    else:
        operations(int(arguments[0]))
    print("ok")
