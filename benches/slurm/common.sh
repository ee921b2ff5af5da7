# What both systems are measured with. Times are seconds with microseconds, as the shell and the jobs read them from one clock.
# Sourced by `run`, which sets `place`, `jobs` and `deadline_s`.

say() { printf '%s\n' "$*" >&2; }
fail() { say "error: $*"; exit 1; }

# eventually WHAT COMMAND…: until the command succeeds.
eventually() {
    local what=$1 began=$SECONDS
    shift
    until "$@"; do
        [ $((SECONDS - began)) -lt "$deadline_s" ] || fail "waited $deadline_s s until $what, in vain; the logs are in $place"
        sleep 0.1
    done
}

has_lines() { [ -e "$1" ] && [ "$(wc -l <"$1")" -ge "$2" ]; }

# CPU time of a process so far, in ms: utime and stime, the 14th and 15th field of its stat. What it started is not counted.
cpu_ms() {
    local stat
    stat=$(<"/proc/$1/stat")
    # shellcheck disable=SC2086
    set -- ${stat##*) }
    echo $(((${12} + ${13}) * 1000 / $(getconf CLK_TCK)))
}

calc() { awk "BEGIN { printf \"%.${2:-1}f\\n\", $1 }"; }
median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
seconds_since() { calc "$EPOCHREALTIME - $1" 3; }

# submit_all COMMAND…: one call of the client for each job, from four loops at once.
submit_all() {
    local loop loops=() number
    for loop in 1 2 3 4; do
        (for ((number = loop; number <= jobs; number += 4)); do "$@" "$place/jobs/$number.sh" >/dev/null || exit 1; done) &
        loops+=($!)
    done
    for loop in "${loops[@]}"; do wait "$loop" || fail "a submission was refused"; done
}

# One line each; both systems read the same scripts.
write_jobs() {
    local number
    mkdir -p "$place/jobs"
    for ((number = 1; number <= jobs; number++)); do
        printf '#!/bin/bash\n#SBATCH -J job-%d\n#SBATCH -c 14\necho "$EPOCHREALTIME" >>%s/ended\n' "$number" "$place" >"$place/jobs/$number.sh"
    done
    printf '#!/bin/bash\n#SBATCH -J all\n#SBATCH -a 1-%d\n#SBATCH -c 14\necho "$EPOCHREALTIME" >>%s/ended\n' "$jobs" "$place" >"$place/jobs/array.sh"
    # Saves at once when it is asked to, and wants to go on later.
    cat >"$place/jobs/victim.sh" <<'END'
#!/bin/bash
trap 'exit 85' USR1
echo "$EPOCHREALTIME" >>PLACE/victims
while :; do sleep 5 & wait $!; done
END
    printf '#!/bin/bash\necho "$EPOCHREALTIME" >>%s/urgent\n' "$place" >"$place/jobs/urgent.sh"
    # Holds its nodes until its sleep is killed.
    printf '#!/bin/bash\nsleep 100000 &\necho "$EPOCHREALTIME $!" >>%s/holders\nwait\n' "$place" >"$place/jobs/holder.sh"
    sed -i "s|PLACE|$place|" "$place/jobs/victim.sh"
}

# throughput SERVER_PID IS_EMPTY SUBMIT…: prints "jobs/s submitted/s cpu_ms_a_job": from before the first call of the client until the system
# itself says that nothing is left.
throughput() {
    local server=$1 is_empty=$2 began cpu submitted took
    shift 2
    rm -f "$place/ended"
    cpu=$(cpu_ms "$server") began=$EPOCHREALTIME
    "$@"
    submitted=$(seconds_since "$began")
    eventually "$jobs jobs have run" has_lines "$place/ended" "$jobs"
    eventually "$jobs jobs have ended" "$is_empty"
    took=$(seconds_since "$began")
    echo "$(calc "$jobs / $took") $(calc "$jobs / $submitted") $(calc "($(cpu_ms "$server") - $cpu) / $jobs" 2)"
}

# The last start noted in the file named, counted from a moment.
started_after() { calc "$(sort -n "$1" | tail -n1 | cut -d" " -f1) - $2" 3; }

# Kills what this run started and nothing else.
end_all() {
    local pid
    for pid in "${daemons[@]}"; do kill "$pid" 2>/dev/null; done
    for _ in $(seq 50); do [ -n "$(jobs -r -p)" ] || break; sleep 0.1; done
    for pid in $(marked); do kill -9 "$pid" 2>/dev/null; done
    wait 2>/dev/null
    daemons=()
}

marked() {
    local process
    for process in /proc/[0-9]*; do
        [ "${process#/proc/}" = "$$" ] || ! is_marked "$process" 2>/dev/null || echo "${process#/proc/}"
    done
}

# Nearly all have the run's mark in their environment. Keepers have an environment of their own, and name their folder; Slurm's step daemons
# write their title over theirs, and have their files open.
is_marked() {
    grep -qzFx "BENCH_PLACE=$place" "$1/environ" && return
    case $(<"$1/comm") in
        slurmstepd) [ -n "$(find "$1/fd" -lname "$place/*" -print -quit)" ] ;;
        *) [ "$(readlink "$1/exe")" = "$ganger" ] && grep -qzF "$place/" "$1/cmdline" ;;
    esac
}
