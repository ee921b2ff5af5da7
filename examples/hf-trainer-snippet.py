"""The checkpoint contract for the Hugging Face Trainer: signal, save, announce, exit 85, and resume.

Add the callback to your Trainer and end your script as below; `model`, `train_dataset` are yours:

    args = TrainingArguments(output_dir=os.environ["GANGER_CHECKPOINT_DIR"], save_strategy="steps", save_steps=500)
    run(Trainer(model=model, args=args, train_dataset=train_dataset))
"""

import os
import signal
import sys

import torch
import torch.distributed as dist
from transformers import TrainerCallback


class YieldToGanger(TrainerCallback):
    def __init__(self):
        self.wished = self.stopped = False
        for wanted in (signal.SIGUSR1, signal.SIGTERM):
            signal.signal(wanted, self.wish)

    def wish(self, *_):
        self.wished = True

    def on_step_end(self, args, state, control, **kwargs):
        wished = self.wished or os.path.exists(os.environ.get("GANGER_PREEMPT_FILE") or "")
        flag = torch.tensor(int(wished), device=args.device)
        if dist.is_initialized():
            dist.all_reduce(flag, op=dist.ReduceOp.MAX)  # all ranks leave at the same step
        if flag.item() and state.global_step < state.max_steps:
            self.stopped = control.should_save = control.should_training_stop = True
        return control

    def on_save(self, args, state, control, **kwargs):
        if dist.is_initialized():
            dist.barrier()  # every rank calls this after its own files: announce only what is whole
        if state.is_world_process_zero and (ack := os.environ.get("GANGER_CHECKPOINT_ACK")):
            path = os.path.abspath(f"{args.output_dir}/checkpoint-{state.global_step}")
            with open(ack, "a") as file:
                file.write(f"CHECKPOINT {state.global_step} {path}\n")


def run(trainer):
    callback = YieldToGanger()
    trainer.add_callback(callback)
    trainer.train(resume_from_checkpoint=os.environ.get("GANGER_RESUME_FROM") or None)
    if callback.stopped:
        sys.exit(85)
