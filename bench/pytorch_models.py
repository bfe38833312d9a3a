#!/usr/bin/env python3
"""The training programs that traces/pytorch/ is recorded from: plain PyTorch, nothing of ours.

    superneurons trace -o T.jsonl.gz -- python bench/pytorch_models.py --model gpt2-medium --steps 14

Random weights and data, nothing is downloaded. torchvision and transformers are used where they are
installed; where not, ResNet-50, ViT and the transformers are built here from torch alone, with the
same sizes, and the first line says so. `--small` makes each small enough for a CPU.
"""

import argparse
import statistics
import time

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

try:
    import torchvision
except ImportError:
    torchvision = None
try:
    import transformers
except ImportError:
    transformers = None


class Bottleneck(nn.Module):
    def __init__(self, wide, narrow, out, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(wide, narrow, 1, bias=False), nn.BatchNorm2d(narrow), nn.ReLU(inplace=True),
            nn.Conv2d(narrow, narrow, 3, stride, 1, bias=False), nn.BatchNorm2d(narrow),
            nn.ReLU(inplace=True), nn.Conv2d(narrow, out, 1, bias=False), nn.BatchNorm2d(out),
        )  # fmt: skip
        self.short = None
        if stride != 1 or wide != out:
            self.short = nn.Sequential(nn.Conv2d(wide, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.body(x)
        return functional.relu(y + (x if self.short is None else self.short(x)), inplace=True)


def resnet(counts, classes=1000):
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
              nn.MaxPool2d(3, 2, 1)]  # fmt: skip
    wide = 64
    for stage, count in enumerate(counts):
        narrow = 64 << stage
        for block in range(count):
            layers.append(Bottleneck(wide, narrow, narrow * 4, 2 if stage and not block else 1))
            wide = narrow * 4
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(wide, classes))


class Layer(nn.Module):
    """A transformer layer: norm first (GPT-2, ViT), or last (BERT)."""

    def __init__(self, width, heads, causal=False, norm_first=True, dropout=0.1):
        super().__init__()
        self.heads, self.causal, self.norm_first, self.dropout = heads, causal, norm_first, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attention(self, x):
        batch, length, width = x.shape
        parts = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(
            q, k, v, is_causal=self.causal, dropout_p=self.dropout if self.training else 0.0
        )
        y = self.out(y.transpose(1, 2).reshape(batch, length, width))
        return functional.dropout(y, self.dropout, self.training)

    def feed(self, x):
        y = self.down(functional.gelu(self.up(x)))
        return functional.dropout(y, self.dropout, self.training)

    def forward(self, x):
        if self.norm_first:
            x = x + self.attention(self.norm1(x))
            return x + self.feed(self.norm2(x))
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.feed(x))


class Transformer(nn.Module):
    """A language model over tokens."""

    def __init__(self, vocabulary, length, width, depth, heads, causal, checkpointed=False):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width, heads, causal, causal) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        self.checkpointed = checkpointed
        for table in (self.tokens, self.places):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpointed else layer(x)
        return self.head(self.norm(x))


class Vit(nn.Module):
    def __init__(self, image, patch, width, depth, heads, classes):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (image // patch) ** 2 + 1, width) * 0.02)
        self.layers = nn.Sequential(*(Layer(width, heads, dropout=0.0) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        return self.head(self.norm(self.layers(x))[:, 0])


class UNet(nn.Module):
    def __init__(self, width, depth, classes):
        super().__init__()

        def double(a, b):
            return nn.Sequential(
                nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True),
                nn.Conv2d(b, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True),
            )  # fmt: skip

        sizes = [width << level for level in range(depth)]
        self.down = nn.ModuleList(double(a, b) for a, b in zip([3] + sizes, sizes))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * s, s, 2, 2) for s in reversed(sizes[:-1]))
        self.join = nn.ModuleList(double(2 * s, s) for s in reversed(sizes[:-1]))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        skips = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else functional.max_pool2d(x, 2))
            skips.append(x)
        skips.pop()
        for up, join in zip(self.up, self.join):
            x = join(torch.cat([up(x), skips.pop()], 1))
        return self.head(x)


class LstmLanguage(nn.Module):
    def __init__(self, vocabulary, width, depth):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, depth, batch_first=True, dropout=0.2)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        return self.head(self.lstm(self.tokens(tokens))[0])


