"""The organisers' benchmark, a convolutional network: python benchmarks/cnn.py FOLDER [--epochs 4] [--output cnn.csv]

Trains it with Keras on the comments in FOLDER (the competition's layout, word vectors beside them) that the notebook
learns from, too, on all of them, without weights or swapped terms, and writes id,prediction of the held-out and of the
test comments. KERNEL_COMPARE_FILES=cnn.csv joins them to a run on the same files with the same KERNEL_SEED and
KERNEL_HOLDOUT_SHARE, which are read here, too.
"""

import os
import tempfile
import threading
from pathlib import Path

from measure import files_of, parse_arguments, print_machine, run_notebook

# isort: split
import kernel
import numpy as np
import pandas as pd
from kernel import keras, layers, ops

WORDS, TOKENS = 10_000, 250


def build_cnn(vectors):
    """The network: tokens int32 (batch, tokens) → logits {"toxicity": (batch, 1)}. vectors: (token numbers, width)."""
    frequent = np.append(vectors[: WORDS + 1], np.zeros_like(vectors[:1]), axis=0)
    tokens = keras.Input((None,), dtype="int32")
    fixed_length = ops.pad(ops.minimum(tokens, len(frequent) - 1), ((0, 0), (0, TOKENS)))[:, :TOKENS]
    hidden = layers.Embedding(*frequent.shape, weights=[frequent], trainable=False)(fixed_length)
    for width, pooling in ((2, layers.MaxPooling1D(5)), (3, layers.MaxPooling1D(5)), (4, layers.GlobalMaxPooling1D())):
        hidden = pooling(layers.Conv1D(128, width, activation="relu", padding="same")(hidden))
    hidden = layers.Dense(128, activation="relu")(layers.Dropout(0.3)(hidden))
    return keras.Model(tokens, {"toxicity": layers.Dense(1, dtype="float32", name="toxicity")(hidden)})


def train_cnn(cnn, batches, epochs):
    optimizer = keras.optimizers.AdamW(weight_decay=1e-3, clipnorm=1.0, use_ema=True)
    cnn.compile(optimizer, loss={"toxicity": kernel.masked_crossentropy}, jit_compile=False)
    draw = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: batches.draw())
    schedule = kernel.Schedule(epochs * len(batches), kernel.settings.learning_rate, 0, np.inf, threading.Event())
    cnn.fit(kernel.as_dataset(batches), epochs=epochs, callbacks=[schedule, draw], shuffle=False, verbose=2)


def main():
    arguments = parse_arguments(__doc__, "folder", epochs=4, output=Path("cnn.csv"))
    print_machine("keras", "tensorflow")
    given = {name.removeprefix("KERNEL_").lower(): of for name, of in os.environ.items() if name.startswith("KERNEL_")}
    with tempfile.TemporaryDirectory() as output_dir:
        run_notebook("make_batches(settings.seed", given | files_of(arguments.folder) | {"output_dir": output_dir})

    every_row = np.zeros(len(kernel.offsets) - 1, bool)
    labels = {"toxicity": np.append(kernel.toxic, every_row[len(kernel.train) :])[:, None].astype(np.float32)}
    of_rows = kernel.fit_rows, kernel.batch_size, (~every_row).astype(np.float32), every_row, ()
    batches = kernel.Batches(kernel.tokens, kernel.offsets, *of_rows, kernel.settings.seed, labels)
    cnn = build_cnn(kernel.embedding_matrix * kernel.scales)
    train_cnn(cnn, batches, arguments.epochs)

    to_score = kernel.Batches(kernel.tokens, kernel.offsets, np.append(kernel.holdout_rows, kernel.test_rows))
    scores = np.empty(len(every_row))
    scores[to_score.order] = kernel.sigmoid(cnn.predict(kernel.as_dataset(to_score), verbose=0)["toxicity"][:, 0])
    ids = np.append(kernel.train["id"], kernel.test["id"])
    predictions = pd.DataFrame({"id": ids, "prediction": scores}).iloc[to_score.rows]
    predictions.drop_duplicates("id").to_csv(arguments.output, index=False)
    toxic, mentioned = kernel.holdout_toxic, kernel.holdout_mentioned[kernel.IDENTITIES]
    final_score = kernel.model_figures(toxic, scores[kernel.holdout_rows], mentioned)["all", "final_score"]
    print(f"CNN: final score {final_score:.4f} on {len(toxic):,} held-out comments")


if __name__ == "__main__":
    main()
