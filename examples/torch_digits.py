"""A small torch network on handwritten digits: all gradients of a step go in one all-reduce.

Run it by `OMP_NUM_THREADS=1 mpiexec -n 4 python examples/torch_digits.py`.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import nn

import hierring as hr

EPOCHS, BATCH = 12, 64

pixels, digits = load_digits(return_X_y=True)
images = torch.tensor(pixels / 16, dtype=torch.float32)
labels = torch.tensor(digits)
generator = torch.Generator().manual_seed(0)  # one seed, so one order on all ranks
order = torch.randperm(len(labels), generator=generator)
training, test = order[450:], order[:450]

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
for parameter in model.parameters():
    hr.broadcast(parameter.detach())  # everybody starts from rank 0's weights
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

for _ in range(EPOCHS):
    shuffled = training[torch.randperm(len(training), generator=generator)]
    for batch in shuffled.split(BATCH):
        mine = batch[hr.rank() :: hr.size()]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[mine]), labels[mine], reduction="sum")
        loss.backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        hr.allreduce_coalesced(gradients, "sum", scale=1 / len(batch))
        optimizer.step()

# Each rank tests its own part; Python numbers are reduced as well as tensors.
mine = test[hr.rank() :: hr.size()]
right = int((model(images[mine]).argmax(dim=1) == labels[mine]).sum())
accuracy = hr.allreduce(right) / len(test)
if hr.rank() == 0:
    print(f"accuracy {accuracy:.3f} after {EPOCHS} epochs on {hr.size()} ranks")
hr.finalize()
