"""The decoder against published code, on the models that golden_published.py made.

python3 -m unittest discover -s training/dms/tests
"""

import json
import pathlib
import sys
import unittest

import numpy as np
import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from decoder import Decoder  # noqa: E402

GOLDEN = HERE.parent.parent.parent / "tests" / "golden"


class Published(unittest.TestCase):
    def test_logits_decisions_and_rows(self):
        cases = json.loads((GOLDEN / "published_dms.json").read_text())
        self.assertEqual([case["layout"] for case in cases], ["query_last_channel", "adapter"])
        for case in cases:
            model = Decoder.load(str(GOLDEN / case["model"]))
            self.assertEqual((model.marks.layout, model.marks.window, model.marks.shift),
                             (case["layout"], case["window"], 1))
            tokens = torch.tensor(case["tokens"])[None]
            decisions = model.hard_decisions(torch.tensor([tokens.shape[1]]))
            with torch.no_grad():
                logits = model.logits(tokens, decisions)[0]
            torch.testing.assert_close(torch.stack(decisions.logits)[:, 0],
                                       torch.tensor(case["decisions"]), atol=2e-3, rtol=1e-4)
            for position, expected in case["logits"].items():
                torch.testing.assert_close(logits[int(position)], torch.tensor(expected), atol=1e-3,
                                           rtol=1e-3)
            evicted = torch.stack(decisions.evicted)[:, 0, :, None]
            places = torch.arange(tokens.shape[1])
            age = places[:, None] - places
            read = (age >= 0) & ((age <= case["window"]) | ~evicted)
            bits = [[[list(bytes.fromhex(row)) for row in head] for head in layer]
                    for layer in case["read"]]
            expected = np.unpackbits(np.array(bits, np.uint8), axis=-1)
            np.testing.assert_array_equal(read.numpy(), expected)


if __name__ == "__main__":
    unittest.main()