class Hugging(nn.Module):
    """A transformers model of which the logits count."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(tokens).logits


def images(batch, size, classes):
    return lambda: (torch.randn(batch, 3, size, size), torch.randint(classes, (batch,)))


def pixels(batch, size, classes):
    return lambda: (torch.randn(batch, 3, size, size), torch.randint(classes, (batch, size, size)))


def tokens(batch, length, vocabulary):
    def draw():
        drawn = torch.randint(vocabulary, (batch, length + 1))
        return drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous()

    return draw


def resnet50(small):
    if small:
        return resnet([1, 1, 1, 1], 10), images(2, 32, 10)
    model = torchvision.models.resnet50() if torchvision else resnet([3, 4, 6, 3])
    return model, images(64, 224, 1000)


def vit(small):
    if small:
        return Vit(32, 8, 32, 2, 2, 10), images(2, 32, 10)
    model = torchvision.models.vit_b_16() if torchvision else Vit(224, 16, 768, 12, 12, 1000)
    return model, images(64, 224, 1000)


def gpt2(small, checkpointed=False):
    if small:
        return Transformer(101, 16, 32, 2, 2, True, checkpointed), tokens(2, 16, 101)
    if transformers:
        sizes = {"n_embd": 1024, "n_layer": 24, "n_head": 16, "use_cache": False}
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))
        if checkpointed:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        return Hugging(model), tokens(8, 1024, 50257)
    return Transformer(50257, 1024, 1024, 24, 16, True, checkpointed), tokens(8, 1024, 50257)


def bert(small):
    if small:
        return Transformer(101, 16, 32, 2, 2, False), tokens(2, 16, 101)
    if transformers:
        return Hugging(transformers.BertForMaskedLM(transformers.BertConfig())), tokens(32, 512, 30522)
    return Transformer(30522, 512, 768, 12, 12, False), tokens(32, 512, 30522)


def unet(small):
    return (UNet(4, 3, 3), pixels(2, 32, 3)) if small else (UNet(64, 5, 21), pixels(16, 256, 21))


def lstm(small):
    if small:
        return LstmLanguage(101, 16, 2), tokens(2, 8, 101)
    return LstmLanguage(10000, 1024, 2), tokens(64, 70, 10000)


# name: model and data, micro-batches, autocast, optimizer
MODELS = {
    "resnet50": (resnet50, 1, False, "sgd"),
    "vit-b16": (vit, 1, False, "adamw"),
    "gpt2-medium": (gpt2, 1, False, "adamw"),
    "bert-base-amp": (bert, 1, True, "adamw"),
    "unet": (unet, 1, False, "sgd"),
    "lstm": (lstm, 1, False, "sgd"),
    "resnet50-accumulation": (resnet50, 4, False, "sgd"),
    "gpt2-medium-checkpointing": (lambda small: gpt2(small, True), 1, False, "adamw"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--steps", type=int, default=14, help="training steps")
    parser.add_argument("--small", action="store_true", help="sizes for a CPU")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fp32", action="store_true", help="no TF32")
    parser.add_argument("--compile", action="store_true", help="by torch.compile")
    options = parser.parse_args()
    if not options.small and (torchvision is None or transformers is None):
        missing = [n for n, m in (("torchvision", torchvision), ("transformers", transformers)) if m is None]
        print(f"{' and '.join(missing)} not installed: models of it are built here from torch alone")

    torch.manual_seed(options.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = not options.fp32
    build, micro_batches, autocast, optimizer = MODELS[options.model]
    model, draw = build(options.small)
    model = model.to(device).train()
    if options.compile:
        model = torch.compile(model)
    if optimizer == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batches = [[part.to(device) for part in draw()] for _ in range(micro_batches)]

    losses, times = [], []
    for _ in range(options.steps):
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        for inputs, wanted in batches:
            with torch.autocast(device, torch.bfloat16, enabled=autocast):
                result = model(inputs)
                flat = result.flatten(0, 1) if wanted.dim() == 2 else result
                loss = functional.cross_entropy(flat, wanted.flatten() if wanted.dim() == 2 else wanted)
            (loss / micro_batches).backward()
        optimizer.step()
        losses.append(loss.detach())
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    print("losses", *(f"{loss.item():.9g}" for loss in losses))
    print("ms", *(f"{1e3 * t:.2f}" for t in times), "median", f"{1e3 * statistics.median(times):.2f}")
    if device == "cuda":
        print("allocated", torch.cuda.max_memory_allocated(), "reserved", torch.cuda.max_memory_reserved())


if __name__ == "__main__":
    main()
