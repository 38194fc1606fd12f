"""What batches of similar length gain: python benchmarks/speed.py [--rows 6144]

Seconds of an epoch of made-up comments, with lengths like the competition's: in batches of similar length, and in
batches padded to 220, in turn.
"""

from measure import parse_arguments, print_machine

# isort: split
import kernel
import numpy as np
from gpu import make_comments, make_vectors, seconds_of_steps


class Padded(kernel.Batches):
    """Batches in random order of length, all padded to 220."""

    def draw(self):
        super().draw()
        self.batches = np.array_split(self.generator.permutation(self.order), len(self.batches))

    def __getitem__(self, number):
        tokens, *rest = super().__getitem__(number)
        return np.pad(tokens, [(0, 0), (0, kernel.Settings.max_tokens - tokens.shape[1])]), *rest


def main():
    arguments = parse_arguments(__doc__, rows=6_144)
    print_machine("keras", "tensorflow")
    pretrained = make_vectors(50_000, kernel.find_devices(0)[0])
    comments = make_comments(arguments.rows, 50_000, size=32)

    def seconds_of_epoch(kind):
        batches = kind(**comments)
        return seconds_of_steps(pretrained, batches, len(batches), 128, warm_up=len(batches))

    similar, padded = np.mean([[seconds_of_epoch(kind) for kind in (kernel.Batches, Padded)] for _ in range(2)], axis=0)
    print(f"an epoch of {arguments.rows:,} rows: similar lengths {similar:.1f} s, all padded {padded:.1f} s")


if __name__ == "__main__":
    main()
