"""The checkpoint contract in a PyTorch loop: signal, save, announce, exit 85, and resume where that ended.

Put these lines around your own loop; `model`, `optimizer`, `device`, `train_one_step` and `total_steps` are yours, and
torch.distributed is initialized. Every rank has the whole state (DDP); with FSDP save by torch.distributed.checkpoint.
"""

import os
import signal
import sys

import torch
import torch.distributed as dist

stop = False


def wish_stop(*_):
    global stop
    stop = True


for wanted in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(wanted, wish_stop)


def save(model, optimizer, step):
    """Whole or absent: temporary name, fsync, rename, fsync of the directory; announced only then."""
    directory = os.path.abspath(os.environ["GANGER_CHECKPOINT_DIR"])
    path, temporary = f"{directory}/step-{step:06}.pt", f"{directory}/step-{step:06}.pt.tmp-{os.getpid()}"
    os.makedirs(directory, exist_ok=True)
    with open(temporary, "wb") as file:
        torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    parent = os.open(directory, os.O_RDONLY)
    os.fsync(parent)
    os.close(parent)
    if ack := os.environ.get("GANGER_CHECKPOINT_ACK"):
        with open(ack, "a") as file:
            file.write(f"CHECKPOINT {step} {path}\n")


def run(model, optimizer, device, train_one_step, total_steps):
    step = 0
    if resume_from := os.environ.get("GANGER_RESUME_FROM"):  # a broken file raises: never start over in silence
        state = torch.load(resume_from, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    while step < total_steps:
        train_one_step(step)  # its data: a function of the step, or saved with the rest
        step += 1
        wished = stop or os.path.exists(os.environ.get("GANGER_PREEMPT_FILE") or "")
        flag = torch.tensor(int(wished), device=device)
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)  # all ranks leave at the same step, whoever was signalled
        if flag.item():
            if dist.get_rank() == 0:
                save(model, optimizer, step)
            dist.barrier()  # nobody says "checkpointed" before it is
            dist.destroy_process_group()
            sys.exit(85)
