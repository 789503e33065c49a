"""Exact sizes of a model's weights, from the headers of its files alone.

safetensors: eight bytes of length, then JSON of name -> dtype, shape, offsets. Nothing but headers
is read, however large the file. The files come from strangers: lengths, counts, names and offsets
are all checked before they are believed.
"""

from __future__ import annotations

import math
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from backends.bench.json_fields import Fields, ModelError, parse_json, read_json
from backends.bench.model_tensors import Module, classify
from backends.text import clean

MAX_HEADER_BYTES: Final = 32 * 1024 * 1024
MAX_INDEX_BYTES: Final = 64 * 1024 * 1024
MAX_FILES: Final = 4096
MAX_TENSORS: Final = 4_000_000
MAX_DIMENSIONS: Final = 16
DTYPE_BITS: Final = {
    "F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16,
    "I16": 16, "U16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "I8": 8, "U8": 8, "BOOL": 8, "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    stored_bytes: int


@dataclass(slots=True)
class StoredWeights:
    """What the files hold, by module.

    Attributes:
        bytes_by_module: Bytes of each module.
        total_bytes: Of all tensors.
        files: How many files were read.
        tensors: How many tensors they hold.
        missing: Files that the index names and that are not there.
        index_bytes: `metadata.total_size` of the index, where there is one.
        unknown: Some names that no rule knows; counted as read with each token.
    """

    bytes_by_module: dict[Module, int] = field(default_factory=dict)
    total_bytes: int = 0
    files: int = 0
    tensors: int = 0
    missing: tuple[str, ...] = ()
    index_bytes: int | None = None
    unknown: list[str] = field(default_factory=list)

    def add(self, name: str, stored_bytes: int, layers: int, *, gguf: bool = False) -> None:
        """Count one tensor."""
        module = classify(name, layers, gguf=gguf)
        if module is Module.OTHER and len(self.unknown) < 5:
            self.unknown.append(clean(name, 120))
        self.bytes_by_module[module] = self.bytes_by_module.get(module, 0) + stored_bytes
        self.total_bytes += stored_bytes
        self.tensors += 1


def read_safetensors_header(path: Path) -> list[StoredTensor]:
    """The tensors of one safetensors file.

    Raises:
        ModelError: Unreadable, not a regular file, or a header that contradicts itself or the
            file's size.
    """
    size = regular_file_size(path)
    try:
        with path.open("rb") as file:
            length = header_length(file.read(8), size, str(path))
            return parse_header(file.read(length), length, size, str(path))
    except OSError as error:
        raise ModelError("A weight file cannot be read", f"{path}: {error.strerror}") from error


def header_length(prefix: bytes, size: int, where: str) -> int:
    """How long the header is, from the file's first eight bytes.

    Raises:
        ModelError: Longer than is allowed, or than the file.
    """
    if len(prefix) < 8:
        raise _bad(where, f"only {len(prefix)} bytes long")
    length = int.from_bytes(prefix, "little")
    if length > MAX_HEADER_BYTES:
        raise _bad(where, f"its header claims {length} bytes; at most {MAX_HEADER_BYTES}")
    if length > size - 8:
        raise _bad(where, f"its header claims {length} bytes, the file has {size}")
    return length


def parse_header(raw: bytes, length: int, size: int, where: str) -> list[StoredTensor]:
    """Decode a header of `length` bytes of a file of `size` bytes.

    Raises:
        ModelError: Cut off, no JSON, or it contradicts itself or the file's size.
    """
    if len(raw) < length:
        raise _bad(where, "cut off in the middle of its header")
    header = parse_json(raw, where)
    header.pop("__metadata__", None)
    if len(header) > MAX_TENSORS:
        raise _bad(where, f"names {len(header)} tensors")
    data_bytes = size - 8 - length
    return [_tensor(where, name, value, data_bytes) for name, value in header.items()]


def _tensor(where: str, name: str, value: object, data_bytes: int) -> StoredTensor:
    label = clean(name, 120)
    if not isinstance(value, dict):
        raise _bad(where, f"tensor {label} is no object")
    fields = Fields(value, where)
    dtype = fields.word("dtype")
    shape = fields.integers("shape", MAX_DIMENSIONS + 1)
    offsets = fields.integers("data_offsets", 3)
    if shape is None or len(shape) > MAX_DIMENSIONS or any(size < 0 for size in shape):
        raise _bad(where, f"tensor {label} has no usable shape")
    if offsets is None or len(offsets) != 2 or not 0 <= offsets[0] <= offsets[1] <= data_bytes:
        raise _bad(where, f"tensor {label} lies outside the file")
    stored = offsets[1] - offsets[0]
    bits = DTYPE_BITS.get(dtype)
    if bits is not None and stored != (math.prod(shape) * bits + 7) // 8:
        raise _bad(where, f"tensor {label}: {dtype} of shape {shape} is not {stored} bytes")
    return StoredTensor(name[:512], dtype, tuple(shape), stored)


def regular_file_size(path: Path) -> int:
    """Size in bytes; a pipe or a device, which could block for ever, is refused."""
    try:
        info = path.stat()
    except OSError as error:
        raise ModelError("A weight file cannot be read", f"{path}: {error.strerror}") from error
    if not stat.S_ISREG(info.st_mode):
        raise ModelError("A weight file is not a regular file", str(path))
    return info.st_size


def _bad(where: str, problem: str) -> ModelError:
    return ModelError(
        "A weight file's header cannot be believed",
        f"{where}: {problem}",
        "Is the download complete? Compare its checksum, or work from config.json alone.",
    )


def read_safetensors_folder(folder: Path, layers: int) -> StoredWeights | None:
    """Sizes of all weights of a model's folder; None where it holds no safetensors files.

    Args:
        folder: Where `config.json` lies.
        layers: How many decoder layers the model has.
    """
    stored = StoredWeights()
    index = folder / "model.safetensors.index.json"
    if index.exists():
        names, stored.index_bytes = parse_index(read_json(index, MAX_INDEX_BYTES), str(index))
        stored.missing = tuple(name for name in names if not (folder / name).exists())
    else:
        single = folder / "model.safetensors"
        found = [single] if single.exists() else sorted(folder.glob("*.safetensors"))
        names = [path.name for path in found][:MAX_FILES]
    for tensor in _tensors(folder, [name for name in names if name not in stored.missing]):
        stored.add(tensor.name, tensor.stored_bytes, layers)
        if stored.tensors > MAX_TENSORS:
            raise ModelError("The model's files name too many tensors", str(folder))
    stored.files = len(names) - len(stored.missing)
    return stored if stored.files else None


def _tensors(folder: Path, names: list[str]) -> Iterator[StoredTensor]:
    for name in names:
        yield from read_safetensors_header(folder / name)


def parse_index(index: Mapping[str, object], where: str) -> tuple[list[str], int | None]:
    """File names of an index (plain names only: it must not lead out of the folder), total size.

    Raises:
        ModelError: It has no `weight_map`, or one that names other files.
    """
    fields = Fields(index, where)
    weight_map = fields.object("weight_map")
    if weight_map is None:
        raise ModelError("The index of the weight files has no weight_map", where)
    names = sorted({value for value in weight_map.values.values() if isinstance(value, str)})
    for name in names:
        if not name.endswith(".safetensors") or Path(name).name != name:
            raise ModelError(
                "The index names a file that is no plain safetensors file of this folder",
                f"{where}: {clean(name, 120)}",
            )
    if len(names) > MAX_FILES:
        raise ModelError("The index names too many files", f"{where}: {len(names)}")
    metadata = fields.object("metadata")
    total = metadata.values.get("total_size") if metadata else None
    return names, total if isinstance(total, int) and not isinstance(total, bool) else None
