"""Files of the right name and the wrong kind or content: a sentence that names them, and nothing read as data."""

import os
import re
import shutil
import time

import polars as pl
import pyarrow.parquet as pq
import pytest
from forks import Plan, kind_of_operation
from outcomes import differences, reopen
from test_damage import contents, require_error

from olr_cli.answers import Judge
from olr_cli.errors import UserError
from olr_cli.files import write_text
from olr_cli.runs.store import scan_labels, scan_rollouts, stored_history


def first_shard(run, table):
    return min((run / table).iterdir())


def rewrite(shard, change):
    """The same file with other rows, all marks kept."""
    table = pq.read_table(shard)
    changed = (
        change(pl.DataFrame(table))
        .to_arrow()
        .cast(table.schema)
        .replace_schema_metadata(table.schema.metadata)
    )
    pq.write_table(changed, shard)


WRONG_ROWS = {
    "a row twice": (
        "labels",
        lambda rows: pl.concat([rows, rows.head(1)]),
        "a prompt's visit twice",
    ),
    "another step": (
        "labels",
        lambda rows: rows.with_columns(pl.col("step") + 1000),
        "rows of another step",
    ),
    "no rows": ("labels", lambda rows: rows.head(0), "has no rows"),
    "a visit less": (
        "rollouts",
        lambda rows: rows.slice(4),
        "lacks rollouts of its step's labels, or has others",
    ),
}


@pytest.mark.parametrize("name", WRONG_ROWS)
def test_a_shard_with_rows_that_no_run_has_is_named(name, run):
    table, change, message = WRONG_ROWS[name]
    scan_labels(run), scan_rollouts(run)
    shard = first_shard(run, table)
    rewrite(shard, change)
    with pytest.raises(UserError, match=message) as caught:
        (scan_labels if table == "labels" else scan_rollouts)(run)
    assert str(shard) in str(caught.value)


OTHER_VISITS = {
    "later": pl.col("visit") + 1,
    "before the first": pl.col("visit") * 0,
    "of another prompt": pl.col("visit") + pl.int_range(pl.len()) * 7,
}


