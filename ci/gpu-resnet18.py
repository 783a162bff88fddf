"""Times a training step of ResNet-18 in PyTorch, eagerly, as examples/convnet.rs does it in ONNX Runtime: inputs on the
device, AdamW, float32 with TF32, the loss read in every step, the median after a warm-up."""

import argparse
import statistics
import time

import torch
import torchvision

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--steps", type=int, default=40)
options = parser.parse_args()

torch.manual_seed(1)
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
torch.backends.cudnn.benchmark = True
model = torchvision.models.resnet18(weights=None).cuda().train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loss_function = torch.nn.CrossEntropyLoss()
count = options.batch_size
batches = [
    (
        torch.rand(count, 3, 224, 224).mul_(2).sub_(1).cuda(),
        (torch.arange(first * count, (first + 1) * count) * 37 % 1000).cuda(),
    )
    for first in range(2)
]
times = []
for step in range(options.steps):
    images, labels = batches[step % 2]
    torch.cuda.synchronize()
    started = time.perf_counter()
    loss = loss_function(model(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    value = loss.item()
    torch.cuda.synchronize()
    times.append(time.perf_counter() - started)
assert value == value, "the loss is no number"
warm = max(options.steps // 10, 5)
print(
    f"result: PyTorch {torch.__version__} eager, ResNet-18: batch {count}: loss {value:.4f}, "
    f"{statistics.median(times[warm:]) * 1e3:.3f} ms a step"
)
