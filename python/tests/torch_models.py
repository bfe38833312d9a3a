"""Small PyTorch training programs that the tests capture."""

import torch


class ConvNet(torch.nn.Sequential):
    def __init__(self):
        super().__init__(
            torch.nn.Conv2d(3, 4, 3),
            torch.nn.BatchNorm2d(4),
            torch.nn.ReLU(inplace=True),
            torch.nn.Flatten(),
            torch.nn.Linear(4 * 6 * 6, 10),
        )

    @staticmethod
    def data():
        return torch.randn(2, 3, 8, 8)


class Mlp(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 10))

    @staticmethod
    def data():
        return torch.randn(4, 8)


class Block(torch.nn.Module):
    """A transformer block and a head."""

    def __init__(self, dropout=0.1):
        super().__init__()
        self.block = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout, batch_first=True)
        self.head = torch.nn.Linear(16, 10)

    def forward(self, x):
        return self.head(self.block(x).mean(1))

    @staticmethod
    def data():
        return torch.randn(4, 5, 16)


class Lstm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(8, 12, batch_first=True)
        self.head = torch.nn.Linear(12, 10)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])

    @staticmethod
    def data():
        return torch.randn(4, 6, 8)


class Checkpointed(torch.nn.Module):
    """Three blocks of a residual network, each made again for its backward."""

    def __init__(self, checkpointed=True, reentrant=False):
        super().__init__()
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 8))
            for _ in range(3)
        )
        self.head = torch.nn.Linear(8, 10)
        self.checkpointed, self.reentrant = checkpointed, reentrant

    def forward(self, x):
        for block in self.blocks:
            if self.checkpointed:
                y = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=self.reentrant)
                x = x + y
            else:
                x = x + block(x)
        return self.head(x)

    @staticmethod
    def data():
        return torch.randn(4, 8, requires_grad=True)


def training(model, optimizer=None, micro_batches=1, autocast=False, after=lambda: None):
    """A function that runs one training step and returns the loss."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    batches = [model.data() for _ in range(micro_batches)]
    labels = torch.arange(len(batches[0])) % 10

    def step():
        optimizer.zero_grad()
        for batch in batches:
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                loss = torch.nn.functional.cross_entropy(model(batch), labels)
            loss.backward()
        optimizer.step()
        after()
        return loss.detach()

    return step
