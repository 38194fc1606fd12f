"""What batches of similar length gain, and to do without the tuner of tf.data: python benchmarks/speed.py [--rows 6144]

Seconds of an epoch of made-up comments, with lengths like the competition's: in batches of similar length, in batches
padded to 220, and as Keras would read the former itself, in turn. The tuner's sleep doubles each time: the longer the
training, the longer the wait.
"""

from unittest.mock import patch

from measure import parse_arguments, print_machine

# isort: split
import kernel
import numpy as np
from gpu import make_comments, make_vectors, seconds_of_steps
from kernel import keras


class Padded(kernel.Batches):
    """Batches in random order of length, all padded to 220."""

    def draw(self):
        super().draw()
        self.batches = np.array_split(self.generator.permutation(self.order), len(self.batches))

    def __getitem__(self, number):
        tokens, *rest = super().__getitem__(number)
        return np.pad(tokens, [(0, 0), (0, kernel.Settings.max_tokens - tokens.shape[1])]), *rest


class ReadByKeras(keras.utils.PyDataset):
    def __init__(self, batches):
        super().__init__()
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, number):
        return self.batches[number]


def main():
    arguments = parse_arguments(__doc__, rows=6_144)
    print_machine("keras", "tensorflow")
    pretrained = make_vectors(50_000, kernel.find_devices(0)[0])
    comments = make_comments(arguments.rows, 50_000, size=32)

    def seconds_of_epoch(kind, as_dataset=kernel.as_dataset):
        batches = kind(**comments)
        with patch.object(kernel, "as_dataset", as_dataset):
            return seconds_of_steps(pretrained, batches, len(batches), 128, warm_up=len(batches))

    ways = (kernel.Batches,), (Padded,), (kernel.Batches, ReadByKeras)
    similar, padded, tuned = np.mean([[seconds_of_epoch(*way) for way in ways] for _ in range(2)], axis=0)
    print(f"an epoch of {arguments.rows:,} rows: similar lengths {similar:.1f} s, all padded {padded:.1f} s, ", end="")
    print(f"similar lengths with the tuner of tf.data {tuned:.1f} s")


if __name__ == "__main__":
    main()
