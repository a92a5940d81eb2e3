# SPDX-License-Identifier: Apache-2.0
"""PyTorch continues when a rank dies, and takes in a new rank. Two lines in a script that trains on Gloo:

    import ctrun.elastic                                  # before init_process_group
    ...
    dist.init_process_group("gloo")
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters())
    first = ctrun.elastic.attach(model, optimizer)        # optimizer steps made so far: 0, or more in a new rank
    for step in range(first, steps):
        ...

and `ctrun --survive=torch --survive-replace=N train.py`. When a rank dies the others form a new group and average
the gradients of the current step again, without the lost rank: no step is lost, and none is made twice. A worker
that takes its place gets parameters, buffers and the state of the optimizer from the memory of another rank.

Gradients are averaged here when backward() ends, over the ranks that are in the group then; DDP's own sum is
off. Those of several backward() may be accumulated, also under no_sync(): each is averaged. Collectives of the script's own are not repeated:
they raise, as without this module. RANK and WORLD_SIZE do not change; dist.get_rank() and get_world_size() are those of
the current group, which has one rank in a new worker until it calls attach().

This needs PyTorch 2.15 with its experimental enable_reconfigure, and ctrun's option. Without them attach() returns 0
and changes nothing: a rank that dies ends the round."""
import contextlib
import ctypes
import functools
import inspect
import io
import os
import sys
import threading
import time
from datetime import timedelta
from typing import Any, Dict, List, Optional

import torch
import torch.distributed as dist

import ctrun

from ._library import call, library

__all__ = ["attach"]

MEET = timedelta(seconds=3)       # to connect to the ranks that the agent has named, or to the worker store
MEET_ALL = 10.0                   # seconds to wait for all of these ranks: they have asked at the same time
PATIENCE = 1800.0                 # seconds until the others ask or have their state: one may write a checkpoint
TRIES = 5                         # of one step by the same ranks: after that no lost rank is the cause
LOOK = timedelta(seconds=1)       # in a collective: between two checks whether the world has changed
_original: Any = getattr(dist, "init_process_group", None)
_world: Optional["_World"] = None


class _Changed(RuntimeError):
    """A rank is lost, or waits to join."""


class _Store(dist.Store):  # type: ignore[misc, unused-ignore] # torch may be missing where types are checked
    """The worker store, which may move to another node: groups keep this object then. It has the methods of Store that
    Gloo and c10d call."""

    def __init__(self, timeout: timedelta) -> None:
        super().__init__()
        is_new = os.environ.get("CTRUN_MAY_GROW") == "new"  # the others do not register in a store that has moved
        self._connect(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), timeout, not is_new)

    def move(self, host: str, port: int) -> None:
        """Connects to the new address, and puts it into the environment for later connections."""
        patience = self.timeout
        self._connect(host, port, MEET, False)
        self.set_timeout(patience)
        os.environ.update(MASTER_ADDR=host, MASTER_PORT=str(port))

    def _connect(self, host: str, port: int, timeout: timedelta, waits: bool) -> None:
        store = dist.TCPStore(host, port, int(os.environ["WORLD_SIZE"]), False, timeout, wait_for_workers=waits)
        self.place, self.now = (host, port), dist.PrefixStore(os.environ["CTRUN_GENERATION"], store)

    def set_timeout(self, timeout: timedelta) -> None:
        self.now.set_timeout(timeout)

    def set(self, key: str, value: Any) -> None:
        self.now.set(key, value)

    def get(self, key: str) -> Any:
        return self.now.get(key)

    def add(self, key: str, value: int) -> Any:
        return self.now.add(key, value)

    def compare_set(self, key: str, expected: Any, desired: Any) -> Any:
        return self.now.compare_set(key, expected, desired)

    def check(self, keys: List[str]) -> Any:
        return self.now.check(keys)

    def wait(self, keys: List[str], *timeout: timedelta) -> None:
        self.now.wait(keys, *timeout)

    def delete_key(self, key: str) -> Any:
        return self.now.delete_key(key)

    def append(self, key: str, value: Any) -> None:
        self.now.append(key, value)

    def multi_get(self, keys: List[str]) -> Any:
        return self.now.multi_get(keys)

    def multi_set(self, keys: List[str], values: List[Any]) -> None:
        self.now.multi_set(keys, values)

    def has_extended_api(self) -> bool:
        return True

    @property
    def timeout(self) -> Any:
        return self.now.timeout


