"""Models of the GPU suite, with random weights: python3 models.py KIND obeys orders in JSON, a line each, as `gputest worker`."""

import json
import sys
import time

import torch
from torch import nn

DEVICE = "cuda"


def resnet(train):
    import torchvision

    model = torchvision.models.resnet50(weights=None).to(DEVICE, memory_format=torch.channels_last)
    size = 64 if train else 8
    images = torch.randn(size, 3, 224, 224, device=DEVICE).to(memory_format=torch.channels_last)
    if not train:
        model = model.half().eval()
        images = images.half()

        def infer():
            with torch.no_grad():
                model(images)

        return captured(infer)
    labels = torch.randint(0, 1000, (size,), device=DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss = nn.CrossEntropyLoss()

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            value = loss(model(images), labels)
        value.backward()
        optimizer.step()

    return step


def encoder():
    layer = nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).to(DEVICE).half().eval()
    tokens = torch.randn(8, 128, 768, device=DEVICE, dtype=torch.float16)

    def infer():
        with torch.no_grad():
            model(tokens)

    return captured(infer)


class Block(nn.Module):
    """A layer of a decoder that writes one token for each sequence, with a cache of those before."""

    def __init__(self, width, heads, batch, length):
        super().__init__()
        self.heads, self.head = heads, width // heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.register_buffer("keys", torch.randn(batch, heads, length, self.head))
        self.register_buffer("values", torch.randn(batch, heads, length, self.head))

    def forward(self, x):
        q, k, v = self.qkv(self.first(x)).chunk(3, dim=-1)
        shape = (x.shape[0], self.heads, 1, self.head)
        self.keys[:, :, -1:] = k.view(shape)
        self.values[:, :, -1:] = v.view(shape)
        seen = nn.functional.scaled_dot_product_attention(q.view(shape), self.keys, self.values)
        x = x + self.out(seen.reshape(x.shape))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


def decode():
    large = torch.cuda.get_device_properties(0).total_memory > 20 << 30
    width, layers = (2048, 24) if large else (1024, 24)
    model = nn.Sequential(*[Block(width, 16, 8, 512) for _ in range(layers)], nn.Linear(width, 32000)).to(DEVICE).bfloat16().eval()
    token = torch.randn(8, width, device=DEVICE, dtype=torch.bfloat16)

    def step():
        with torch.no_grad():
            model(token)

    return captured(step)


def captured(f):
    """Servers of models replay a CUDA graph, so that the host is no bound."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            f()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        f()
    return graph.replay


KINDS = {"resnet50-train": lambda: resnet(True), "resnet50-infer": lambda: resnet(False), "encoder": encoder, "decode": decode}


def say(**what):
    print(json.dumps(what), flush=True)


def run(step, seconds):
    times = []
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        before = time.monotonic()
        step()
        torch.cuda.synchronize()
        times.append((time.monotonic() - before) * 1000)
    took = time.monotonic() - begin
    times.sort()
    return dict(units=len(times), seconds=took, p50=times[len(times) // 2], p99=times[min(len(times) - 1, len(times) * 99 // 100)])


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in KINDS:
        sys.exit("usage: models.py " + "|".join(KINDS))
    begin = time.monotonic()
    try:
        torch.manual_seed(1)
        step = KINDS[sys.argv[1]]()
        for _ in range(5):
            step()
        torch.cuda.synchronize()
    except Exception as error:  # whatever it is, the one who measures has to know
        say(error=f"{type(error).__name__}: {error}")
        return
    say(startMillis=(time.monotonic() - begin) * 1000, name=torch.cuda.get_device_name(), torch=torch.__version__)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if order["do"] == "run":
                say(**run(step, order["millis"] / 1000))
            elif order["do"] == "quit":
                return
            else:
                say(error=f"unknown order {order['do']}")
        except Exception as error:
            say(error=f"{type(error).__name__}: {error}")


main()
