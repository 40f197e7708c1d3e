"""What a report holds of every prompt."""

import polars as pl
import pytest
from cases import each, refusal
from histories import arms_of, write_history
from pages import label, rollout, write_run

from olr_cli.analysis.arms import find_runs
from olr_cli.analysis.audit.audit import audit, audit_history
from olr_cli.analysis.report import texts
from olr_cli.analysis.report.prompt_histories import prompt_histories
from olr_cli.analysis.report.prompts import audited_labels, prompt_list
from olr_cli.analysis.report.words import (
    GIVEN,
    NO_MAJORITY,
    NO_VISIT,
    OTHER,
    RIGHT,
    SOURCES,
    WRONG_LABEL,
)
from olr_cli.answers import Judge
from olr_cli.runs.store import scan_labels


def run_of(path):
    (run,) = find_runs([path])
    return run


def histories(path):
    return prompt_histories(run_of(path), audited_labels(run_of(path)).ids)


def answers(*labels):
    """Two rollouts of each visit."""
    return [
        rollout(each.prompt_id, each.visit, each.step, sample)
        for each in labels
        for sample in range(2)
    ]


def step(*labels):
    return list(labels), answers(*labels)


def test_histories_are_the_labels_table_prompt_by_prompt(tmp_path):
    path = write_history(tmp_path / "run", prompts=12, prompts_per_step=5, epochs=4)
    found = histories(path)
    assert found.header["ids"] == [str(number) for number in range(12)]
    assert (found.header["visits"], found.header["rollouts"]) == (4, 8)
    table = (
        scan_labels(path)
        .collect()
        .with_columns(pl.col("prompt_id").cast(int))
        .sort("prompt_id", "visit")
    )

    def told(name):
        return [found.header["strings"][code] or None for code in found.arrays[name]]

    assert told("majority") == table["majority_answer"].to_list()
    assert told("label") == table["effective_label"].to_list()
    assert found.arrays["votes"].tolist() == table["majority_count"].to_list()
    assert [SOURCES[code - 1] for code in found.arrays["source"]] == table[
        "label_source"
    ].to_list()
    last = table.filter(visit=4)
    assert [found.header["noiseTypes"][code] for code in found.arrays["noise"]] == last[
        "noise_type"
    ].to_list()
    assert [found.header["strings"][code] for code in found.arrays["given"]] == last[
        "given_label"
    ].to_list()
    assert (found.arrays["label_right"] == 2).tolist() == last[
        "effective_label_is_correct"
    ].to_list()
    right = found.arrays["kind"] == RIGHT
    assert right.tolist() == table["majority_is_correct"].to_list()
    assert (found.arrays["kind"] == WRONG_LABEL).tolist() == table[
        "majority_is_noisy_label"
    ].fill_null(False).to_list()
    assert (found.arrays["kind"] == NO_MAJORITY).tolist() == (
        table["majority_count"] == 0
    ).to_list()


UNKNOWN = {
    "true_answer": None,
    "true_answer_count": None,
    "majority_is_correct": None,
    "noise_type": None,
}


@each(
    "changes, kind",
    ({}, RIGHT),
    (
        {"majority_answer": None, "majority_count": 0, "majority_is_correct": False},
        NO_MAJORITY,
    ),
    ({"majority_is_correct": False, "given_label_count": 0}, OTHER),
    (
        {
            "majority_is_correct": False,
            "majority_is_noisy_label": True,
            "given_label_count": 0,
        },
        WRONG_LABEL,
    ),
    ({"majority_is_correct": False, "given_label": "8", "noise_type": None}, WRONG_LABEL),
    (UNKNOWN, GIVEN),
    (UNKNOWN | {"given_label_count": 1}, OTHER),
    (UNKNOWN | {"given_label": None, "given_label_count": None}, OTHER),
)
def test_a_majority_is_told_apart_by_what_is_known(tmp_path, changes, kind):
    path = write_run(tmp_path / "run", [step(label("a", 1, 1, **changes))])
    assert histories(path).arrays["kind"].tolist() == [kind]