class _World:
    """The default group, and its ranks."""

    def __init__(self, group: Any, store: Any) -> None:
        self.group, self.store = group, store
        self.rank, self.most = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.is_new = os.environ.get("CTRUN_MAY_GROW") == "new"
        self.ranks: List[int] = []
        self.epoch = 0
        self.stuck: List[Any] = []  # collectives of all trainers that do not end: they share Gloo's threads
        with ctrun._lock:
            self.session = ctrun._open()
        self.place = self._find_store()

    def has_changed(self) -> bool:
        answer: bool = library().ctrun_world_changes(self.session)
        return answer

    def has_shrunk(self) -> bool:
        answer: bool = library().ctrun_world_shrinks(self.session)
        return answer

    def is_over(self) -> bool:
        """A rank is lost, or has left the group before all were done. Ranks that wait to join can wait until then."""
        return self.has_shrunk() or bool(self.store.check([self._key("left")]))

    def leave(self) -> None:
        if not self.has_shrunk():  # else all ranks know already, and the store may be lost
            with contextlib.suppress(RuntimeError):  # the store may be lost anyway
                self.store.set(self._key("left"), "1")

    def begin(self) -> None:
        """All ranks of the start form a group; a new rank is alone until the others take it in."""
        if self.is_new:
            self._form(int.from_bytes(os.urandom(7), "big"), [dist._get_reconfigure_handle()])
        else:
            self.ranks = list(range(self.most))
            self.meet()

    def ask(self) -> None:
        """Waits until the agent tells which ranks continue. Raises ctrun.Error."""
        ranks, epoch = (ctypes.c_int * self.most)(), ctypes.c_uint32()
        count = call("ctrun_world_next", self.session, int(PATIENCE * 1000), ranks, self.most, ctypes.byref(epoch))
        self.ranks, self.epoch = ranks[:count], epoch.value

    def _find_store(self) -> Any:
        port = ctypes.c_int()
        return library().ctrun_world_store(self.session, ctypes.byref(port)).decode(), port.value

    def _follow_store(self) -> None:
        place = self._find_store()
        if place == self.place:
            return
        if not isinstance(self.store, _Store):
            raise ctrun.Error(0, "ctrun.elastic: the worker store has moved to another node, but this group does not use the "
                              "launcher's store: call init_process_group() without store and init_method")
        self.store.move(*place)
        self.place = place

    def meet(self) -> None:
        """Forms the group. No rank uses it before all are in it: all addresses are in the store before any connects."""
        self._follow_store()
        self._tell("handle", dist._get_reconfigure_handle())
        handles = [self.store.get(key).decode() for key in self._await("handle")]
        self._form(self.epoch, handles)
        self._tell("ready", "1")
        self._await("ready")

    def part(self) -> None:
        """Waits until each rank has what it was sent: a rank that left earlier would end all connections."""
        self._tell("done", "1")
        self._await("done", PATIENCE)

    def _form(self, uuid: int, handles: List[str]) -> None:
        """A rank may die before it has told its address; Gloo waits for it as long as the store's timeout. The timeout
        given here also limits later send() and recv(). At the start a loss ends the round anyway: the script's are kept."""
        if self.epoch == 0:
            dist._reconfigure(uuid=uuid, handles=handles).wait()
            return
        patience = self.store.timeout
        self.store.set_timeout(MEET)
        try:
            dist._reconfigure(uuid=uuid, handles=handles, timeout=MEET).wait()
        finally:
            self.store.set_timeout(patience)

    def _key(self, what: str) -> str:
        return f"ctrun/elastic/{self.epoch}/{what}"

    def _tell(self, what: str, value: str) -> None:
        self.store.set(self._key(f"{what}/{self.rank}"), value)

    def _await(self, what: str, limit: float = MEET_ALL) -> List[str]:
        """Polls instead of one long wait: a rank that has died by now never sets its key."""
        keys = [self._key(f"{what}/{rank}") for rank in self.ranks]
        pause, end = 0.0005, time.monotonic() + limit
        while not self.store.check(keys):
            if self.is_over():
                raise _Changed(f"a rank is lost, or has left the group, while rank {self.rank} waited for all ranks")
            if self.epoch > 0 and time.monotonic() > end:  # the missing ranks ask by now who continues
                missing = [rank for rank, key in zip(self.ranks, keys) if not self.store.check([key])]
                raise _Changed(f"no answer in {limit:g} s from ranks {missing}")
            time.sleep(pause)
            pause = min(pause * 2, 0.02)
        return keys


