"""Tensors of a Hugging Face checkpoint, read from its safetensors files row by row. Needs no torch.

A safetensors file is the length of its header (u64, little-endian), the header (JSON: name ->
dtype, shape and place of the bytes) and the bytes. An index says which of several files holds which
tensor.
"""

import dataclasses
import json
import math
import pathlib

import numpy as np

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
STORED_AS = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
MAX_HEADER_BYTES = 100_000_000  # as safetensors itself has it


class BadCheckpoint(ValueError):
    """The folder cannot be converted; says what was expected, what was found and where."""


def read_json(path):
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadCheckpoint(f"{path} is missing") from None
    except ValueError as error:
        raise BadCheckpoint(f"{path} is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadCheckpoint(f"{path}: expected a JSON object")
    return value


@dataclasses.dataclass(frozen=True)
class StoredTensor:
    path: pathlib.Path
    name: str
    dtype: str
    shape: tuple
    begin: int  # of its bytes in the file

    def rows(self, which):
        """Rows (of a vector: elements) in float32, in the order of `which`: a slice or indices."""
        stored = np.memmap(self.path, STORED_AS[self.dtype], "r", self.begin, self.shape)[which]
        if self.dtype == "BF16":  # the upper half of a float32
            values = (stored.astype(np.uint32) << 16).view(np.float32)
        else:
            values = stored.astype(np.float32)
        if not np.isfinite(values).all():
            raise BadCheckpoint(f"{self.path}: tensor {self.name} holds values that are not finite")
        return values


def _is_shape(shape):
    return isinstance(shape, list) and all(isinstance(n, int) and n >= 0 for n in shape)


def _read_tensor(path, name, entry, data_begin, file_bytes):
    where = f"{path}: tensor {name}"
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        whole = isinstance(begin, int) and isinstance(end, int) and _is_shape(shape)
    except (KeyError, TypeError, ValueError):
        whole = False
    if not whole:
        raise BadCheckpoint(f"{where}: expected dtype, shape and data_offsets")
    if dtype not in STORED_AS:
        raise BadCheckpoint(f"{where} is {dtype}: expected one of {', '.join(STORED_AS)}")
    num_bytes = math.prod(shape) * STORED_AS[dtype].itemsize
    if begin < 0 or end - begin != num_bytes:
        raise BadCheckpoint(f"{where}: {dtype} of shape {shape} takes {num_bytes} bytes, "
                            f"found {end - begin}")
    if data_begin + end > file_bytes:
        raise BadCheckpoint(f"{path} is cut off: tensor {name} ends at byte {data_begin + end}, "
                            f"the file at {file_bytes}")
    return StoredTensor(path, name, dtype, tuple(shape), data_begin + begin)


def read_shard(path):
    """Its tensors by name."""
    try:
        file_bytes = path.stat().st_size
        with open(path, "rb") as file:
            header_bytes = int.from_bytes(file.read(8), "little")
            if not 2 <= header_bytes <= min(MAX_HEADER_BYTES, file_bytes - 8):
                raise BadCheckpoint(f"{path} is no safetensors file: its header would take "
                                    f"{header_bytes} of {file_bytes} bytes")
            header = json.loads(file.read(header_bytes))
    except FileNotFoundError:
        raise BadCheckpoint(f"{path} is missing") from None
    except ValueError as error:
        if isinstance(error, BadCheckpoint):
            raise
        raise BadCheckpoint(f"{path} is no safetensors file: {error}") from None
    if not isinstance(header, dict):
        raise BadCheckpoint(f"{path} is no safetensors file: its header is no JSON object")
    return {name: _read_tensor(path, name, entry, 8 + header_bytes, file_bytes)
            for name, entry in header.items() if name != "__metadata__"}


def _read_indexed(folder):
    places = read_json(folder / INDEX).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise BadCheckpoint(f"{folder / INDEX}: expected a weight_map")
    for name, shard in places.items():
        if not isinstance(shard, str) or pathlib.PurePath(shard).name != shard:
            raise BadCheckpoint(f"{folder / INDEX}: {name} is in {shard!r}, expected a file's name")
    shards = {shard: read_shard(folder / shard) for shard in sorted(set(places.values()))}
    for name, shard in places.items():
        if name not in shards[shard]:
            raise BadCheckpoint(f"{folder / shard} lacks tensor {name}, which {INDEX} places there")
    return {name: shards[shard][name] for name, shard in places.items()}


def read_tensors(folder):
    """All tensors of the checkpoint by name; their bytes stay in the files."""
    if (folder / INDEX).exists():
        return _read_indexed(folder)
    if (folder / SINGLE).exists():
        return read_shard(folder / SINGLE)
    raise BadCheckpoint(f"{folder} holds no weights: expected {INDEX} or {SINGLE}")
