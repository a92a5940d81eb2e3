# SPDX-License-Identifier: Apache-2.0
"""sdk_torch.py LIBCTRUN STORY [FOLDER]: compares libctrun's data and checkpoint calls with the
torch of this interpreter. Ends with an AssertionError that holds both values, or prints "equal".
"""
import ctypes
import itertools
import json
import os
import struct
import sys

import torch
from torch import nn
from torch.utils.data.distributed import DistributedSampler

DTYPES = {"U8": (0, torch.uint8), "I32": (1, torch.int32), "I64": (2, torch.int64),
          "F16": (3, torch.float16), "BF16": (4, torch.bfloat16), "F32": (5, torch.float32),
          "F64": (6, torch.float64)}
CODES = {dtype: code for code, dtype in DTYPES.values()}


class SamplerOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("count", ctypes.c_size_t), ("rank", ctypes.c_int),
                ("world_size", ctypes.c_int), ("seed", ctypes.c_uint64),
                ("no_shuffle", ctypes.c_bool), ("drop_last", ctypes.c_bool),
                ("any_order", ctypes.c_bool)]


class Tensor(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("dtype", ctypes.c_int),
                ("dims", ctypes.c_int), ("sizes", ctypes.c_int64 * 8), ("data", ctypes.c_void_p)]


class Metadata(ctypes.Structure):
    _fields_ = [("key", ctypes.c_char_p), ("value", ctypes.c_char_p)]


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("text", ctypes.c_char * 1024)]


class Net(nn.Module):
    """The network of PyTorch's MNIST example."""
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)


def check(rc, error):
    assert rc >= 0, f"{rc}: {error.text.decode()}"


def permutations(lib, _folder):
    for n, seed in itertools.product((1, 2, 10, 1000, 60000), (0, 1, 42, 2 ** 32 + 5)):
        ours = (ctypes.c_uint64 * n)()
        lib.ctrun_permutation(ctypes.c_uint64(seed), ours, ctypes.c_size_t(n))
        theirs = torch.randperm(n, generator=torch.Generator().manual_seed(seed)).tolist()
        assert list(ours) == theirs, (n, seed, list(ours)[:10], theirs[:10])


def deal(lib, n, world, rank, seed, epoch, shuffle, drop_last):
    options = SamplerOptions(ctypes.sizeof(SamplerOptions), n, rank, world, seed, not shuffle,
                             drop_last, False)
    sampler, error = ctypes.c_void_p(), Error()
    check(lib.ctrun_sampler_create(ctypes.byref(sampler), ctypes.byref(options),
                                   ctypes.byref(error)), error)
    check(lib.ctrun_sampler_set_epoch(sampler, ctypes.c_uint64(epoch), ctypes.c_size_t(0),
                                      ctypes.byref(error)), error)
    lib.ctrun_sampler_length.restype = ctypes.c_size_t
    lib.ctrun_sampler_indices.restype = ctypes.POINTER(ctypes.c_uint64)
    indices = lib.ctrun_sampler_indices(sampler)[:lib.ctrun_sampler_length(sampler)]
    lib.ctrun_sampler_destroy(sampler)
    return indices


def samplers(lib, _folder):
    for n, world, shuffle, drop_last in itertools.product(
            (0, 1, 2, 3, 10, 97, 1000), (1, 2, 3, 8), (False, True), (False, True)):
        for rank, (seed, epoch) in itertools.product(range(world), ((0, 0), (7, 3))):
            case = dict(shuffle=shuffle, drop_last=drop_last)
            theirs = DistributedSampler(range(n), world, rank, seed=seed, **case)
            theirs.set_epoch(epoch)
            ours = deal(lib, n, world, rank, seed, epoch, **case)
            assert ours == list(theirs), (n, world, rank, seed, epoch, case, ours, list(theirs))


def tensor(name, value):
    return Tensor(ctypes.sizeof(Tensor), name.encode(), CODES[value.dtype], value.dim(),
                  (ctypes.c_int64 * 8)(*value.shape), value.data_ptr())


def save(lib, path, tensors, metadata):
    array = (Tensor * len(tensors))(*(tensor(k, v) for k, v in tensors.items()))
    texts = (Metadata * len(metadata))(*((k.encode(), v.encode()) for k, v in metadata.items()))
    error = Error()
    check(lib.ctrun_checkpoint_save(path.encode(), array, ctypes.c_size_t(len(array)), texts,
                                    ctypes.c_size_t(len(texts)), ctypes.byref(error)), error)