class _Flat:
    """The tensors of one type as one flat tensor, twice: for the sum of this step, and the sum of the step before."""

    def __init__(self, tensors: List[torch.Tensor]) -> None:
        self.tensors = tensors
        count = sum(t.numel() for t in tensors)
        self.sides = [torch.zeros(count, dtype=tensors[0].dtype) for _ in (0, 1)]

    def give_up(self, side: int) -> None:
        """Leaves the memory to a collective that does not end, and takes new memory."""
        self.sides[side] = torch.zeros_like(self.sides[side])

    def pieces(self, side: int) -> Any:
        return zip(self.tensors, self.sides[side].split([t.numel() for t in self.tensors]))


class _Trainer:
    """A model and its optimizer in a world that changes.

    A backward() is done, and counted, once its gradients are averaged; parameters change only in optimizer.step(). So when
    ranks form a new group they are in the same backward(), or some are one behind: those that did not get the sum,
    which another rank still has. A new rank may join while a step has some done: it repeats these without the others,
    then takes the last sum, to which all before it have contributed."""

    def __init__(self, world: _World, model: torch.nn.Module, optimizer: Any, others: Any) -> None:
        self.world, self.optimizer, self.others = world, optimizer, others
        self.module = model
        self.syncs_buffers = True
        if isinstance(model, torch.nn.parallel.DistributedDataParallel):
            self.module = model.module
            self.syncs_buffers = model.broadcast_buffers
            model.require_backward_grad_sync = model.require_forward_param_sync = False
        self.done = 0              # backward() whose gradients are averaged
        self.unused = 0            # of these, since the last step of the optimizer
        self.steps = 0             # of the optimizer
        self.repeats = 0           # backward() that the others made before this new rank joined
        self.is_queued = False
        self.gradients = self._by_type([p for p in self.module.parameters() if p.requires_grad])
        self.buffers = self._by_type(list(self.module.buffers())) if self.syncs_buffers else []
        for flat in self.gradients:
            for parameter in flat.tensors:
                parameter.register_post_accumulate_grad_hook(self._on_gradient)
        optimizer.register_step_post_hook(self._on_step)

    @staticmethod
    def _by_type(tensors: List[torch.Tensor]) -> List[_Flat]:
        types: Dict[torch.dtype, List[torch.Tensor]] = {}
        for tensor in tensors:
            types.setdefault(tensor.dtype, []).append(tensor)
        return [_Flat(some) for some in types.values()]

    def _on_step(self, *_: Any) -> None:
        self.steps, self.unused = self.steps + 1, 0

    def _on_gradient(self, _: Any) -> None:
        if not self.is_queued:
            self.is_queued = True
            torch.autograd.Variable._execution_engine.queue_callback(self._on_backward_end)

    @torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore] # torch may be missing where types are checked
    def _on_backward_end(self) -> None:
        self.is_queued = False
        if self.repeats > 0:
            self.repeats -= 1
            if self.repeats == 0:
                self._take((self.done - 1) % 2)
            return
        self._average()
        self.done, self.unused = self.done + 1, self.unused + 1

    # ---- One backward() --------------------------------------------------------------------------

    def _flats(self) -> List[_Flat]:
        return self.gradients + self.buffers

    def _sum(self, side: int) -> None:
        """Sums over all ranks. The gradients and buffers of this rank stay unchanged, so that they can be summed again."""
        if self.world.has_changed():
            raise _Changed("a rank is lost, or waits to join")
        for flat in self.gradients:
            for parameter, piece in flat.pieces(side):
                if parameter.grad is None:
                    piece.zero_()
                else:
                    piece.copy_(parameter.grad.reshape(-1))
            self._wait(dist.all_reduce(flat.sides[side], async_op=True), flat, side)
            flat.sides[side].div_(self.world.group.size())
        for flat in self.buffers:
            for buffer, piece in flat.pieces(side):
                piece.copy_(buffer.reshape(-1))
            self._wait(dist.broadcast(flat.sides[side], 0, async_op=True), flat, side)

    def _wait(self, work: Any, flat: Optional[_Flat] = None, side: int = 0) -> None:
        """Gloo does not always notice that a connection was shut down while it sends; then its thread waits for ever. There
        are two threads: when both are lost, this rank cannot continue."""
        look = self.world.has_changed if flat else self.world.is_over
        has_changed = False
        while True:
            try:
                work.wait(LOOK)
                return
            except RuntimeError:
                if work.is_completed():
                    work.wait()  # raises its own error, or has just ended
                    return
            if has_changed:
                break
            has_changed = look()  # its connections are shut down before the next check
        if flat is not None:
            flat.give_up(side)
        self.world.stuck = [one for one in self.world.stuck if not one.is_completed()] + [work]
        if len(self.world.stuck) > 1:
            raise ctrun.Error(0, "ctrun.elastic: the ranks of the world have changed, and two collectives of Gloo do not "
                              "end: this rank cannot continue")
        raise _Changed("the ranks of the world have changed, and the collective does not end")

    def _exchange(self, work: Any) -> None:
        """The same for send and receive, for which no thread of Gloo waits. When a timeout ends, Gloo shuts the connections:
        so the timeout here is long (the default is that of _form()), and the loop ends the wait when a rank is lost."""
        errors: List[RuntimeError] = []

        def wait() -> None:
            try:
                work.wait(timedelta(seconds=PATIENCE))
            except RuntimeError as error:
                errors.append(error)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        is_over = False
        while True:
            thread.join(LOOK.total_seconds())
            if not thread.is_alive():
                break
            if is_over:
                try:
                    work.wait(timedelta(milliseconds=1))
                finally:  # a thread that returns from Gloo while Python ends would abort
                    thread.join(MEET_ALL)
                raise _Changed("a rank is lost, or has left the group, and a send or receive does not end")
            is_over = self.world.is_over()
        if errors:
            raise errors[0]

    def _take(self, side: int) -> None:
        for flat in self.gradients:
            for parameter, piece in flat.pieces(side):
                if parameter.grad is None:
                    parameter.grad = piece.view_as(parameter).clone()
                else:
                    parameter.grad.copy_(piece.view_as(parameter))
        for flat in self.buffers:
            for buffer, piece in flat.pieces(side):
                buffer.copy_(piece.view_as(buffer))

    def _average(self) -> None:
        side, tries = self.done % 2, 0
        while True:
            ranks = self.world.ranks
            try:
                self._sum(side)
                break
            except _Changed:
                if self.meet():
                    break
            except ctrun.Error:
                raise
            except RuntimeError:  # from Gloo: a rank is lost, or has left
                if self.meet():
                    break
                tries = tries + 1 if self.world.ranks == ranks else 0
                if tries == TRIES:
                    raise
        self._take(side)

    # ---- When the world changes ------------------------------------------------------------

    def meet(self) -> bool:
        """Forms a group of the ranks that continue. True when this rank was a backward() behind and has received the sum."""
        tries = 0
        while True:
            ranks = self.world.ranks
            self.world.ask()
            try:
                self.world.meet()
                return self._catch_up()
            except ctrun.Error:
                raise
            except RuntimeError:
                self.world.leave()
                tries = tries + 1 if self.world.ranks == ranks else 0
                if tries == TRIES:
                    raise

    def _catch_up(self) -> bool:
        group = self.world.group
        table = torch.zeros(group.size(), 3, dtype=torch.int64)
        table[group.rank()] = torch.tensor([self.done, int(self.world.is_new), self.unused])
        self._wait(dist.all_reduce(table, async_op=True))
        told = [(done, is_new) for done, is_new, _ in table.tolist()]
        steps = [done for done, is_new in told if not is_new]
        if not steps:
            raise ctrun.Error(0, "ctrun.elastic: no rank that has the parameters is left: start again from a checkpoint")
        most, source = max(steps), told.index((max(steps), 0))
        unused = int(table[source, 2])
        sums = [flat.sides[(most - 1) % 2] for flat in self._flats()] if min(steps) < most or unused > 0 else []
        was_behind = False
        for member, (done, is_new) in enumerate(told):
            if not is_new and done == most:
                continue
            if group.rank() == source:
                self._send(member, is_new, sums)
            elif group.rank() == member:
                self._receive(source, is_new, most, sums)
                was_behind = not is_new
        self.world.part()
        if self.world.is_new:
            self.done, self.unused, self.repeats, self.world.is_new = most, unused, unused, False
        return was_behind

    def _send(self, member: int, is_new: int, sums: List[torch.Tensor]) -> None:
        """When a rank is behind, a new rank gets the sums as well: the new rank may continue while the rank that is behind
        loses the source, before it knows that all have what they were sent. Then it asks the new rank for the sums."""
        for tensor in sums:
            self._exchange(dist.isend(tensor, member))
        if not is_new:
            return
        file = io.BytesIO()
        targets = self.module, self.optimizer, *self.others
        torch.save([self.steps, *(target.state_dict() for target in targets)], file)
        state = torch.frombuffer(file.getbuffer(), dtype=torch.uint8)
        self._exchange(dist.isend(torch.tensor([state.numel()]), member))
        self._exchange(dist.isend(state, member))

    def _receive(self, source: int, is_new: int, most: int, sums: List[torch.Tensor]) -> None:
        if not is_new and most != self.done + 1:
            raise ctrun.Error(0, f"ctrun.elastic: rank {self.world.rank} has ended {self.done} backward(), and another rank {most}: "
                              "a rank can only catch up one")
        for tensor in sums:
            self._exchange(dist.irecv(tensor, source))
        if not is_new:
            return
        length = torch.zeros(1, dtype=torch.int64)
        self._exchange(dist.irecv(length, source))
        state = torch.empty(int(length.item()), dtype=torch.uint8)
        self._exchange(dist.irecv(state, source))
        self.steps, *parts = torch.load(io.BytesIO(state.numpy().tobytes()), weights_only=True)
        for target, part in zip((self.module, self.optimizer, *self.others), parts):
            target.load_state_dict(part)


