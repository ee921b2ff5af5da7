"""Data-parallel training with JAX that yields when it is told to and resumes to the last bit.

One process is one rank with one CPU device; gloo carries the sums. What Ganger gives comes from the environment:
MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE to find the others, GANGER_CHECKPOINT_DIR, GANGER_RESUME_FROM,
GANGER_CHECKPOINT_ACK and GANGER_PREEMPT_FILE for the checkpoint contract. Without them it is one plain process.
Exit codes: 0 trained, 85 checkpointed after a stop, 3 the resume file is broken, 4 a peer is lost, 1 anything else.
"""

import os
import signal
import sys

stop_wished = False


def wish_stop(_signal, _frame):
    global stop_wished
    stop_wished = True


def catch_signals():
    for wanted in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(wanted, wish_stop)


# Before the imports, which take seconds: until then a SIGUSR1 would end the process without a word.
catch_signals()
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# One thread a process: ranks that share cores would only fight. XLA else takes as many as it has CPUs, and splits its sums
# among them: a run that resumed with another number of CPUs would end in other last bits.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ.setdefault("PJRT_NPROC", "1")

import argparse
import hashlib
import struct
import time
import traceback

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

RANK = int(os.environ.get("RANK") or 0)
WORLD = int(os.environ.get("WORLD_SIZE") or 1)
ATTEMPT = os.environ.get("GANGER_ATTEMPT") or "0"
EXIT_BROKEN_RESUME, EXIT_LOST_PEER, EXIT_REQUEUE = 3, 4, 85

VOCABULARY, WIDTH, HIDDEN, BATCH, LENGTH = 64, 32, 128, 8, 32
LEARNING_RATE, MOMENTUM = 0.1, 0.9


class BrokenCheckpoint(Exception):
    """GANGER_RESUME_FROM names something that training must not start from."""


def say(text):
    print(f"rank {RANK}/{WORLD} {text}", flush=True)


# --- the model: predict a token from the two before it ---------------------------------------------------------------


