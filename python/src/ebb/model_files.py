"""The files of models, by the names that people give them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from .errors import NotFound

#: Models inside this package, as inside the program.
_BUILT_IN = ("pebble", "pebble-dms", "pebble-dms-8")


def find_model(name: str | os.PathLike[str]) -> str:
    """The file of a model.

    Args:
        name: a path; "pebble", a reasoner of 0.85 million weights inside this package, or "pebble-dms" and
            "pebble-dms-8", its versions that mark rows; the name of a file in the folder where `ebb pull` puts models;
            or a name that `ebb pull` takes, which fetches it: "qwen2.5-coder-0.5b", "hf:ORG/REPO[:QUANT|/FILE]",
            "ollama:NAME[:TAG]", an https address. That needs the program `ebb` on the PATH (or at EBB_PROGRAM).
    """
    text = os.fspath(name)
    if text in _BUILT_IN:
        return str(Path(__file__).with_name(f"{text}.gguf"))
    if os.path.exists(text):
        return text
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ebb"
    for candidate in (cache / text, cache / f"{text}.gguf"):
        if os.sep not in text and candidate.exists():
            return str(candidate)
    if text.endswith(".gguf") and ":" not in text:
        raise NotFound(f"there is no file {text}, and none of this name in {cache}")
    return _pull(text, cache)


def _pull(name: str, cache: Path) -> str:
    """The file of a model that the program fetches if it is not there yet."""
    program = shutil.which(os.environ.get("EBB_PROGRAM", "ebb"))
    if program is None:
        raise NotFound(f"there is no model {name}: expected a GGUF file, {', '.join(_BUILT_IN)}, or a file in {cache}; "
                       f"the program ebb, which is not on the PATH, fetches others: ebb pull {name}")
    pulled = subprocess.run([program, "pull", "--json", name], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, check=False)
    if pulled.returncode != 0:
        raise NotFound(f"there is no model {name}: {pulled.stderr.strip().splitlines()[-1:] or [program]}")
    return str(json.loads(pulled.stdout.splitlines()[-1])["path"])