# ---- Whether this PyTorch can reconfigure --------------------------------------------------------


def _tell(text: str) -> None:
    if os.environ.get("LOCAL_RANK", "0") == "0":
        print(f"ctrun.elastic: {text}; a rank that dies ends the round", file=sys.stderr)


def _refuse() -> Optional[str]:
    """The reason why this PyTorch cannot form a group again; None: it can."""
    names = "_reconfigure", "_get_reconfigure_handle"
    if all(hasattr(dist, name) for name in names) and "enable_reconfigure" in inspect.signature(_original).parameters:
        return None
    return f"PyTorch {torch.__version__} cannot form a group again: this needs enable_reconfigure as in PyTorch 2.15"


def _init_process_group(backend: Optional[str] = None, *arguments: Any, **options: Any) -> None:
    global _world
    if backend != "gloo":
        _tell(f"init_process_group() was called with backend {backend}: only gloo can form a group again")
        _original(backend, *arguments, **options)
        return
    os.environ["TORCH_GLOO_LAZY_INIT"] = "0"  # 2.15: with it, a group that is formed again does not read
    given = inspect.signature(_original).bind(backend, *arguments, **options).arguments
    store = _open_store(given)
    _original(**{**given, "enable_reconfigure": True})
    _world = _World(dist.distributed_c10d._get_default_group(), store or dist.distributed_c10d._get_default_store())
    _world.begin()


