"""Files of a run that are cut off, changed or newer: said in a sentence, and never taken for what was written."""

import json
import os
import re
import shutil
import subprocess
import sys

import polars
import pyarrow.parquet as pq
import pytest
from forks import ROOT
from outcomes import differences, reopen

from olr_cli.errors import UserError
from olr_cli.evaluation.record import VERSION
from olr_cli.evaluation.store import EvaluationStore
from olr_cli.runs.checkpoints import checkpoint_path
from olr_cli.runs.directory import MANIFEST_VERSION, read_manifest, read_recipe
from olr_cli.runs.shards import check_shard

TABLES = ("labels", "rollouts")


@pytest.fixture
def evaluation(workshop, tmp_path):
    """A copy of a finished evaluation."""
    shutil.copytree(workshop.whole("evaluate"), tmp_path / "evaluation")
    return tmp_path / "evaluation"


def footer_of(content):
    """Bytes of a Parquet file's footer, with its length and the closing mark."""
    return int.from_bytes(content[-8:-4], "little") + 8


def contents(run):
    return {
        file: file.read_bytes()
        for file in run.rglob("*")
        if file.is_file() and file.name != ".lock"
    }


FILES = {
    "labels/step-*.parquet": lambda file: check_shard(file, "labels"),
    "rollouts/step-*.parquet": lambda file: check_shard(file, "rollouts"),
    "generations/arithmetic.parquet": lambda file: EvaluationStore(file.parents[1]).read(
        "arithmetic"
    ),
    "manifest.json": lambda file: read_manifest(file.parent),
    "recipe.yaml": lambda file: read_recipe(file.parent),
    "evaluation.json": lambda file: EvaluationStore(file.parent).record(),
}
"""Files of a run and of an evaluation; who reads them."""
MESSAGES = {
    ".parquet": "is not a whole Parquet file",
    ".json": "is not valid JSON",
    ".yaml": "is cut off",
}


@pytest.mark.parametrize("pattern", FILES)
def test_a_file_cut_off_anywhere_is_named(pattern, run, evaluation, is_long):
    """A Parquet file anywhere in its footer."""
    file = next(iter(sorted([*run.glob(pattern), *evaluation.glob(pattern)])))
    whole, read = file.read_bytes(), FILES[pattern]
    read(file)
    first = (
        len(whole) - footer_of(whole) if file.suffix == ".parquet" and not is_long else 0
    )
    end = len(whole) - (file.suffix == ".json")  # whose last byte ends the line
    cuts = range(first, end, 1 if is_long else 3 if file.suffix == ".yaml" else 37)
    for kept in cuts:
        file.write_bytes(whole[:kept])
        with pytest.raises(
            UserError, match=f"{re.escape(file.name)} {MESSAGES[file.suffix]}"
        ):
            read(file)
    print(f"\n{file.name}: {len(cuts)} cuts, all named")


def require_error(command, *parts):
    """A command that ended with status 2 and a sentence, as its last line, that has all these parts."""
    status, ended = command
    last = ended.err.splitlines()[-1]
    assert (
        status == 2 and last.startswith("Error: ") and all(part in last for part in parts)
    ), ended.err


def test_what_a_newer_olr_has_written_is_said_to_need_it(
    workshop, run, evaluation, is_long
):
    """As every command that reads it says: status 2, one sentence."""

    def newer(file, version):
        plain = json.loads(file.read_text())
        file.write_text(json.dumps(plain | {"schema_version": version + 1}))

    def newer_shard(table, key):
        file = next(
            iter(
                sorted((run if table in TABLES else evaluation).glob(f"{table}/*.parquet"))
            )
        )
        arrow = pq.read_table(file)
        marks = arrow.schema.metadata | {key: b"99"}
        pq.write_table(arrow.replace_schema_metadata(marks), file)

    def says(*words):
        require_error(workshop.olr(*words), "was written by a newer olr")

    newer_shard("labels", b"olr.schema_version")
    says("analyze", run, "--table", "arms")
    newer_shard("rollouts", b"olr.schema_version")
    says("replay", run, "--json")
    newer_shard("generations", b"olr.generations")
    generations = "is not a file of generations of this version of olr"
    require_error(workshop.olr(*workshop.words("evaluate", evaluation)), generations)
    newer(evaluation / "evaluation.json", VERSION)
    says("regrade", evaluation)
    newer(run / "manifest.json", MANIFEST_VERSION)
    says("train", "tiny.yaml", "--run-dir", run, "--resume")
    if is_long:
        small = ["evaluate", run, "--limit", "3"]
        for words in (
            ["analyze", run],
            ["audit", run],
            ["replay", run],
            small,
            workshop.words("train", run),
        ):
            says(*words)