def test_a_visit_that_is_not_made_yet_is_none_and_now_is_each_prompts_own_last(tmp_path):
    first = [label(name, 1, 1) for name in ("a", "b")]
    second = label("b", 2, 2, effective_label="8", effective_label_is_correct=False)
    path = write_run(tmp_path / "run", [step(*first), step(second)])
    found = histories(path)
    assert found.arrays["kind"].tolist() == [RIGHT, NO_VISIT, RIGHT, RIGHT]
    assert found.arrays["last"].tolist() == [1, 2]
    assert found.arrays["label_right"].tolist() == [2, 1]
    assert set(found.ends.rows()) == {("a", 1, 1), ("b", 1, 1), ("b", 2, 2)}


@pytest.mark.parametrize("is_audited", [True, False])
def test_the_most_doubtful_prompts_are_shown_and_what_is_left_out_is_said(
    tmp_path, monkeypatch, is_audited
):
    path = write_history(
        tmp_path / "run",
        prompts=12,
        prompts_per_step=6,
        epochs=3,
        store_rollouts=is_audited,
    )
    monkeypatch.setattr("olr_cli.analysis.report.prompts.MOST_PROMPTS", 3)
    queue = sorted(["0", "1", "2"])
    if is_audited:
        with Judge() as judge:
            queue = sorted(
                audit(audit_history(path, []), judge).prompts["prompt_id"].head(3), key=int
            )
    labels = audited_labels(run_of(path))
    assert (labels.ids, labels.left_out) == (queue, 9)
    assert (
        any(note.startswith("The labels are not audited: ") for note in labels.notes)
        is not is_audited
    )
    assert len(prompt_histories(run_of(path), labels.ids).arrays["kind"]) == 9
    (note,) = prompt_list(arms_of(path))[2]
    which = "3 most doubtful" if is_audited else "first 3"
    assert note.startswith(f"The list shows the {which} of 12 prompts of {path}; ")


def test_the_first_responses_of_the_first_and_the_last_visit_are_kept_of_each_view(
    tmp_path,
):
    def with_views(visit):
        shown = label("a", visit, visit)
        both = [
            rollout(
                "a", visit, visit, sample, view=view, response=f"{visit} {view} {sample}"
            )
            for view, start in (("original", 0), ("rephrased", 6))
            for sample in range(start, start + 6)
        ]
        return [shown], both

    path = write_run(tmp_path / "run", [with_views(visit) for visit in (1, 2, 3)])
    found = texts.read_responses(path, histories(path).ends)
    assert found["head"].to_list() == [
        f"{visit} {view} {sample}"
        for visit in (1, 3)
        for view, start in (("original", 0), ("rephrased", 6))
        for sample in range(start, start + texts.SAMPLES)
    ]


def test_long_responses_lose_their_middle_and_say_how_much(tmp_path):
    whole = "".join(chr(65 + place % 26) for place in range(10_000))
    stored = [
        rollout("a", 1, 1, 0, response=whole),
        rollout("a", 1, 1, 1, response="short"),
    ]
    path = write_run(tmp_path / "run", [([label("a", 1, 1)], stored)])
    found = texts.read_responses(path, histories(path).ends)
    for budget, limit in ((10**6, texts.LONGEST), (600, 300)):
        told, cut = texts.by_prompt(found, ["a"], budget)
        assert cut == limit
        (long, short) = told[0]
        head, tail, left_out = long[-3:]
        assert whole.startswith(head) and whole.endswith(tail)
        assert len(head) + len(tail) == limit and left_out == 10_000 - limit
        assert short[-3:] == ["short", "", 0]


@pytest.mark.parametrize(("budget", "kept"), [(300, [2, 3, 4, 5]), (299, [])])
def test_middle_visits_are_kept_where_the_budget_allows_all_of_them(tmp_path, budget, kept):
    def one(visit):
        return [label("a", visit, visit)], [
            rollout("a", visit, visit, 0, response="x" * 50)
        ]

    path = write_run(tmp_path / "run", [one(visit) for visit in range(1, 7)])
    found = histories(path)
    ends = texts.read_responses(path, found.ends)
    assert texts.affordable(found.middle, ends, budget)["visit"].to_list() == kept


