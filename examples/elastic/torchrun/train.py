"""Trains a small network with any number of workers that torchrun starts.

torchrun ends all workers when one joins or leaves, and starts them again. So each life of this program begins at the newest
checkpoint that any worker has, and at most --checkpoint-every steps are done twice.

Each worker shows at /metrics of its port what it does, in Prometheus' text format: train_samples_total is its own work, by
which Tandem's agent knows its rate; train_step is the step of the training.
"""

import argparse
import http.server
import json
import os
import pathlib
import socket
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

INPUTS = 32


def main():
    options = parse()
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    torch.set_num_threads(1)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)  # where NCCL exchanges objects
    torch.manual_seed(options.seed)
    model = nn.Sequential(nn.Linear(INPUTS, 64), nn.Tanh(), nn.Linear(64, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    checkpoint = pathlib.Path(options.checkpoints) / f"{socket.gethostname()}-{os.environ['LOCAL_RANK']}.pt"
    step = resume(checkpoint.parent, model, optimizer)
    tell(options, event="begins", step=step, workers=dist.get_world_size())
    progress = Progress(step)
    if os.environ["LOCAL_RANK"] == "0":
        progress.serve(options.port)

    # The network is a copy of the model, whose gradients are the means over all workers.
    network = DistributedDataParallel(model)
    while step < options.steps:
        began = time.monotonic()
        inputs, wanted = batch(options, step, device)
        loss = nn.functional.mse_loss(network(inputs), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % options.checkpoint_every == 0:
            save(checkpoint, step, model, optimizer)
            total = loss.detach().clone()
            dist.all_reduce(total)
            progress.loss = total.item() / dist.get_world_size()
            tell(options, step=step, loss=progress.loss, workers=dist.get_world_size())
        time.sleep(max(0, began + options.pace - time.monotonic()))
        progress.step = step
        progress.samples += options.batch * int(os.environ["LOCAL_WORLD_SIZE"])
    tell(options, event="ends", step=step, workers=dist.get_world_size())


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, required=True, help="steps of the whole training")
    parser.add_argument("--checkpoints", required=True, help="folder of the checkpoints; the workers may share it")
    parser.add_argument("--checkpoint-every", type=int, default=20, help="steps between two checkpoints")
    parser.add_argument("--batch", type=int, default=64, help="samples of a worker in a step")
    parser.add_argument("--pace", type=float, default=0.0, help="least time of a step in seconds: tests have rates by it that no machine's speed changes")
    parser.add_argument("--port", type=int, default=9400, help="port of /metrics")
    parser.add_argument("--seed", type=int, default=1, help="seed of the weights and samples")
    options = parser.parse_args()
    for name in ("steps", "checkpoint_every", "batch"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')}: {getattr(options, name)} is not legal, legal is 1 or more")
    if not 0 <= options.pace <= 3600:
        parser.error(f"--pace: {options.pace} is not legal, legal is 0 to 3600")
    return options


def batch(options, step, device):
    """Returns the samples of this worker in a step. All workers of a step have others."""
    draw = torch.Generator().manual_seed((options.seed * 1_000_003 + step) * 65_537 + dist.get_rank())
    inputs = torch.randn(options.batch, INPUTS, generator=draw)
    wanted = torch.sin(inputs.sum(dim=1, keepdim=True) / 4)
    return inputs.to(device), wanted.to(device)


def save(path, step, model, optimizer):
    """Writes a checkpoint. It is there as a whole or not at all: a worker may be killed at any time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}.unfinished")
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, unfinished)
    unfinished.replace(path)


def resume(folder, model, optimizer):
    """Takes the newest checkpoint of all workers over, and returns its step. Without any it takes that of worker 0.

    A worker that joins may have none, or one of an earlier time.
    """
    own = {"step": 0, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    for path in folder.glob("*.pt"):
        found = torch.load(path, map_location="cpu")
        if found["step"] > own["step"]:
            own = found
    steps = [None] * dist.get_world_size()
    dist.all_gather_object(steps, own["step"])
    newest = [own]
    dist.broadcast_object_list(newest, src=steps.index(max(steps)))
    model.load_state_dict(newest[0]["model"])
    optimizer.load_state_dict(newest[0]["optimizer"])
    return newest[0]["step"]


def tell(options, **what):
    if dist.get_rank() == 0:
        print(json.dumps({"time": round(time.time(), 3), **what}), flush=True)


class Progress:
    """What a worker has done in its present life."""

    def __init__(self, step):
        self.step, self.samples, self.loss = step, 0, float("nan")

    def text(self):
        return (
            f"# TYPE train_samples_total counter\ntrain_samples_total {self.samples}\n"
            f"# TYPE train_step gauge\ntrain_step {self.step}\n"
            f"# TYPE train_loss gauge\ntrain_loss {self.loss}\n"
            f"# TYPE train_workers gauge\ntrain_workers {dist.get_world_size()}\n"
        ).encode()

    def serve(self, port):
        progress = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                if self.path != "/metrics":
                    self.send_error(404)
                    return
                text = progress.text()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("", port), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()


if __name__ == "__main__":
    main()
