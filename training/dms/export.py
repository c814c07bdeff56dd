"""Writes a retrofitted model as GGUF: the source file with its changed tensors and the marks' keys.

usage: export.py --from SOURCE.gguf --weights model.pt --out FILE.gguf [--type f16|q8_0|f32]
                 [--name NAME] [--adapter]

Metadata, tokenizer and tensors that training left as they were come over byte for byte. --adapter
writes what the adapter adds alone, for `ebb --adapter`.
"""

import argparse
import pathlib

import gguf
import numpy as np
import torch

from decoder import Decoder
from gguf_writing import TYPES, add_marks, add_tensor, finish, whole_or_nothing
from model_marks import ADAPTER, Marks


def copy_metadata(reader, writer, leave_out=()):
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture" or name in leave_out:
            continue
        kind = field.types[0]
        sub_kind = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, sub_type=sub_kind)


def export(source, checkpoint, out, matrix_type, name=None, adapter=False):
    """Names of the tensors that differ from the source's."""
    reader = gguf.GGUFReader(source)
    family = reader.fields["general.architecture"].contents()
    if checkpoint["marks"] is None:
        raise ValueError("the model was trained by DMC, whose rows merge: a GGUF cannot say that")
    marks = Marks(**checkpoint["marks"])
    if adapter and marks.layout != ADAPTER:
        raise ValueError(f"--adapter: this model's layout is {marks.layout}, not {ADAPTER}")
    weights = {n: w.float().cpu().numpy() for n, w in checkpoint["weights"].items()}
    decoder = Decoder.load(source)
    if decoder.marks is not None:
        raise ValueError(f"{source} marks rows already: expected the model that was trained from")
    before = {n: w.numpy() for n, w in decoder.weights.items()}
    for n, w in before.items():
        if n not in weights or weights[n].shape != w.shape:
            raise ValueError(f"{source} has another {n} than the model that was trained")
    changed = [n for n, w in weights.items()
               if n not in before or not np.array_equal(w, before[n])]
    with whole_or_nothing(out) as beside:
        writer = gguf.GGUFWriter(beside, family)
        if adapter:
            extra = [n for n in changed if n in before]
            if extra:
                raise ValueError(f"--adapter: training changed {extra[0]} too")
            writer.add_type("adapter")
            if name:
                writer.add_name(name)
        else:
            copy_metadata(reader, writer, leave_out=("general.name",) if name else ())
            if name:
                writer.add_name(name)
            for tensor in reader.tensors:
                if tensor.name not in changed:
                    writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        add_marks(writer, family, marks, checkpoint["cr"])
        for tensor_name in changed:
            add_tensor(writer, tensor_name, weights[tensor_name], matrix_type)
        finish(writer)
    return changed


def main(args=None):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="source", required=True)
    parser.add_argument("--weights", required=True, type=pathlib.Path)
    parser.add_argument("--out", required=True)
    parser.add_argument("--type", choices=TYPES, default="f16")
    parser.add_argument("--name")
    parser.add_argument("--adapter", action="store_true")
    args = parser.parse_args(args)
    checkpoint = torch.load(args.weights, map_location="cpu", weights_only=False)
    changed = export(args.source, checkpoint, args.out, TYPES[args.type], args.name, args.adapter)
    print(f"wrote {args.out}: {len(changed)} tensors changed")


if __name__ == "__main__":
    main()