def read(path):
    """A reader of the safetensors format without any code of ours."""
    raw = open(path, "rb").read()
    length, = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8:8 + length])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        data = bytearray(raw[8 + length + begin:8 + length + end])
        dtype = DTYPES[entry["dtype"]][1]
        flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
        assert (8 + length + begin) % flat.element_size() == 0, name
        tensors[name] = flat.reshape(entry["shape"])
    return tensors, metadata


def write(path, tensors):
    """A writer without any code of ours: no metadata, no padding, sorted names."""
    header, blob = {}, b""
    for name, value in sorted(tensors.items()):
        data = value.contiguous().numpy().tobytes()
        dtype = next(k for k, (_, v) in DTYPES.items() if v == value.dtype)
        header[name] = dict(dtype=dtype, shape=list(value.shape),
                            data_offsets=[len(blob), len(blob) + len(data)])
        blob += data
    text = json.dumps(header).encode()
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + blob)


def load(lib, path, tensors, metadata=()):
    checkpoint, error = ctypes.c_void_p(), Error()
    check(lib.ctrun_checkpoint_open(ctypes.byref(checkpoint), path.encode(),
                                    ctypes.byref(error)), error)
    lib.ctrun_checkpoint_metadata.restype = ctypes.c_char_p
    for key, value in dict(metadata).items():
        found = lib.ctrun_checkpoint_metadata(checkpoint, key.encode())
        assert found == value.encode(), (key, found, value)
    for name, value in tensors.items():
        check(lib.ctrun_checkpoint_load(checkpoint, ctypes.byref(tensor(name, value)),
                                        ctypes.byref(error)), error)
    lib.ctrun_checkpoint_close(checkpoint)


def some_of_each():
    return {"step": torch.tensor(938), "half": torch.randn(3, 5).half(),
            "brain": torch.randn(7).bfloat16(), "wide": torch.randn(2, 2).double(),
            "bytes": torch.arange(5, dtype=torch.uint8), "none": torch.empty(0, 4)}


def check_equal(ours, theirs):
    assert ours.keys() == theirs.keys(), (ours.keys(), theirs.keys())
    for name, value in theirs.items():
        assert ours[name].dtype == value.dtype and ours[name].shape == value.shape, (name, ours[name], value)
        assert torch.equal(ours[name], value), name


def package(lib, folder):
    """The package safetensors reads what we write, and we read what it writes."""
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file
    ours, theirs = os.path.join(folder, "ours.safetensors"), os.path.join(folder, "theirs.safetensors")
    state = {**Net().state_dict(), **some_of_each()}
    notes = {"format": "pt", "epoch": "1", "who": 'a "name" \u00e9'}
    save(lib, ours, state, notes)
    check_equal(load_file(ours), state)
    with safe_open(ours, "pt") as file:
        found = file.metadata()
    assert {key: found.get(key) for key in notes} == notes, found

    save_file({"module." + name: value for name, value in state.items()}, theirs, metadata=notes)
    back = {name: torch.full_like(value, 7) for name, value in state.items()}
    load(lib, theirs, back, notes)
    check_equal(back, state)


def checkpoints(lib, folder):
    ours, theirs = os.path.join(folder, "ours"), os.path.join(folder, "theirs")
    state, extra = Net().state_dict(), some_of_each()
    save(lib, ours, {**state, **extra}, {"format": "pt", "epoch": "1"})
    tensors, metadata = read(ours)
    assert metadata["format"] == "pt" and metadata["epoch"] == "1", metadata
    check_equal(tensors, {**state, **extra})
    for name in extra:
        del tensors[name]
    Net().load_state_dict(tensors)  # strict: the names are PyTorch's

    write(theirs, {"module." + name: value for name, value in state.items()})
    back = {name: torch.zeros_like(value) for name, value in state.items()}
    load(lib, theirs, back)
    check_equal(back, state)


if __name__ == "__main__":
    torch.set_num_threads(1)
    globals()[sys.argv[2]](ctypes.CDLL(sys.argv[1]), *(sys.argv[3:] or [None]))
    print("equal")
