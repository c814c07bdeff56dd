"""What export.py and convert.py write alike. Needs no torch."""

import contextlib
import os

import gguf

TYPES = {"f16": gguf.GGMLQuantizationType.F16, "q8_0": gguf.GGMLQuantizationType.Q8_0,
         "f32": gguf.GGMLQuantizationType.F32}


@contextlib.contextmanager
def whole_or_nothing(out):
    """A path beside `out`. What was written there takes the place of `out` at the end; after an
    error it is removed, and `out` is as it was."""
    beside = f"{out}.new"
    try:
        yield beside
        os.replace(beside, out)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(beside)


def add_marks(writer, family, marks, compression):
    """compression: what the model was trained for, None where that is not known."""
    prefix = f"{family}.attention.dms."
    writer.add_string(prefix + "layout", marks.layout)
    writer.add_uint32(prefix + "window", marks.window)
    writer.add_float32(prefix + "alpha_scale", marks.scale)
    writer.add_float32(prefix + "alpha_offset", marks.offset)
    writer.add_uint32(prefix + "shift", marks.shift)
    if compression is not None:
        writer.add_float32(prefix + "cr", compression)


def type_in_file(shape, matrix_type):
    """Vectors stay in F32, as everywhere in GGUF; matrices that no block fits into are F16."""
    if len(shape) < 2:
        return gguf.GGMLQuantizationType.F32
    if matrix_type == gguf.GGMLQuantizationType.Q8_0 and shape[-1] % 32 != 0:
        return gguf.GGMLQuantizationType.F16
    return matrix_type


def add_tensor(writer, name, values, matrix_type):
    matrix_type = type_in_file(values.shape, matrix_type)
    writer.add_tensor(name, gguf.quants.quantize(values, matrix_type), raw_dtype=matrix_type)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
