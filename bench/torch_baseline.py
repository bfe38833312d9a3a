#!/usr/bin/env python3
"""Training-step time of PyTorch eager on the graphs of networks/models.cpp.

The other side of the "native speed" comparison: same layers, same image and batch, SGD with momentum
and weight decay, cuDNN's search on, deterministic algorithms only unless --any-order. One JSON object
to standard output:

    python bench/torch_baseline.py --network resnet50 --batch 64 --math fp32
"""

import argparse
import json
import os
import statistics
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before cuBLAS begins: deterministic

import torch
from torch import nn

CLASSES = 1000
IMAGE = 227


def conv_bn(inputs, outputs, kernel, stride=1, pad=0):
    """PyTorch's momentum is the weight of the new batch, as in our traces."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, pad, bias=False),
        nn.BatchNorm2d(outputs, eps=1e-5, momentum=0.1),
    )


class Bottleneck(nn.Module):
    """The stride is on the first 1x1 convolution, as in He et al. 2015."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.shortcut = (
            conv_bn(inputs, outputs, 1, stride) if inputs != outputs or stride != 1 else None
        )
        self.body = nn.Sequential(
            conv_bn(inputs, width, 1, stride),
            nn.ReLU(inplace=True),
            conv_bn(width, width, 3, 1, 1),
            nn.ReLU(inplace=True),
            conv_bn(width, outputs, 1),
        )
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        shortcut = x if self.shortcut is None else self.shortcut(x)
        return self.relu(self.body(x).add_(shortcut))


def resnet(blocks):
    layers = [conv_bn(3, 64, 7, 2, 3), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)]
    inputs = 64
    for stage, count in enumerate(blocks):
        width = 64 << stage
        for block in range(count):
            layers.append(Bottleneck(inputs, width, 2 if stage > 0 and block == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AvgPool2d(7, 1), nn.Flatten(), nn.Linear(inputs, CLASSES))


def linear_end(inputs):
    layers = [nn.Flatten()]
    for width in (inputs, 4096):
        layers += [nn.Linear(width, 4096), nn.ReLU(inplace=True), nn.Dropout(0.5)]
    return layers + [nn.Linear(4096, CLASSES)]


def alexnet():
    def conv(inputs, outputs, kernel, stride=1, pad=0):
        return [nn.Conv2d(inputs, outputs, kernel, stride, pad), nn.ReLU(inplace=True)]

    def norm():
        return nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75, k=2)

    return nn.Sequential(
        *conv(3, 96, 11, 4), norm(), nn.MaxPool2d(3, 2),
        *conv(96, 256, 5, 1, 2), norm(), nn.MaxPool2d(3, 2),
        *conv(256, 384, 3, 1, 1), *conv(384, 384, 3, 1, 1), *conv(384, 256, 3, 1, 1),
        nn.MaxPool2d(3, 2), *linear_end(256 * 6 * 6),
    )  # fmt: skip


def vgg(depths):
    layers = []
    inputs = 3
    for outputs, depth in zip((64, 128, 256, 512, 512), depths):
        for _ in range(depth):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True)]
            inputs = outputs
        layers.append(nn.MaxPool2d(2, 2))
    return nn.Sequential(*layers, *linear_end(512 * 7 * 7))


NETWORKS = {
    "alexnet": alexnet,
    "vgg16": lambda: vgg((2, 2, 3, 3, 3)),
    "vgg19": lambda: vgg((2, 2, 4, 4, 4)),
    "resnet50": lambda: resnet((3, 4, 6, 3)),
    "resnet101": lambda: resnet((3, 4, 23, 3)),
    "resnet152": lambda: resnet((3, 8, 36, 3)),
}


def set_up(args):
    torch.manual_seed(1)
    cudnn = torch.backends.cudnn
    cudnn.benchmark = True
    cudnn.benchmark_limit = args.benchmark_limit
    cudnn.deterministic = not args.any_order
    cudnn.allow_tf32 = args.math == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = args.math == "tf32"
    if not args.any_order:
        torch.use_deterministic_algorithms(True, warn_only=True)


def make_step(args, model):
    """One training step as a function that returns the loss, on the device."""
    device = torch.device(args.on)
    model.to(device).train()
    x = torch.rand(args.batch, 3, IMAGE, IMAGE, device=device)
    labels = torch.randint(CLASSES, (args.batch,), device=device)
    loss_of = nn.CrossEntropyLoss()
    sgd = torch.optim.SGD(model.parameters(), lr=args.rate, momentum=0.9, weight_decay=1e-4)

    def step():
        sgd.zero_grad(set_to_none=True)
        loss = loss_of(model(x), labels)
        loss.backward()
        sgd.step()
        return loss

    return step


def measure(args, step):
    """Milliseconds of each step from begin to begin; on a GPU by events, without waiting between."""
    for _ in range(args.warmup):
        loss = step()
    if args.on == "cpu":
        times = [time.perf_counter()]
        for _ in range(args.steps):
            loss = step()
            times.append(time.perf_counter())
        return [1e3 * (b - a) for a, b in zip(times, times[1:])], loss.item()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(args.steps + 1)]
    events[0].record()
    for event in events[1:]:
        loss = step()
        event.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in zip(events, events[1:])], loss.item()


def report(args, model, times, loss):
    cuda = args.on == "cuda"
    return {
        "network": args.network,
        "batch": args.batch,
        "math": args.math,
        "deterministic": not args.any_order,
        "benchmark_limit": args.benchmark_limit,
        "parameters": sum(p.numel() for p in model.parameters()),
        "step_ms": statistics.median(times),
        "fastest_ms": min(times),
        "slowest_ms": max(times),
        "steps": args.steps,
        "warmup": args.warmup,
        "last_loss": loss,
        "peak_allocated_bytes": torch.cuda.max_memory_allocated() if cuda else None,
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if cuda else None,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", choices=sorted(NETWORKS), default="resnet50")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--math", choices=("fp32", "tf32"), default="fp32")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warmup", type=int, default=15)
    parser.add_argument("--rate", type=float, default=0.01, help="learning rate")
    parser.add_argument("--any-order", action="store_true", help="nondeterministic algorithms too")
    parser.add_argument("--benchmark-limit", type=int, default=10, help="cuDNN plans tried; 0: all")
    parser.add_argument("--on", choices=("cuda", "cpu"), default="cuda")
    args = parser.parse_args()
    if args.on == "cuda" and not torch.cuda.is_available():
        sys.exit("torch_baseline: no GPU")
    set_up(args)
    model = NETWORKS[args.network]()
    times, loss = measure(args, make_step(args, model))
    json.dump(report(args, model, times, loss), sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