def _open_store(given: Dict[str, Any]) -> Optional[_Store]:
    """The launcher's store, unless the script gives a store or an address."""
    if given.get("store") is not None or given.get("init_method") not in (None, "env://") or \
            os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    store = _Store(given.get("timeout") or dist.distributed_c10d._get_default_timeout("gloo"))
    given.pop("init_method", None)
    given.update(store=dist.PrefixStore("default_pg", store), rank=int(os.environ["RANK"]),
                 world_size=int(os.environ["WORLD_SIZE"]))
    return store


def _begin() -> None:
    """ctrun sets CTRUN_MAY_REFORM where the agent ends the collectives of the other ranks when one is lost."""
    if os.environ.get("CTRUN_MAY_REFORM") != "1" or "CTRUN_AGENT_SOCKET" not in os.environ:
        return
    why = _refuse()
    if why is not None:
        _tell(why)
        return
    wrapped = functools.wraps(_original)(_init_process_group)
    dist.init_process_group = dist.distributed_c10d.init_process_group = wrapped


def attach(model: torch.nn.Module, optimizer: torch.optim.Optimizer, *others: Any) -> int:
    """Call it once, after model and optimizer are made and before the first step. Returns how many steps are made: 0, or,
    in a worker that took the place of a lost one, the steps of the others; it waits until they end a backward().
    others: more objects with state_dict() and load_state_dict(), such as a learning-rate scheduler."""
    if _world is None:
        return 0
    trainer = _Trainer(_world, model, optimizer, others)
    if _world.is_new:
        trainer.meet()
    return trainer.steps


_begin()