def new_state(seed):
    random = np.random.Generator(np.random.Philox(key=[seed, 2**63]))
    shapes = {"embed": (VOCABULARY, WIDTH), "hidden": (2 * WIDTH, HIDDEN), "output": (HIDDEN, VOCABULARY)}
    scales = {"embed": 1.0, "hidden": (2 * WIDTH) ** -0.5, "output": HIDDEN**-0.5}
    weights = {name: (scales[name] * random.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()}
    return {"step": 0, "loss": 0.0, "weights": weights, "momentum": {name: np.zeros_like(w) for name, w in weights.items()}}


def batch_of(seed, step):
    """The tokens of this rank at this step: a function of these numbers alone, so that a resume needs no loader state."""
    random = np.random.Generator(np.random.Philox(key=[seed, step * WORLD + RANK]))
    tokens = random.integers(0, VOCABULARY, (BATCH, LENGTH + 2), dtype=np.int32)
    noise = random.random((BATCH, LENGTH + 2)) < 0.1
    for place in range(1, LENGTH + 2):
        rule = (5 * tokens[:, place - 1] + 7) % VOCABULARY
        tokens[:, place] = np.where(noise[:, place], tokens[:, place], rule)
    return tokens


def loss_of(weights, tokens):
    before = weights["embed"][tokens]
    hidden = jnp.tanh(jnp.concatenate([before[:, :-2], before[:, 1:-1]], axis=-1) @ weights["hidden"])
    odds = jax.nn.log_softmax(hidden @ weights["output"])
    return -jnp.take_along_axis(odds, tokens[:, 2:, None], axis=-1).mean()


def make_step(mesh):
    def step(weights, momentum, tokens):
        # The weights are marked as differing between ranks, so that the gradient of each is its own until the mean.
        own = jax.tree.map(lambda w: jax.lax.pcast(w, "ranks", to="varying"), weights)
        loss, gradient = jax.value_and_grad(loss_of)(own, tokens)
        loss, gradient = jax.lax.pmean((loss, gradient), "ranks")
        momentum = jax.tree.map(lambda m, g: MOMENTUM * m - LEARNING_RATE * g, momentum, gradient)
        return jax.tree.map(jnp.add, weights, momentum), momentum, loss

    return jax.jit(jax.shard_map(step, mesh=mesh, in_specs=(P(), P(), P("ranks")), out_specs=(P(), P(), P())))


def make_any(mesh):
    """Whether any rank raised its flag: the same answer on all, so that all leave at the same step."""
    return jax.jit(jax.shard_map(lambda flag: jax.lax.pmax(flag, "ranks"), mesh=mesh, in_specs=P("ranks"), out_specs=P()))


# --- checkpoints: one safetensors file, whole or absent --------------------------------------------------------------


def digest_of(arrays):
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def arrays_of(state):
    arrays = {"step": np.array([state["step"]], np.int64), "loss": np.array([state["loss"]], np.float32)}
    for part in ("weights", "momentum"):
        arrays |= {f"{part}.{name}": np.asarray(array) for name, array in state[part].items()}
    return arrays


def save_checkpoint(state):
    """Rank 0 writes under a temporary name, makes it durable, renames, and only then announces."""
    directory = os.path.abspath(os.environ["GANGER_CHECKPOINT_DIR"])
    path = os.path.join(directory, f"step-{state['step']:06}.safetensors")
    temporary = f"{path}.tmp-{ATTEMPT}-{os.getpid()}"
    os.makedirs(directory, exist_ok=True)
    arrays = arrays_of(state)
    # One key only: the header keeps several in no fixed order, and equal states are to be equal files.
    with open(temporary, "wb") as file:
        file.write(save(arrays, metadata={"sha256": digest_of(arrays)}))
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path)
    parent = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(parent)
    os.close(parent)
    announce(state["step"], path)


def announce(step, path):
    if ack := os.environ.get("GANGER_CHECKPOINT_ACK"):
        with open(ack, "a") as file:
            file.write(f"CHECKPOINT {step} {path}\n")


def load_checkpoint(path):
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}
    except (OSError, SafetensorError) as error:
        raise BrokenCheckpoint(f"cannot resume from {path}: {error}") from error
    wanted = {name: (array.shape, array.dtype) for name, array in arrays_of(new_state(0)).items()}
    if {name: (array.shape, array.dtype) for name, array in arrays.items()} != wanted:
        raise BrokenCheckpoint(f"cannot resume from {path}: it holds other tensors than this model has")
    if metadata.get("sha256") != digest_of(arrays):
        raise BrokenCheckpoint(f"cannot resume from {path}: its tensors do not have the hash that it states")
    state = {"step": int(arrays["step"][0]), "loss": float(arrays["loss"][0])}
    for part in ("weights", "momentum"):
        state[part] = {name.removeprefix(f"{part}."): a for name, a in arrays.items() if name.startswith(f"{part}.")}
    return state


# --- the loop --------------------------------------------------------------------------------------------------------


def must_stop():
    return stop_wished or os.path.exists(os.environ.get("GANGER_PREEMPT_FILE") or "")


def pace(due):
    """Waits until `due`; a wish to stop ends the wait."""
    while not must_stop() and (left := due - time.monotonic()) > 0:
        time.sleep(min(left, 0.05))


def log_loss(args, step, loss):
    if RANK != 0:
        return
    if args.loss_log:
        with open(args.loss_log, "a") as file:
            file.write(f"{step} {struct.pack('>f', loss).hex()} {loss!r}\n")
    if args.log_every and step % args.log_every == 0:
        say(f"step {step} loss {loss:.4f}")


