"""Problems from the generator, in batches of similar length."""

import dataclasses
import json
import queue
import subprocess
import threading

import numpy as np

# Lengths that batches are padded to: few, since each is compiled apart.
LENGTHS = (128, 256, 384, 512, 768, 1024, 1280, 1536)
BLOCK = 256  # problems that one process makes at a time
# Seeds with this bit are for training: no evaluation uses them.
TRAINING_SEED = 1 << 63
KINDS = ("question", "grammar", "copied", "lookup", "computed", "filler", "answer")
FAMILIES = ("amounts", "walk", "changes", "swaps")


@dataclasses.dataclass
class Problem:
    tokens: np.ndarray  # [tokens], uint16
    kinds: np.ndarray  # [tokens], uint8
    num_question_tokens: int
    family: int
    farthest_lookup: int


def vocabulary(program):
    """Texts of the tokens; a byte above 127 stands as the code point of the same number."""
    return json.loads(subprocess.run([program, "vocabulary"], capture_output=True, check=True).stdout)


class Stream:
    """Blocks of problems in a fixed order, made by several processes."""

    def __init__(self, program, seed, first_block, num_processes, shares):
        """shares: percent of drills of facts, of drills with sentences, of brief problems."""
        self.processes = [
            subprocess.Popen(
                [program, "stream", str(seed), str(first_block + i), str(num_processes), str(BLOCK),
                 *map(str, shares)], stdout=subprocess.PIPE)
            for i in range(num_processes)]
        self.next_block = first_block
        self.turn = 0

    def block(self):
        out = self.processes[self.turn].stdout
        self.turn = (self.turn + 1) % len(self.processes)
        self.next_block += 1
        return [self._problem(out) for _ in range(BLOCK)]

    @staticmethod
    def _problem(out):
        head = out.read(16)
        if len(head) != 16:
            raise RuntimeError("the generator of problems has ended")
        num_tokens, num_question, family, farthest = np.frombuffer(head, np.int32).tolist()
        body = out.read(3 * num_tokens)
        return Problem(np.frombuffer(body, np.uint16, num_tokens),
                       np.frombuffer(body, np.uint8, num_tokens, 2 * num_tokens), num_question,
                       family, farthest)

    def close(self):
        for process in self.processes:
            process.kill()
            process.stdout.close()
            process.wait()


def pad(problems, length):
    """Tokens and kinds, [problems, length]; padding is token 0 of kind "question"."""
    tokens = np.zeros((len(problems), length), np.uint16)
    kinds = np.zeros((len(problems), length), np.uint8)
    for i, problem in enumerate(problems):
        tokens[i, :len(problem.tokens)] = problem.tokens
        kinds[i, :len(problem.kinds)] = problem.kinds
    return tokens, kinds


def padded_length(problem):
    return next(length for length in LENGTHS if length >= len(problem.tokens))


class Batches:
    """Problems gathered by length; `waiting` and `next_block` are all that a checkpoint needs."""

    def __init__(self, stream, batch_tokens, waiting=None):
        self.stream = stream
        self.batch_tokens = batch_tokens
        self.waiting = waiting or {length: [] for length in LENGTHS}
        self.ready = []

    def next(self):
        while not self.ready:
            for problem in self.stream.block():
                length = padded_length(problem)
                waiting = self.waiting[length]
                waiting.append(problem)
                if len(waiting) == max(1, self.batch_tokens // length):
                    self.ready.append(pad(waiting, length))
                    self.waiting[length] = []
        return self.ready.pop(0)


class Prefetch:
    """Runs `batches` ahead in a thread; `state` of what was handed out, not of what was made."""

    def __init__(self, batches, depth=32):
        self.queue = queue.Queue(depth)
        self.stopping = False
        self.thread = threading.Thread(target=self._run, args=(batches,), daemon=True)
        self.thread.start()

    def _run(self, batches):
        try:
            while not self.stopping:
                batch = batches.next()
                # At the end of a block the lists that wait are short: a good place to go on from.
                at_border = not batches.ready
                state = None
                if at_border:
                    state = dict(next_block=batches.stream.next_block,
                                 waiting={n: list(p) for n, p in batches.waiting.items()})
                self.queue.put((batch, state))
        except Exception as error:  # handed to whoever asks next
            self.queue.put((error, None))

    def next(self):
        """((tokens, kinds), state): the state only where training may go on from after it."""
        batch, state = self.queue.get()
        if isinstance(batch, Exception):
            raise batch
        return batch, state

    def close(self):
        self.stopping = True
        while self.thread.is_alive():
            try:
                self.queue.get(timeout=0.1)
            except queue.Empty:
                pass
