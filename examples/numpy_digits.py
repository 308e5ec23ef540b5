"""Softmax regression on handwritten digits in NumPy, each rank with its part of every batch.

Run it by `OMP_NUM_THREADS=1 mpiexec -n 4 python examples/numpy_digits.py`.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

import hierring as hr

EPOCHS, BATCH, RATE = 30, 64, 0.5

images, labels = load_digits(return_X_y=True)
images, onehot = images / 16, np.eye(10)[labels]
order = np.random.default_rng(0).permutation(len(labels))  # one seed, so one order on all ranks
training, test = order[450:], order[:450]

weights = np.zeros((64, 10))
if hr.rank() == 0:
    weights[:] = np.random.default_rng(1).normal(scale=0.01, size=weights.shape)
hr.broadcast(weights)

shuffle = np.random.default_rng(2)
for _ in range(EPOCHS):
    shuffled = shuffle.permutation(training)
    for first in range(0, len(shuffled), BATCH):
        batch = shuffled[first : first + BATCH]
        mine = batch[hr.rank() :: hr.size()]
        scores = np.exp(images[mine] @ weights)
        chances = scores / scores.sum(axis=1, keepdims=True)
        gradient = images[mine].T @ (chances - onehot[mine])
        # Parts of a batch may differ in size, so their sums are added up, not their means averaged.
        hr.allreduce(gradient, "sum", scale=1 / len(batch))
        weights -= RATE * gradient

# Each rank tests its own part; Python numbers are reduced as well as arrays.
mine = test[hr.rank() :: hr.size()]
right = int(np.sum((images[mine] @ weights).argmax(axis=1) == labels[mine]))
accuracy = hr.allreduce(right) / len(test)
if hr.rank() == 0:
    print(f"accuracy {accuracy:.3f} after {EPOCHS} epochs on {hr.size()} ranks")
hr.finalize()
