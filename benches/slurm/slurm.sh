# Real Slurm in a folder of its own: private munge, controller and one slurmd a node. Sourced by `run`.

# Answers why it cannot be had, or nothing.
slurm_missing() {
    [ "$(id -u)" -eq 0 ] || { echo "its daemons run as root here, and this is not root"; return; }
    local tool missing=""
    for tool in slurmctld slurmd sbatch munged; do command -v "$tool" >/dev/null || missing=1; done
    [ -n "$missing" ] || return 0
    command -v apt-get >/dev/null || { echo "it is not installed, and there is no apt-get"; return; }
    local packages=(slurmctld slurmd slurm-client munge)
    (apt-get install -y --no-install-recommends "${packages[@]}" ||
        { apt-get update && apt-get install -y --no-install-recommends "${packages[@]}"; }) >"$place/apt.log" 2>&1 ||
        echo "it cannot be installed: $(tail -n1 "$place/apt.log")"
}

# slurm_start NODES
slurm_start() {
    local nodes=$1 gpu file
    # State and spool go together: with one of them left over, job numbers repeat and nodes are drained.
    rm -rf "$place"/{state,spool,log,run,dev}
    mkdir -p "$place"/{state,spool,log,run,dev,work}
    for gpu in 0 1 2 3 4 5 6 7; do mknod "$place/dev/nvidia$gpu" c 1 3; done
    for file in slurm.conf gres.conf; do
        sed -e "s|@PLACE@|$place|g; s|@NODES@|$nodes|g; s|@LAST_PORT@|$((17000 + nodes))|g" "$here/$file" >"$place/$file"
    done
    export SLURM_CONF=$place/slurm.conf
    head -c 1024 /dev/urandom >"$place/run/munge.key"
    chmod 600 "$place/run/munge.key"
    munged --foreground --force --key-file="$place/run/munge.key" --socket="$place/run/munge.sock" --pid-file="$place/run/munged.pid" \
        --seed-file="$place/run/munge.seed" --num-threads=4 >"$place/log/munged.log" 2>&1 &
    daemons+=($!)
    eventually "munged listens" test -S "$place/run/munge.sock"
    slurmctld -D -c >/dev/null 2>&1 &
    slurmctld=$!
    daemons+=($slurmctld)
    for ((node = 1; node <= nodes; node++)); do
        slurmd -D -N "n$node" >/dev/null 2>&1 &
        daemons+=($!)
    done
    eventually "$nodes nodes of Slurm are idle" slurm_idle "$nodes"
}

slurm_idle() { [ "$(sinfo -h -N -o '%t' 2>/dev/null | grep -cx idle)" -ge $(($1 * 2)) ]; }
slurm_empty() { [ -z "$(squeue -h -o %i)" ]; }
slurm_submit() { (cd "$place/work" && sbatch --parsable "$@"); }

slurm_array() { slurm_submit "$place/jobs/array.sh" >/dev/null; }

slurm_throughput() { throughput "$slurmctld" slurm_empty "$@"; }

# Seconds from before the call of the client until the urgent job's process runs.
slurm_urgent() {
    local began
    rm -f "$place/victims" "$place/urgent"
    for _ in 1 2; do slurm_submit -p p3 -N2 -n2 --gres=gpu:h100:8 --signal=B:USR1@1 "$place/jobs/victim.sh" >/dev/null; done
    eventually "the victims run" has_lines "$place/victims" 2
    sleep 2
    began=$EPOCHREALTIME
    slurm_submit -p p0 -N4 -n4 --gres=gpu:h100:8 "$place/jobs/urgent.sh" >/dev/null
    eventually "the urgent job runs" has_lines "$place/urgent" 1
    started_after "$place/urgent" "$began"
    scancel --user="$(id -un)"
    eventually "nothing is left" slurm_empty
}

slurm_holder() { slurm_submit -N2 -n2 --gres=gpu:h100:8 "$place/jobs/holder.sh"; }

# A full cluster with a long queue; prints "idle_percent pass_ms pass_max_ms freed_s".
slurm_pending() {
    local count loop loops=() cpu idle freed
    rm -f "$place/holders"
    for ((count = 0; count < nodes / 2; count++)); do slurm_holder >/dev/null; done
    eventually "the cluster is full" has_lines "$place/holders" $((nodes / 2))
    say "slurm: submitting $pending gangs, which takes minutes"
    for loop in 1 2 3 4; do
        (for ((count = loop; count <= pending; count += 4)); do slurm_holder >/dev/null || exit 1; done) &
        loops+=($!)
    done
    for loop in "${loops[@]}"; do wait "$loop" || fail "Slurm refused a job"; done
    sleep 5
    cpu=$(cpu_ms "$slurmctld")
    sdiag --reset >/dev/null
    sleep 15
    idle=$(calc "($(cpu_ms "$slurmctld") - $cpu) / 150")
    freed=$(for ((count = 0; count < 10; count++)); do slurm_free; done | median)
    # The first such lines are those of the main scheduler; then come the backfill scheduler's.
    sdiag >"$place/sdiag"
    echo "$idle $(calc "$(cycle_us Mean) / 1000") $(calc "$(cycle_us Max) / 1000") $freed"
}

cycle_us() { awk -v which="$1" '$1 == which && $2 == "cycle:" { print $3; exit }' "$place/sdiag"; }

# Ends one gang of two nodes; seconds until the next of the queue runs.
slurm_free() {
    local lines began pid
    lines=$(wc -l <"$place/holders")
    pid=$(sed -n "$((lines - nodes / 2 + 1))p" "$place/holders" | cut -d' ' -f2)
    began=$EPOCHREALTIME
    kill "$pid"
    eventually "the next gang runs" has_lines "$place/holders" $((lines + 1))
    started_after "$place/holders" "$began"
}