@pytest.mark.parametrize("name", OTHER_VISITS)
@pytest.mark.parametrize(
    "tables", [["labels"], ["rollouts"], ["labels", "rollouts"]], ids="-".join
)
def test_a_resume_reads_no_labels_of_other_visits_than_the_rollouts_or_than_follow(
    name, tables, run
):
    for table in tables:
        shard = max((run / table).iterdir())
        samples = 4 if table == "rollouts" else 1

        def change(rows, samples=samples):
            visits = rows.gather_every(samples).select(OTHER_VISITS[name]).to_series()
            return rows.with_columns(
                visit=visits.gather(pl.int_range(rows.height, eager=True) // samples)
            )

        rewrite(shard, change)
    with (
        pytest.raises(
            UserError,
            match=r"or has others; restore it|lack a visit, or have another one \(",
        ),
        Judge(workers=1) as judge,
    ):
        stored_history(run, judge)


def test_a_shard_of_another_run_is_named(run):
    reopen(run, id="0" * 32)
    with pytest.raises(
        UserError, match=r"labels/step-\d+.parquet is of another run; restore it"
    ):
        scan_labels(run)


def test_a_shard_under_another_steps_name_is_named(run):
    shards = sorted((run / "labels").iterdir())
    os.replace(shards[0], shards[1])
    shutil.copy(shards[1], shards[0])
    with pytest.raises(UserError, match="rows of another step"):
        scan_labels(run)


@pytest.mark.parametrize("deed", ["move", "remove"])
@pytest.mark.parametrize("command", ["train", "evaluate", "rollouts"])
def test_a_folder_that_goes_while_it_is_written_ends_with_a_sentence(
    command, deed, workshop, is_long
):
    whole, kinds = workshop.whole(command), {}
    for number, line in enumerate(workshop.operations(command), start=1):
        kinds.setdefault(kind_of_operation(line), number)
    numbers = [
        number for kind, number in kinds.items() if "lock" not in kind and number > 2
    ]
    for number in numbers if is_long else numbers[len(numbers) // 2 :][:1]:
        out = workshop.place(f"goes-{command}-{number}")
        moved = workshop.place(f"{out.name}-moved")
        ended = workshop.start(command, out, Plan(out, number, deed, out))
        assert ended.wait() == 2, ended.err
        assert "was moved or removed while it was written" in ended.err.splitlines()[-1], (
            number
        )
        assert "Traceback" not in ended.err and not out.exists(), number
        if deed == "move":
            workshop.finish(command, moved)
            assert not differences(command, moved, whole), number


def test_what_a_killed_process_left_goes_with_the_next_file_in_its_folder(tmp_path):
    long_ago = time.time() - 3600
    for name in (
        ".x.parquet.999999999.tmp",
        f".x.parquet.{os.getpid()}.tmp",
        ".mine.tmp",
        ".x.999999998.tmp",
    ):
        (tmp_path / name).write_text("half")
        os.utime(tmp_path / name, (long_ago, long_ago))
    os.utime(tmp_path / ".x.999999998.tmp")  # a young one may be another host's
    write_text(tmp_path / "y", "whole")
    left = {".mine.tmp", ".x.999999998.tmp", f".x.parquet.{os.getpid()}.tmp", "y"}
    assert {file.name for file in tmp_path.iterdir()} == left


def test_names_are_no_formulas(workshop, run):
    """An arm is called what a recipe says."""
    reopen(run, status="finished", arm=r"GRPO, $5 \label{x}$")
    before = contents(run)
    for words in (["--figure", "dynamics"], ["--figure", "coherence"], ["--report"]):
        status, said = workshop.olr("analyze", run, *words)
        assert status == 0, said.err
    assert before.items() <= contents(run).items()


def test_half_written_checkpoint_state_is_not_continued(workshop, run):
    """Flipped bytes of unchanged size: the checkpoint before is resumed, and the run ends as the whole one did."""
    reopen(run)
    newest = max((run / "checkpoints").glob("step-*"))
    for name in ("optimizer.pt", "trainer.json"):
        file = newest / name
        file.write_bytes(bytes(len(file.read_bytes())))
    resumed = workshop.start("train", run)
    assert resumed.wait() == 0 and "other bytes than were written" in resumed.out, (
        resumed.err
    )
    assert scan_labels(run).collect().equals(scan_labels(workshop.whole("train")).collect())
    for checkpoint in (run / "checkpoints").glob("step-*[0-9]"):
        file = checkpoint / "optimizer.pt"
        file.write_bytes(b"\1" + file.read_bytes()[1:])
    reopen(run)
    require_error(
        workshop.olr(*workshop.words("train", run), "--resume"),
        "no checkpoint of",
        "is whole",
    )


@pytest.mark.parametrize(
    ("kind", "says"), [("step", "it is of step 9"), ("run", "it is of another run")]
)
def test_a_checkpoint_of_another_step_or_run_is_not_continued(workshop, run, kind, says):
    reopen(run, **({"id": "0" * 32} if kind == "run" else {}))
    older, newer = sorted((run / "checkpoints").glob("step-*[0-9]"))[-2:]
    if kind == "step":
        shutil.rmtree(newer)
        shutil.copytree(older, newer)
    resumed = workshop.start("train", run)
    status = resumed.wait()
    said = resumed.out + resumed.err
    assert (status, says in said) == ({"step": 0, "run": 2}[kind], True), said
    if kind == "step":
        assert (
            scan_labels(run)
            .collect()
            .equals(scan_labels(workshop.whole("train")).collect())
        )


def test_a_recipe_that_was_changed_after_the_run_is_refused(workshop, run):
    recipe = (run / "recipe.yaml").read_text()
    (run / "recipe.yaml").write_text(re.sub(r"(?m)^seed: .*", "seed: 77", recipe))
    for words in (
        ["replay", run],
        [*workshop.words("train", run), "--resume"],
        ["analyze", run],
    ):
        require_error(
            workshop.olr(*words), "recipe.yaml was changed since the run was made"
        )
