"""The recipes of the paper's tables, and the SLURM script that runs them."""

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise, product

import pytest
from cases import each

from olr_cli.engines.openrlhf.checks import check_batches, check_gpus
from olr_cli.recipe.checks import recipe_warnings, step_warnings
from olr_cli.recipe.layers import bundled_recipes, load_recipe
from olr_cli.recipe.methods import OlrMethod
from olr_cli.recipe.section import flatten
from olr_cli.recipe.sweep import expand_sweep

FOLDER = bundled_recipes() / "paper"
FILES = sorted(FOLDER.glob("*.yaml"))
SCRIPT = bundled_recipes() / "slurm.sh"

QWEN_4B, QWEN_8B = "Qwen/Qwen3-4B-Base", "Qwen/Qwen3-8B-Base"
LLAMA_8B = "deepseek-ai/DeepSeek-R1-Distill-Llama-8B"
NOISE = ("inactive", "active")
GRPO, OLR = "grpo", "olr delta 0.05 T 5"
SLOPES = [
    GRPO,
    *(
        f"olr delta {delta} T 5"
        for delta in ("0.0", "0.025", "0.05", "0.075", "0.1", "0.2")
    ),
]
WARMUPS = [GRPO, *(f"olr delta 0.05 T {epochs}" for epochs in (3, 5, 7, 9))]
ABLATIONS = [OLR, "olr_without_slope T 5", f"olr_without_consistency{OLR[3:]}"]
UNSUPERVISED = ("ttrl", "co_reward", "self_certainty", "token_entropy", "sequence_entropy")
ROBUST = (
    "confidence_penalty",
    "label_smoothing",
    "small_loss_selection",
    "random_selection",
)

# What the paper's tables print, a tuple a row: policy, prompts, noise, ratio (None: the marks of the published file,
# drawn at 0.5), method. Rows of untrained policies are left out.
PUBLISHED = {
    "noise-ratios": set(
        product([QWEN_4B], [800], NOISE, ["0.1", "0.3", "0.5", "0.7", "0.9"], [GRPO, OLR])
    ),
    "scale-4k": set(product([QWEN_4B], [4000], NOISE, [None], [GRPO, OLR])),
    "qwen3-8b": set(product([QWEN_8B], [800], NOISE, ["0.5"], [GRPO, OLR])),
    "llama-8b": set(product([LLAMA_8B], [800], NOISE, ["0.5"], [GRPO, OLR])),
    "slope-sensitivity": set(product([QWEN_4B], [800], NOISE, ["0.5"], SLOPES)),
    "warmup-sensitivity": set(product([QWEN_4B], [800], NOISE, ["0.5"], WARMUPS)),
    "ablation": set(product([QWEN_4B], [800], NOISE, ["0.5"], ABLATIONS)),
    "baselines": {
        *product([QWEN_4B], [800], NOISE, ["0.5"], [GRPO, *ROBUST, OLR]),
        *product([QWEN_4B], [800], ["none"], ["0"], UNSUPERVISED),
    },
}


def row(recipe):
    """A recipe as a row of `PUBLISHED`."""
    method = recipe.method.name
    if isinstance(recipe.method, OlrMethod):
        missing = {"slope", "consistency"} - set(recipe.method.criteria)
        delta = "" if "slope" in missing else f" delta {recipe.method.slope_threshold}"
        method += (
            "".join(f"_without_{name}" for name in missing)
            + f"{delta} T {recipe.method.warmup_epochs}"
        )
    ratio = None if recipe.noise.ratio is None else str(recipe.noise.ratio)
    noise = recipe.noise.type if recipe.noise.ratio != 0 else "none"
    return recipe.model.path, recipe.data.limit, noise, ratio, method


def runs(name, *overrides):
    """The recipes of a file: those of its sweep, or the one that it is."""
    alone = load_recipe(f"paper/{name}", overrides)
    sweep = [] if alone.sweep is None else expand_sweep(f"paper/{name}", overrides)
    return [run.recipe for run in sweep] or [alone]


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_sweep_trains_the_rows_of_its_table_once_each_but_not_the_main_grids_runs_without_olr(
    name,
):
    rows = [row(recipe) for recipe in runs(name)]
    assert len(rows) == len(set(rows))
    elsewhere = PUBLISHED[name] - set(rows)
    assert set(rows) <= PUBLISHED[name]
    assert elsewhere <= {
        shared for shared in PUBLISHED["noise-ratios"] if shared[4] == GRPO
    }
    assert bool(elsewhere) == name.endswith("sensitivity")