@pytest.mark.parametrize("name", ["manifest.json", "recipe.yaml", "metrics.jsonl"])
def test_half_a_file_of_a_run_stops_a_resume_in_a_sentence_and_nothing_is_removed(
    name, workshop, run
):
    reopen(run)
    for size in (0, (run / name).stat().st_size // 2):
        os.truncate(run / name, size)
        before = contents(run)
        require_error(workshop.olr(*workshop.words("train", run), "--resume"), name)
        assert contents(run) == before


def test_a_checkpoint_that_was_cut_off_later_is_passed_over(workshop, run, is_long):
    names = [file.name for file in checkpoint_path(run, 10).iterdir()]
    for name in names if is_long else ["optimizer.pt"]:
        out = workshop.place("cut-off")
        shutil.copytree(workshop.whole("train"), out)
        reopen(out)
        file = checkpoint_path(out, 10) / name
        os.truncate(file, file.stat().st_size // 2)
        ended = workshop.start("train", out)
        assert ended.wait() == 0, ended.err
        assert f"step-000010 is damaged ({name} " in ended.out
        shutil.rmtree(checkpoint_path(out, 10).with_name("step-000010.damaged"))
        assert not differences("train", out, workshop.whole("train"))


FLIPS = """
import collections, json, resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))  # for a wrong byte may be read as any length
from olr_cli.errors import UserError
from olr_cli.runs.shards import explain_damage
from olr_cli.runs.store import scan_labels, scan_rollouts
run, table, stride = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
scan = {"labels": scan_labels, "rollouts": scan_rollouts}[table]
shard = sorted((run / table).glob("step-*.parquet"))[0]
whole, truth = shard.read_bytes(), scan(run).collect()
first = len(whole) - int.from_bytes(whole[-8:-4], "little") - 8
count = collections.Counter()
for place in range(first, len(whole), stride):
    for flip in (1, 0x80, 0xFF):
        changed = bytearray(whole)
        changed[place] ^= flip
        shard.write_bytes(changed)
        try:
            outcome = "as it was" if scan(run).collect().equals(truth) else "other data"
        except UserError as error:
            outcome = "named" if shard.name in str(error) else "not named"
        except BaseException as error:
            shard.write_bytes(changed)
            outcome = "named" if shard.name in (explain_damage(error, [run]) or "") else f"not named: {error!r}"
        count[outcome] += 1
shard.write_bytes(whole)
print(json.dumps(count))
"""


def test_a_wrong_byte_in_a_footer_is_named_or_without_effect(run, is_long):
    """In a process with a limit on its memory, for a decoder may take any number for a length."""
    for table in TABLES:
        program = [sys.executable, "-c", FLIPS, str(run), table, "1" if is_long else "150"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "RUST_BACKTRACE": "0"}
        ended = subprocess.run(
            program, capture_output=True, text=True, check=False, env=environment
        )
        assert ended.returncode == 0, ended.stderr[-2000:]
        count = json.loads(ended.stdout)
        print(f"\n{table}: {count}")
        # polars before 2 takes some wrong bytes for data.
        known = {"as it was", "named"} | (
            {"other data"} if polars.__version__ < "2" else set()
        )
        assert set(count) <= known, count


def test_a_damaged_middle_of_a_shard_is_named_by_the_command_that_meets_it(
    workshop, run, is_long
):
    shard = sorted((run / "rollouts").glob("step-*.parquet"))[0]
    content = shard.read_bytes()
    rows = len(content) - footer_of(content) - 4
    # As a disk leaves it that lost its blocks
    shard.write_bytes(content[:4] + bytes(rows) + content[4 + rows :])
    for words in [["replay", run, "--json"], ["audit", run, "--json"]][
        : 2 if is_long else 1
    ]:
        require_error(workshop.olr(*words), f"{shard} is damaged")
