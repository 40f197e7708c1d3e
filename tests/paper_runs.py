"""Made-up runs for the paper's tables: one step each, with the held-out accuracies and scores that a test chooses."""

import json

from histories import arms_of, write_history
from samples import json_lines

from olr_cli.analysis.tables.paper import PaperTable
from olr_cli.evaluation.benchmark import PAPER, find_benchmark
from olr_cli.evaluation.scores import Score, averages
from olr_cli.recipe.methods import METHODS
from olr_cli.tables import as_json

TINY = {"prompts": 4, "prompts_per_step": 4, "epochs": 1, "store_rollouts": False}
OLR = {"name": "olr", "slope_threshold": 0.02, "warmup_epochs": 0}
NINE = {name: 0.2 + 0.05 * place for place, name in enumerate(PAPER)}


def write_run(
    path, method="grpo", end=0.6, *, start=0.4, seed=1, noise="active", **changes
):
    """Write a run of one step with held-out accuracy `start` before and `end` after training; None: not measured.

    Args:
        path: the new run directory.
        method: name of the method, or its section.
        end: the accuracy after training.
        start: the accuracy before.
        seed: the recipe's.
        noise: type of the noise.
        changes: other arguments of `histories.write_history`.
    """
    section = {"name": method} if isinstance(method, str) else method
    run = write_history(path, method=section, seed=seed, noise=noise, **{**TINY, **changes})
    lines = [
        {"step": 0, "epoch": 0, "eval/avg": start},
        {"step": 1, "epoch": 1, "eval/avg": end},
    ]
    lines = [
        {key: value for key, value in line.items() if value is not None} for line in lines
    ]
    json_lines(run / "metrics.jsonl", *lines)
    return run


def write_grid(folder):
    """Write runs with two seeds of every method except Co-Reward into a folder, and return it.

    Among them are runs that do not belong in the paper's table: a mixed method, and another share of noise.
    """
    ends = {
        "ttrl": 0.7, "self_certainty": 0.2, "token_entropy": 0.1, "sequence_entropy": 0.05,
        "grpo": 0.5, "confidence_penalty": 0.55, "label_smoothing": 0.45, "small_loss_selection": 0.3,
        "random_selection": 0.48, "olr": 0.75,
    }  # fmt: skip
    for seed in (1, 2):
        for method, end in ends.items():
            for noise in (
                ("active",) if not METHODS[method].needs_labels else ("active", "inactive")
            ):
                # Seeds and methods differ a little, so that tables have a spread to show.
                wobble = 0.0012 * seed * len(method) + (0.1 if noise == "inactive" else 0)
                section = OLR if method == "olr" else method
                write_run(
                    folder / f"{noise}-{method}-{seed}",
                    section,
                    end + wobble,
                    noise=noise,
                    seed=seed,
                )
        write_run(folder / f"mix-{seed}", OLR | {"penalty_weight": 0.01}, 0.8, seed=seed)
        write_run(folder / f"low-{seed}", "grpo", 0.6 + 0.01 * seed, seed=seed, ratio=0.25)
        write_run(folder / f"low-olr-{seed}", OLR, 0.7, seed=seed, ratio=0.25)
    return folder


def table_of(*places, name="baselines", models=()):
    """Return the paper's table `name`, filled from the runs below these paths.

    `models` are folders of evaluations of policies before training.
    """
    return PaperTable(name, arms_of(*places), models, with_published=True)


def row(table, label, block=None):
    """Return the row of a table with this label, and in this block if one is given; there must be exactly one."""
    (found,) = (
        each for each in table.rows if each.name == label and block in (None, each.block)
    )
    return found


def write_evaluated(folder, shares, *, name="model", step=None, problems=None, samples=1):
    """Write the files of an evaluation that tables read, and return its folder.

    Args:
        folder: the new folder.
        shares: accuracy of each benchmark, by its name.
        name: the model's.
        step: the step of a run that was evaluated; None: a model that is of no run.
        problems: number of problems evaluated of each benchmark; None: all.
        samples: number of samples per problem.
    """
    folder.mkdir(parents=True)
    scores = []
    for benchmark, share in shares.items():
        known = find_benchmark(benchmark)
        whole = problems or known.problems or 7
        kept = {
            "pass_at": {samples: share},
            "majority": share,
            "truncated": 0.0,
            "missing_answers": 0.0,
        }
        score = Score(
            benchmark, known.title, known.distribution, whole, known.problems, samples, share, None, **kept,
            mean_tokens=9.0, by_problem={},
        )  # fmt: skip
        scores.append(score)
    origin = {} if step is None else {"run": "run", "step": step, "chosen": "last"}
    stored = {"name": name, "origin": origin, "scores": as_json(scores)}
    (folder / "scores.json").write_text(json.dumps(stored | {"averages": averages(shares)}))
    (folder / "evaluation.json").write_text("{}")
    return folder