def test_every_file_is_a_table_or_the_default_run_which_the_main_grid_has_too():
    default = {"qwen3-4b", "qwen3-4b-one-gpu"}
    assert {path.stem for path in FILES} == PUBLISHED.keys() | default
    assert {row(recipe) for name in default for recipe in runs(name)} <= PUBLISHED[
        "noise-ratios"
    ]


@each(
    "name, numbers",
    ("slope-sensitivity", (2, 8)),
    ("warmup-sensitivity", (1, 5)),
    ("ablation", (0, 3)),
    ("baselines", (5, 10, 11, 16)),
)
def test_the_runs_that_a_header_calls_the_main_grids_are_the_same_runs(name, numbers):
    main = {recipe.digest() for recipe in runs("noise-ratios")}
    assert [
        number for number, recipe in enumerate(runs(name)) if recipe.digest() in main
    ] == list(numbers)
    skipped = [part.split("-") for part in array_without_them(name).split(",")]
    kept = [
        number
        for first, *last in skipped
        for number in range(int(first), int((last or [first])[0]) + 1)
    ]
    assert sorted([*kept, *numbers]) == list(range(len(runs(name))))


def array_without_them(name):
    """The job array that a header recommends to those who have trained the main grid."""
    header = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    return header.rpartition("--array=")[2].split()[0]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_run_has_the_papers_settings_on_openrlhf_and_no_warning(path):
    for recipe in runs(path.stem):
        train = recipe.train
        assert recipe.engine.name == "openrlhf"
        assert (train.epochs, train.prompts_per_step, train.mini_batch_prompts) == (
            10,
            160,
            32,
        )
        assert (
            train.rollouts_per_prompt,
            train.max_new_tokens,
            train.max_prompt_tokens,
        ) == (
            8,
            4096,
            2048,
        )
        assert (train.learning_rate, train.kl_weight, train.temperature) == (
            1e-6,
            1e-3,
            1.0,
        )
        assert train.loss_average == "sequence"
        assert recipe_warnings(recipe) == []
        assert step_warnings(recipe, recipe.data.limit) == []
        # gradients are added up in float32, as the authors did
        assert flatten(recipe.engine.flags)["ds.grad_accum_dtype"] == "fp32"


@pytest.mark.parametrize("nodes", [1, 2, 4])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_steps_divide_into_whole_batches_on_every_gpu_of_one_node_or_several(path, nodes):
    for recipe in runs(path.stem, f"engine.nodes={nodes}"):
        check_batches(recipe, recipe.data.limit)
        check_gpus(recipe, recipe.engine.gpus_per_node * nodes)
        samples = recipe.train.prompts_per_step * recipe.train.rollouts_per_prompt
        assert (
            samples % (recipe.engine.micro_batch_samples * recipe.engine.policy_gpus) == 0
        )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_header_names_the_whole_sweep_as_a_job_array(path):
    count, text = len(runs(path.stem)), path.read_text(encoding="utf-8")
    array = f"--array=0-{count - 1} " if count > 1 else ""
    assert f"{array}recipes/slurm.sh paper/{path.stem if array else ''}" in text


