"""Training in plain Python that yields when it is asked to and resumes where it was. Needs only `ganger` in the PATH."""

import json, os, signal, subprocess, sys, time

stop = False


def wish_stop(*_):
    global stop
    stop = True


for wanted in (signal.SIGUSR1, signal.SIGTERM):  # `checkpoint.signal` of train.yaml, and what a job without one gets
    signal.signal(wanted, wish_stop)


def save(step, weight):
    directory = f"{os.environ['GANGER_CHECKPOINT_DIR']}/step-{step:06}"
    os.makedirs(directory, exist_ok=True)
    with open(f"{directory}/state.json", "w") as file:
        json.dump({"step": step, "weight": weight}, file)
    # Only now, when all files are written: hash them, make them durable, and say that this checkpoint is there.
    command = ["ganger", "checkpoint", "announce", str(step), directory, "--seal"]
    subprocess.run(command, check=True, start_new_session=True)  # so that a signal to the job does not hit it


step, weight = 0, 0.0
if resume_from := os.environ.get("GANGER_RESUME_FROM"):  # a broken file raises: never start over in silence
    with open(f"{resume_from}/state.json") as file:
        step, weight = json.load(file).values()
print(f"attempt {os.environ['GANGER_ATTEMPT']} begins at step {step}", flush=True)

steps = int(sys.argv[1])
while step < steps and not stop:
    time.sleep(0.1)
    step, weight = step + 1, weight + (1 - weight) / 100
    if step % 50 == 0 and step < steps:
        save(step, weight)
save(step, weight)
print(f"attempt {os.environ['GANGER_ATTEMPT']} ends at step {step} with weight {weight:.6f}", flush=True)
sys.exit(0 if step == steps else 85)  # 85: I have saved, run me again
