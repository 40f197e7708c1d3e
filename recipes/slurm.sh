#!/bin/bash
# A recipe, or one run of its sweep, as a SLURM job on one node or several.
#
# Needs:   olr with OpenRLHF in .venv (or OLR_VENV), and on several nodes a file system that all of them see, for the
#          environment, the models (HF_HOME) and the run directories. Compute nodes without internet: fetch the
#          model (hf download Qwen/Qwen3-4B-Base, with that HF_HOME) and the recipe's data on a node that has it.
# Launch:  sbatch recipes/slurm.sh paper/qwen3-4b                       one run, on one node of 8 GPUs
#          sbatch --array=0-19 recipes/slurm.sh paper/noise-ratios      a sweep, one job per run; 0-19%4: four at a time
#          sbatch --array=0-3 --nodes=2 recipes/slurm.sh paper/qwen3-8b each run on two nodes
#          Further words go to olr train: sbatch recipes/slurm.sh paper/qwen3-4b --set seed=1
#          GPUs and nodes are those of the job, unless they are set: --set engine.gpus_per_node=4 leaves the others idle.
# Expect:  the run in runs/<recipe> (or RUN_DIR), a sweep's in runs/<name>/<run>; its output in olr-<job>.txt.
#          Before its time limit a job ends the step, is queued again, and continues from its checkpoint.
#          OLR_HEAD_ADDRESS=ADDRESS sets the first node's address if it has several networks and you do not want the
#          one that leads to the other nodes. Ray's temporary files go to /tmp/olr-<job>, or below RAY_TMPDIR.
# Edit:    partition, account and time, as your cluster wants them; they can be options of sbatch as well.
#SBATCH --job-name=olr
#SBATCH --output=olr-%j.txt
#SBATCH --open-mode=append
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-gpu=8
#SBATCH --mem=0
#SBATCH --time=12:00:00
#SBATCH --requeue
#SBATCH --signal=B:TERM@900

set -euo pipefail

if [ $# -eq 0 ]; then
    echo "usage: sbatch [--array=FIRST-LAST] [--nodes=N] slurm.sh RECIPE [options of olr train]" >&2
    exit 2
fi
recipe=$1
shift
# shellcheck disable=SC1091
source "${OLR_VENV:-.venv}/bin/activate"

gpus=${SLURM_GPUS_ON_NODE:?run this with sbatch}
nodes=${SLURM_JOB_NUM_NODES:-1}
options=(--set engine.gpus_per_node="$gpus" --set engine.nodes="$nodes")

# SLURM signals only this shell, 15 minutes before the time limit: a step should take less.
olr=
requeue() { scontrol requeue "$SLURM_JOB_ID"; }
stop() {
    if [ -n "$olr" ]; then kill -TERM "$olr" 2>/dev/null || true; else requeue; exit 143; fi
}
trap stop TERM

# Ray's sockets need a folder with a short name; that of TMPDIR is often too long.
export RAY_TMPDIR=${RAY_TMPDIR:-/tmp/olr-$SLURM_JOB_ID}
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "/tmp/olr-$SLURM_JOB_ID"' EXIT

# A sweep resumes automatically; a single run needs --resume.
if [ -n "${SLURM_ARRAY_TASK_ID:-}" ]; then
    options+=(--sweep --index "$SLURM_ARRAY_TASK_ID")
    if [ -n "${RUN_DIR:-}" ]; then options+=(--run-dir "$RUN_DIR"); fi
else
    run=${RUN_DIR:-runs/$(basename "$recipe" .yaml)}
    options+=(--run-dir "$run")
    if [ -e "$run/manifest.json" ]; then options+=(--resume); fi
fi

# The address under which other nodes reach this one: the source of its packets to them. The node's name may resolve to
# 127.0.1.1 (Debian's /etc/hosts), which every other node would take for itself.
head_address() {
    local found
    found=${OLR_HEAD_ADDRESS:-$(python -c '
import socket, sys
try:
    probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    probe.connect((sys.argv[1], 9))  # UDP: connecting sends nothing
    print(probe.getsockname()[0])
except OSError:
    pass
' "$1")}
    case $found in
        '' | 127.*) found=$(hostname --all-ip-addresses | tr ' ' '\n' | awk '/^[0-9.]+$/ && !/^127/ && !n++') ;;
    esac
    case $found in
        '' | 127.*)
            echo "no address of this node is known that $1 can reach; name it with OLR_HEAD_ADDRESS" >&2
            return 1
            ;;
    esac
    echo "$found"
}

# On one node olr starts its own Ray; several nodes need a Ray cluster that is already running.
if [ "$nodes" -gt 1 ]; then
    head=${SLURMD_NODENAME:-$(hostname -s)}
    other=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | awk -v own="$head" '$0 != own && !n++')
    # Two jobs may share a node, so each has its own ports, for Ray's head and for its agent on every node.
    address=$(head_address "$other"):$((20000 + SLURM_JOB_ID % 10000))
    resources=(--num-gpus="$gpus" --num-cpus="${SLURM_CPUS_ON_NODE:-$gpus}" --disable-usage-stats --block
        --dashboard-agent-listen-port=$((30000 + SLURM_JOB_ID % 2700)))
    srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" \
        ray start --head --node-ip-address="${address%:*}" --port="${address#*:}" "${resources[@]}" &
    until ray status --address "$address" >/dev/null 2>&1; do
        kill -0 $! || { echo "Ray did not start on $head" >&2; exit 1; }
        sleep 2
    done
    srun --overlap --nodes=$((nodes - 1)) --ntasks=$((nodes - 1)) --exclude="$head" \
        ray start --address="$address" "${resources[@]}" &
    python - "$address" "$nodes" <<'PYTHON'
import sys, time, ray

ray.init(address=sys.argv[1], log_to_driver=False)
deadline = time.monotonic() + 300
while (alive := sum(node["Alive"] for node in ray.nodes())) < int(sys.argv[2]):
    if time.monotonic() > deadline:
        sys.exit(f"{alive} of {sys.argv[2]} nodes joined Ray's cluster within five minutes")
    time.sleep(2)
PYTHON
    options+=(--set engine.ray_address="$address")
fi

olr train "$recipe" "${options[@]}" "$@" & # the last value of a key counts, so the user's wins
olr=$!
status=0
wait $olr || status=$?
while kill -0 $olr 2>/dev/null; do # the signal ended only the wait, not olr
    status=0
    wait $olr || status=$?
done
if [ $status -eq 143 ]; then requeue; fi
exit $status
