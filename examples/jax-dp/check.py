"""Shows that preemption costs no bit: four processes undisturbed, and four that are stopped twice and resumed.

What is stopped has another number of CPUs than what resumes, as on other nodes. Run it with the Python that has the
requirements; it needs nothing of Ganger. Exit code 0: every loss is equal.
"""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

WORLD, STEPS = 4, 120
TRAIN = str(pathlib.Path(__file__).with_name("train.py"))


def start(folder, name, attempt=1, resume_from="", step_time=0.0):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(WORLD), "GANGER_ATTEMPT": str(attempt),
        "GANGER_CHECKPOINT_DIR": f"{folder}/{name}", "GANGER_CHECKPOINT_ACK": f"{folder}/{name}.ack",
        "GANGER_RESUME_FROM": resume_from, "GANGER_PREEMPT_FILE": "",
    }
    command = [sys.executable, TRAIN, "--steps", str(STEPS), "--step-time", str(step_time), "--log-every", "1"]
    command += ["--loss-log", f"{folder}/{name}.loss"]
    return [
        subprocess.Popen(command, env=os.environ | shared | {"RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(WORLD)
    ]


def end(ranks, code):
    lines = [rank.communicate(timeout=300)[0] for rank in ranks]
    codes = [rank.returncode for rank in ranks]
    assert codes == [code] * WORLD, f"exit codes {codes}, not {code}\n" + "".join(lines)


def stop_after(ranks, step, signalled):
    for line in ranks[0].stdout:
        if f" step {step} " in line:
            break
    ranks[signalled].send_signal(signal.SIGUSR1)
    since = time.monotonic()
    end(ranks, 85)
    return time.monotonic() - since


def announced(folder):
    step, path = pathlib.Path(f"{folder}/stopped.ack").read_text().splitlines()[-1].split(" ", 2)[1:]
    return int(step), path


def timed(what, work):
    since = time.monotonic()
    result = work()
    print(f"{what}: {time.monotonic() - since:.1f} s", flush=True)
    return result


def stopped_twice(folder):
    latest, all_cpus = "", os.sched_getaffinity(0)
    for attempt, (after, signalled) in enumerate([(30, 2), (70, 0)], start=1):
        os.sched_setaffinity(0, {min(all_cpus)} if attempt == 1 else all_cpus)
        ranks = start(folder, "stopped", attempt, latest, step_time=0.05)
        seconds = stop_after(ranks, after, signalled)
        step, latest = announced(folder)
        assert after <= step < STEPS, f"stopped at step {step}, signalled after {after}"
        print(f"rank {signalled} signalled after step {after}: all left at step {step}, {seconds:.1f} s later", flush=True)
    end(start(folder, "stopped", 3, latest), 0)


def main():
    with tempfile.TemporaryDirectory() as folder:
        timed("undisturbed", lambda: end(start(folder, "whole"), 0))
        timed("stopped twice", lambda: stopped_twice(folder))
        whole, stopped = (pathlib.Path(f"{folder}/{name}.loss").read_text() for name in ("whole", "stopped"))
        assert whole == stopped, "the losses differ"
        last = f"step-{STEPS:06}.safetensors"
        whole, stopped = (pathlib.Path(f"{folder}/{name}/{last}").read_bytes() for name in ("whole", "stopped"))
        assert whole == stopped, "the final checkpoints differ"
        print(f"equal: {STEPS} losses and {len(whole)} bytes of the final checkpoint")
        print("final loss", pathlib.Path(f"{folder}/stopped.loss").read_text().splitlines()[-1].split(" ")[2])


if __name__ == "__main__":
    main()