@pytest.fixture
def cluster(tmp_path):
    """A function that runs slurm.sh among stand-ins which note how they are called, and ends with its status."""
    tools = tmp_path / "venv" / "bin"
    tools.mkdir(parents=True)
    calls = tmp_path / "calls"
    note = f'echo "$(basename "$0") $*" >> {calls}\n'
    bodies = {
        "olr": note
        + "[ -z \"${SLOW:-}\" ] || { trap 'exit 143' TERM; touch running; while :; do sleep 0.05; done; }",
        "srun": note + "exec sleep 60",
        "hostname": 'echo "fe80::1 ${OWN_ADDRESSES-127.0.1.1 10.0.0.1 10.0.0.9}"',
        "scontrol": note + '[ "$1" != show ] || printf "%s\\n" first second third',
        # The script asks Ray in Python whether all nodes are there; so its end waits for both of srun's calls.
        # Asked with -c, it is for the address from which packets to another node come.
        "python": '[ "$1" != -c ] || { echo "${ROUTE:-}"; echo "route to $3" >> '
        + f"{calls}; exit; }}\n"
        + note
        + f"for _ in {{1..400}}; do [ $(grep -c ^srun {calls}) -lt 2 ] || exit 0; sleep 0.05; done",
        "ray": note,
    }
    for name, body in bodies.items():
        (tools / name).write_text(f"#!/bin/bash\n{body}\n")
        (tools / name).chmod(0o755)
    (tools / "activate").write_text(f'PATH="{tools}:$PATH"\n')

    def start(*words, **variables):
        calls.write_text("")
        environment = {
            "PATH": os.environ["PATH"],
            "OLR_VENV": str(tools.parent),
            "SLURM_JOB_ID": "41234",
        }
        environment |= {
            "SLURM_GPUS_ON_NODE": "8",
            "SLURM_JOB_NODELIST": "first,second,third",
        } | variables
        ends = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(
            ["bash", str(SCRIPT), *words], cwd=tmp_path, env=environment, **ends
        )

    start.calls = lambda: calls.read_text().splitlines()
    start.folder = tmp_path
    return start


def test_a_task_of_a_job_array_trains_its_run_of_the_sweep_on_the_gpus_it_has(cluster):
    job = cluster(
        "paper/noise-ratios",
        "--set",
        "seed=1",
        SLURM_ARRAY_TASK_ID="7",
        SLURM_GPUS_ON_NODE="4",
    )
    assert job.wait(120) == 0
    assert cluster.calls() == [
        "olr train paper/noise-ratios --set engine.gpus_per_node=4 --set engine.nodes=1 --sweep --index 7 --set seed=1"
    ]


def test_what_the_user_sets_comes_after_what_the_job_has_and_wins(cluster):
    assert cluster("paper/qwen3-4b", "--set", "engine.gpus_per_node=4").wait(120) == 0
    (call,) = cluster.calls()
    recipe, *words = call.removeprefix("olr train ").split()
    settings = [value for name, value in pairwise(words) if name == "--set"]
    assert settings[0] == "engine.gpus_per_node=8"
    assert load_recipe(recipe, settings).engine.gpus_per_node == 4


def test_a_job_of_its_own_goes_on_where_it_stopped(cluster):
    run = "--run-dir runs/qwen3-4b"
    settings = (
        f"olr train paper/qwen3-4b --set engine.gpus_per_node=8 --set engine.nodes=1 {run}"
    )
    assert cluster("paper/qwen3-4b").wait(120) == 0
    assert cluster.calls() == [settings]
    (cluster.folder / "runs" / "qwen3-4b").mkdir(parents=True)
    (cluster.folder / "runs" / "qwen3-4b" / "manifest.json").touch()
    assert cluster("paper/qwen3-4b").wait(120) == 0
    assert cluster.calls() == [f"{settings} --resume"]


def test_several_nodes_get_one_ray_cluster_before_olr_starts(cluster):
    nodes = {"SLURM_JOB_NUM_NODES": "3", "SLURMD_NODENAME": "first"}
    assert cluster("paper/qwen3-8b", SLURM_ARRAY_TASK_ID="0", **nodes).wait(120) == 0
    calls = cluster.calls()
    address = "10.0.0.1:21234"
    head, others = sorted(
        (c for c in calls if c.startswith("srun")), key=lambda call: "--exclude" in call
    )
    assert (
        "--nodelist=first ray start --head --node-ip-address=10.0.0.1 --port=21234" in head
    )
    assert "--dashboard-agent-listen-port=30734" in head and "port=30734" in others
    assert f"--nodes=2 --ntasks=2 --exclude=first ray start --address={address}" in others
    assert f"python - {address} 3" in calls
    assert f"ray status --address {address}" in calls
    assert calls[-1].startswith(
        "olr train paper/qwen3-8b --set engine.gpus_per_node=8 --set engine.nodes=3 "
    )
    assert calls[-1].endswith(f"--sweep --index 0 --set engine.ray_address={address}")


