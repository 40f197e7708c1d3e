"""Which rows of a data set an export keeps, and what it says of them."""

import pytest
from cases import each, refusal

from olr_cli.analysis.audit.export import Choice, evidence, has_truth


def row(rank, status="doubted", change="kept", **others):
    """A row of the verdicts: 4 of 8 rollouts gave the label, 6 the proposal."""
    usual = {
        "is_verified": False,
        "confidence": None,
        "proposal_confidence": None,
        "answers": "6 × 7",
    }
    counts = {"given_count": 4, "proposed_count": 6, "rollouts": 8}
    return {"rank": rank, "status": status, "change": change, **usual, **counts, **others}


VERIFIED = {"is_verified": True, "confidence": 1.0}
ROWS = {
    "fine": row(5, "fine"),
    "doubted": row(1),
    "repaired": row(2, change="changed"),
    "flawed": row(None, change="changed", **VERIFIED),
    "mended": row(None, change="changed", **VERIFIED, proposal_confidence=1.0),
    "missing": row(None, "missing", given_count=None),
    "rare": row(3, "fine", given_count=1),
    "unjudged": None,
}


@each(
    "choice, kept",
    ({}, "fine doubted repaired flawed mended missing rare unjudged"),
    ({"drop": ["doubted"]}, "fine repaired mended missing rare unjudged"),
    ({"drop": ["unjudged", "missing"]}, "fine doubted repaired flawed mended rare"),
    ({"only": ["doubted"]}, "doubted repaired flawed mended"),
    ({"only": ["fine", "unjudged"], "drop": ["fine"]}, "unjudged"),
    ({"pass_rate": "0.5:0.5"}, "fine doubted flawed"),
    ({"pass_rate": "0.75:1"}, "repaired mended"),
    ({"pass_rate": "0:0.2"}, "rare"),
    ({"pass_rate": "0:1", "only": ["fine"]}, "fine rare"),
    ({"first": 2}, "doubted repaired"),
    ({"first": 4}, "doubted repaired rare fine"),
    ({"first": 9}, "doubted repaired rare fine"),
)
def test_a_choice_keeps_these_rows(choice, kept):
    names = [*ROWS]
    places = Choice(**choice).keeps([*ROWS.values()])
    assert [names[place] for place in places] == (
        kept.split()
        if "first" in choice
        else [name for name in names if name in kept.split()]
    )


@pytest.mark.parametrize("size", [1, 3, 8, 9])
def test_a_random_draw_is_in_file_order_of_the_seed_and_holds_the_smaller_one(size):
    drawn = Choice(random=size, seed=3).keeps([None] * 8)
    assert drawn == sorted(drawn) and len(drawn) == min(size, 8)
    assert {*Choice(random=1, seed=3).keeps([None] * 8)} <= {*drawn}


@each(
    "choice, words, is_to_check",
    ({}, "", False),
    ({"drop": ["fine", "doubted"], "repair": True}, "--drop fine,doubted --repair", False),
    ({"pass_rate": "0.1:0.9"}, "--pass-rate 0.1:0.9", False),
    ({"only": ["fine"]}, "", True),
    ({"first": 3}, "", True),
    ({"random": 3, "seed": 1}, "", True),
)
def test_a_choice_is_typed_again_where_it_is_of_rows_to_train_on(
    choice, words, is_to_check
):
    found = Choice(**choice)
    assert (" ".join(found.words), found.is_to_check) == (words, is_to_check)


@each(
    "choice, said",
    ({"first": 1, "random": 1}, "first: this takes of all rows; leave other choices out"),
    ({"first": 1, "drop": ["fine"]}, "first: this takes of all rows; leave other choices out"),
    ({"random": 1, "only": ["fine"]}, "random: this takes of all rows; leave other choices out"),
    ({"random": 1, "pass_rate": "0:1"}, "random: this takes of all rows; leave other choices out"),
    ({"drop": ["fine", "bad"]}, "drop: there is no status 'bad'; known: doubted, questionable, undecided, fine,"
     " missing, unjudged"),
    *(({"pass_rate": text}, f"pass_rate {text}: this is no range of shares; name the least and the largest, as in"
       " 0.1:0.9") for text in ("0.9:0.1", "-0.1:1", "0:1.1", "0.5", "a:b", "0:0.5:1", "nan:1")),
)  # fmt: skip
def test_a_choice_that_contradicts_itself_is_refused(choice, said):
    assert refusal(Choice, **choice) == said


@each(
    "others, sentence",
    ({}, "of 8 rollouts 4 × the label, 6 × 7"),
    ({"given_count": None}, "of 8 rollouts 6 × 7"),
    ({"answers": None}, "of 8 rollouts 4 × the label, nothing else"),
    ({"answers": None, "given_count": 0}, "of 8 rollouts 0 × the label, no answer"),
    ({"answers": None, "given_count": None}, "of 8 rollouts no answer"),
    ({"is_verified": True, "confidence": 0.0}, "the true answer is verified"),
    ({**VERIFIED, "proposal_confidence": 1.0}, "the true answer is verified"),
    (VERIFIED, "the label is verified to be wrong"),
)  # fmt: skip
def test_a_sentence_says_what_speaks_for_and_against_a_label(others, sentence):
    assert evidence(row(1, **others)) == sentence


@each(
    "is_verified, chance, has_one",
    (True, 1.0, True),
    (True, 0.9, False),
    (True, None, False),
    (False, 1.0, False),
)
def test_a_row_has_a_truth_if_somebody_verified_it(is_verified, chance, has_one):
    assert has_truth(row(1, is_verified=is_verified, proposal_confidence=chance)) is has_one