def test_labels_are_audited_as_olr_audit_does(tmp_path):
    path = write_history(tmp_path / "run", prompts=30, prompts_per_step=10, epochs=5)
    with Judge() as judge:
        expected = audit(audit_history(path, []), judge).prompts
    labels = audited_labels(run_of(path))
    ids, told = labels.ids, labels.values
    by_id = {row["prompt_id"]: row for row in expected.iter_rows(named=True)}
    for name in ("status", "given_label", "proposed_label", "change"):
        assert told[name] == [by_id[prompt_id][name] for prompt_id in ids]
    truths = dict(
        scan_labels(path).select("prompt_id", "true_answer").collect().iter_rows()
    )
    pairs = zip(ids, told["proposed_label"], told["proposal_is_right"], strict=True)
    assert all(
        right == (None if made is None else made == truths[name])
        for name, made, right in pairs
    )
    assert {True, None} <= set(told["proposal_is_right"])


def test_verified_labels_count_in_the_audit_of_the_report(tmp_path, monkeypatch):
    path = write_history(tmp_path / "run", prompts=30, prompts_per_step=10, epochs=5)
    labels = (
        scan_labels(path)
        .filter(visit=5)
        .select("prompt_id", "true_answer", "given_label")
        .collect()
    )
    labels.select("prompt_id", "true_answer").write_ndjson(tmp_path / "verified.jsonl")
    told = audited_labels(run_of(path), tmp_path / "verified.jsonl")
    in_order = labels.sort(pl.col("prompt_id").cast(int))
    is_wrong = (in_order["given_label"] != in_order["true_answer"]).to_list()
    assert [
        confidence > 0.5 for confidence in told.values["confidence"]
    ] == is_wrong and True in is_wrong
    monkeypatch.setattr("olr_cli.analysis.report.prompts.MOST_PROMPTS", 4)
    labels.filter(pl.col("prompt_id").is_in(["3", "4"])).write_ndjson(
        tmp_path / "two.jsonl"
    )
    assert {"3", "4"} < set(audited_labels(run_of(path), tmp_path / "two.jsonl").ids), (
        "they stay in the page"
    )
    assert "absent" in refusal(audited_labels, run_of(path), tmp_path / "absent.jsonl")


def test_a_score_that_is_no_number_is_told_in_words(tmp_path):
    stored = [rollout("a", 1, 1, 0, reward=float("nan"), answer=None, is_correct=None)]
    path = write_run(tmp_path / "run", [([label("a", 1, 1)], stored)])
    found = texts.read_responses(path, histories(path).ends)
    assert texts.by_prompt(found, ["a"], 10**6)[0][0][0][3:6] == [None, "nan", None]


ROWS = [
    {
        "prompt": [
            {"role": "system", "content": "Sums."},
            {"role": "user", "content": "3+4"},
        ],
        "answer": "7",
    }
]


def with_ids(rows):
    return [
        row | {"extra_info": {"index": name}} for row, name in zip(rows, "ab", strict=False)
    ]


def test_questions_are_read_from_the_data_the_run_was_trained_on(tmp_path):
    path = write_run(tmp_path / "run", [step(label("a", 1, 1))], rows=with_ids(ROWS))
    questions, why_none = texts.questions(path)
    assert (questions, why_none) == ({"a": ("3+4", "[system] Sums.")}, "")
    assert texts.cut_questions(questions, ["a", "b"], 20) == [
        ["3+4", "", 0, "[s", "Sums.", 7],
        ["", "", 0, "", "", 0],
    ]


def test_questions_that_are_gone_or_others_now_are_not_shown_and_it_is_said(tmp_path):
    path = write_run(tmp_path / "run", [step(label("a", 1, 1))], rows=with_ids(ROWS))
    data = tmp_path / "run-data.jsonl"
    data.write_text(data.read_text().replace("3+4", "5+6"))
    assert "does not hold the prompts of this run" in texts.questions(path)[1]
    data.unlink()
    questions, why_none = texts.questions(path)
    assert (
        not questions and "cannot be read from here" in why_none and str(data) in why_none
    )


def test_questions_are_never_fetched_from_the_hub(tmp_path, monkeypatch):
    settings = {"data": {"train": "some/dataset"}}
    path = write_run(tmp_path / "run", [step(label("a", 1, 1))], settings=settings)
    monkeypatch.setattr(
        "olr_cli.data.prompt_files.load_hub_table", lambda *_: pytest.fail("asked the hub")
    )
    assert "some/dataset cannot be read from here" in texts.questions(path)[1]
