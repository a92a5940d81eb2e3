# SPDX-License-Identifier: Apache-2.0
"""A sharded checkpoint of libctrun (ctrun_shards_save) as a state dict of PyTorch.

    python load_shards.py FOLDER        # of checkpoints: the newest that is complete
    python load_shards.py FOLDER/step-0000000000001000
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file

DTYPES = {"U8": torch.uint8, "I8": torch.int8, "I32": torch.int32, "I64": torch.int64, "F16": torch.float16,
          "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64}


def load(folder):
    """(state dict, metadata, step); a folder without manifest.json is not complete."""
    folder = pathlib.Path(folder)
    if not (folder / "manifest.json").exists():
        folder = max(path.parent for path in folder.glob("step-*/manifest.json"))
    manifest = json.loads((folder / "manifest.json").read_text())
    shards = [load_file(folder / shard["file"]) for shard in manifest["shards"]]
    state = {}
    for name, tensor in manifest["tensors"].items():
        state[name] = torch.empty(tensor["shape"], dtype=DTYPES[tensor["dtype"]])
        for piece in tensor["pieces"]:
            box = tuple(slice(a, a + n) for a, n in zip(piece["start"], piece["shape"]))
            state[name][box] = shards[piece["shard"]][name]
    return state, manifest["metadata"], manifest["step"]


if __name__ == "__main__":
    tensors, metadata, step = load(sys.argv[1])
    print(f"step {step}: {metadata}")
    for name, value in tensors.items():
        print(f"{name}: {value.dtype} {tuple(value.shape)}, the sum is {value.double().sum():.0f}")