def train(args, state):
    """Trains to the end or to a stop; returns the exit code."""
    mesh = Mesh(np.array(jax.devices()), ("ranks",))
    split, whole = NamedSharding(mesh, P("ranks")), NamedSharding(mesh, P())
    step_once, any_rank = make_step(mesh), make_any(mesh)
    spread = lambda tree: jax.tree.map(lambda a: jax.make_array_from_process_local_data(whole, np.asarray(a)), tree)
    weights, momentum, step, loss = spread(state["weights"]), spread(state["momentum"]), state["step"], state["loss"]
    own_part = lambda tree: jax.tree.map(lambda a: np.asarray(a.addressable_data(0)), tree)

    def save_now():
        if RANK == 0 and os.environ.get("GANGER_CHECKPOINT_DIR"):
            save_checkpoint({"step": step, "loss": loss, "weights": own_part(weights), "momentum": own_part(momentum)})

    while step < args.steps:
        due = time.monotonic() + args.step_time
        tokens = jax.make_array_from_process_local_data(split, batch_of(args.seed, step + 1))
        weights, momentum, mean = step_once(weights, momentum, tokens)
        step, loss = step + 1, float(mean.addressable_data(0))
        log_loss(args, step, loss)
        pace(due)
        flag = jax.make_array_from_process_local_data(split, np.array([must_stop()], np.int32))
        stopping = int(any_rank(flag).addressable_data(0)[0]) > 0
        if stopping and step < args.steps:
            if not os.environ.get("GANGER_CHECKPOINT_DIR"):
                say(f"end step {step} stopped, nothing saved: GANGER_CHECKPOINT_DIR is not set")
                return 1
            save_now()
            say(f"end step {step} stopped, checkpointed")
            return EXIT_REQUEUE
        if args.checkpoint_every and step % args.checkpoint_every == 0 and step < args.steps:
            save_now()
    save_now()
    say(f"end step {step}")
    if RANK == 0:
        print(f"final loss {loss!r} {struct.pack('>f', loss).hex()}", flush=True)
    return 0


def join_gang():
    if WORLD == 1:
        return
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # JAX's own service would take SIGTERM for itself.
    jax.config.update("jax_enable_preemption_service", False)
    coordinator = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    jax.distributed.initialize(coordinator, WORLD, RANK, heartbeat_timeout_seconds=30)
    catch_signals()


def leave_gang():
    """Waits for the others (rank 0 is done only when its checkpoint is), so that all end alike."""
    if WORLD > 1:
        multihost_utils.sync_global_devices("done")
        jax.distributed.shutdown()


def main():
    parser = argparse.ArgumentParser(description="data-parallel JAX on CPUs")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--step-time", type=float, default=0.0, help="least seconds that a step takes")
    parser.add_argument("--checkpoint-every", type=int, default=0, help="steps; 0: only at a stop and at the end")
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--loss-log", help="rank 0 appends 'step bits-in-hex loss' for each step")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    resume_from = os.environ.get("GANGER_RESUME_FROM")
    state = load_checkpoint(resume_from) if resume_from else new_state(args.seed)
    join_gang()
    if WORLD > 1:
        start = np.frombuffer(bytes.fromhex(digest_of(arrays_of(state))), np.uint8)
        multihost_utils.assert_equal(start, "the ranks must all start from the same state")
    say(f"resume step {state['step']} from {resume_from}" if resume_from else "start step 0")
    code = train(args, state)
    leave_gang()
    return code


def run():
    try:
        return main()
    except BrokenCheckpoint as error:
        print(f"rank {RANK}/{WORLD}: {error}", file=sys.stderr)
        return EXIT_BROKEN_RESUME
    except Exception as error:
        traceback.print_exc()
        sys.stderr.flush()
        # Not a return: the exit hooks of JAX would wait minutes for the peer that is gone.
        os._exit(EXIT_LOST_PEER if isinstance(error, jax.errors.JaxRuntimeError) else 1)


if __name__ == "__main__":
    sys.exit(run())