@each(
    "variables, address",
    ({"ROUTE": "10.0.0.7"}, "10.0.0.7"),
    ({"ROUTE": "127.0.1.1"}, "10.0.0.1"),
    ({"ROUTE": ""}, "10.0.0.1"),
    ({"ROUTE": "10.0.0.7", "OLR_HEAD_ADDRESS": "10.9.0.1"}, "10.9.0.1"),
)
def test_ray_gets_an_address_that_other_nodes_reach(cluster, variables, address):
    nodes = {"SLURM_JOB_NUM_NODES": "3", "SLURMD_NODENAME": "first"}
    assert cluster("paper/qwen3-4b", **nodes, **variables).wait(120) == 0
    calls = cluster.calls()
    assert any(
        f"ray start --head --node-ip-address={address} --port=21234" in call
        for call in calls
    )
    assert calls[-1].endswith(f"--set engine.ray_address={address}:21234")
    assert ("route to second" in calls) == ("OLR_HEAD_ADDRESS" not in variables)


def test_a_node_without_such_an_address_is_told_how_to_name_it(cluster):
    nodes = {
        "SLURM_JOB_NUM_NODES": "3",
        "SLURMD_NODENAME": "first",
        "OWN_ADDRESSES": "127.0.1.1",
    }
    job = cluster("paper/qwen3-4b", **nodes)
    assert job.wait(120) == 1
    assert "OLR_HEAD_ADDRESS" in job.stderr.read()
    assert not any(call.startswith(("srun", "olr")) for call in cluster.calls())


def test_the_address_is_the_source_of_packets_to_the_other_node():
    program = (
        SCRIPT.read_text(encoding="utf-8")
        .partition("python -c '")[2]
        .partition('\' "$1"')[0]
    )
    for other, found in (("127.0.0.1", "127.0.0.1\n"), ("no.such.host.invalid", "")):
        asked = [sys.executable, "-c", program, other]
        assert (
            subprocess.run(asked, capture_output=True, text=True, check=True).stdout
            == found
        )


def test_a_job_whose_time_is_nearly_over_is_stopped_and_queued_again(cluster):
    job = cluster("paper/qwen3-4b", SLOW="yes")
    deadline = time.monotonic() + 120
    while not (cluster.folder / "running").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    job.send_signal(signal.SIGTERM)
    assert job.wait(120) == 143
    assert cluster.calls()[-1] == "scontrol requeue 41234"


def test_a_job_whose_time_is_over_while_ray_starts_is_queued_again(cluster):
    nodes = {"SLURM_JOB_NUM_NODES": "3", "SLURMD_NODENAME": "first", "ROUTE": "10.0.0.7"}
    (cluster.folder / "venv" / "bin" / "ray").write_text(
        "#!/bin/bash\ntouch asked; exit 1\n"  # no Ray answers
    )
    job = cluster("paper/qwen3-4b", **nodes)
    deadline = time.monotonic() + 120
    while not (cluster.folder / "asked").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    job.send_signal(signal.SIGTERM)
    assert job.wait(120) == 143
    assert cluster.calls()[-1] == "scontrol requeue 41234"
    assert not any(call.startswith("olr") for call in cluster.calls())


def test_rays_temporary_files_have_a_short_place_of_the_job(cluster):
    note = "#!/bin/bash\necho $RAY_TMPDIR > place\n"
    (cluster.folder / "venv" / "bin" / "olr").write_text(note)
    for given, place in (({}, "/tmp/olr-41234"), ({"RAY_TMPDIR": "/own"}, "/own")):
        assert cluster("paper/qwen3-4b", TMPDIR="/a/long/one", **given).wait(120) == 0
        assert (cluster.folder / "place").read_text().strip() == place


def test_the_script_wants_a_recipe(cluster):
    job = cluster()
    assert job.wait(120) == 2
    assert "usage" in job.stderr.read()
