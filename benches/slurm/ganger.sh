# Ganger on four virtual nodes: server and one agent process a node, as `ganger up` starts them. Sourced by `run`.

ganger_start() {
    export XDG_RUNTIME_DIR=$place/run XDG_DATA_HOME=$place/data XDG_CONFIG_HOME=$place/config
    export GANGER_SERVER=unix:$place/ganger/server/ganger.sock
    unset GANGER_TOKEN GANGER_TOKEN_FILE
    mkdir -p "$place/run" "$place/work"
    "$ganger" up --nodes 4xdgx-h100 --agents-apart --data-dir "$place/ganger" --listen 127.0.0.1:0 >"$place/ganger.log" 2>&1 &
    server=$!
    daemons+=($server)
    eventually "4 nodes of Ganger are ready" ganger_ready
}

ganger_ready() { [ "$("$ganger" nodes 2>/dev/null | grep -cw ready)" -ge 4 ]; }
ganger_empty() { [ "$("$ganger" jobs -o json | tr -d ' \n')" = "[]" ]; }
ganger_submit() { (cd "$place/work" && "$ganger" submit "$@"); }
ganger_array() { ganger_submit "$place/jobs/array.sh" >/dev/null; }
ganger_has_arrays() { "$ganger" submit --dry-run "$place/jobs/array.sh" >/dev/null 2>&1; }

ganger_throughput() { throughput "$server" ganger_empty "$@"; }

# gang NAME WORKERS CLASS SCRIPT
ganger_gang() {
    printf '%s\n' "name: $1" "gang: {workers: $2}" "resources: {gpus: 8, cpus: 16}" "priority: $3" \
        "checkpoint: {signal: SIGUSR1, grace: 20s}" "command: [bash, $place/jobs/$4]" | ganger_submit - >/dev/null
}

# Seconds from before the call of the client until all four ranks of the urgent job run.
ganger_urgent() {
    local began
    rm -f "$place/victims" "$place/urgent"
    ganger_gang victim-1 2 P3 victim.sh
    ganger_gang victim-2 2 P3 victim.sh
    eventually "the victims run" has_lines "$place/victims" 4
    sleep 2
    began=$EPOCHREALTIME
    ganger_gang urgent 4 P0 urgent.sh
    eventually "the urgent job runs" has_lines "$place/urgent" 4
    started_after "$place/urgent" "$began"
    eventually "the urgent job has ended" ganger_knows_end_of urgent
    "$ganger" cancel victim-1 victim-2 >/dev/null
    eventually "nothing is left" ganger_empty
}

ganger_knows_end_of() { ! "$ganger" jobs | grep -qw "$1"; }

# The same as in Slurm with virtual agents in one process; leaves the figures in $place/pending.
ganger_pending() { "${bench[@]}" "$pending" "$nodes" 20 60 | tee "$place/pending" >&2; }

# figure LINE_BEGINS PATTERN: the first match of the pattern in that line.
figure() { grep -m1 "^$1" "$place/pending" | grep -oE "$2" | head -n1; }

# A time with its unit, as the benchmark prints it, in ms.
in_ms() {
    case $1 in
        *µs) calc "${1%µs} / 1000" 2 ;;
        *ms) calc "${1%ms}" 2 ;;
        *s) calc "${1%s} * 1000" 2 ;;
    esac
}
