"""Lots: which arms differ in one setting and nothing else, and which GRPO stands beside them."""

from decimal import Decimal

from paper_runs import write_run

from olr_cli.analysis.arms import find_runs, group
from olr_cli.analysis.varied import lots, spread


def olr(threshold, **others):
    return {"name": "olr", "slope_threshold": threshold, "warmup_epochs": 1, **others}


def lots_of(folder):
    return lots(group(find_runs([folder])), "slope_threshold")


def test_arms_of_one_lot_differ_in_the_setting_alone_and_stand_in_its_order(tmp_path):
    for threshold in (0.1, 0.02):
        write_run(tmp_path / f"low-{threshold}", olr(threshold), ratio=0.25)
        write_run(tmp_path / f"high-{threshold}", olr(threshold))
    write_run(tmp_path / "single", olr(0.02, penalty_weight=0.1))
    found = lots_of(tmp_path)
    assert {lot.name for lot in found} == {"active 0.25", "active 0.5"}
    assert all(list(lot.arms) == [Decimal("0.02"), Decimal("0.1")] for lot in found)
    assert {lot.noise_type for lot in found} == {"active"}


def test_lots_under_the_same_noise_are_told_apart(tmp_path):
    for weight in (0.0, 0.1):
        for threshold in (0.02, 0.1):
            write_run(tmp_path / f"{weight}-{threshold}", olr(threshold, penalty_weight=weight))
    assert {lot.name for lot in lots_of(tmp_path)} == {
        "active 0.5 penalty_weight=0.0",
        "active 0.5 penalty_weight=0.1",
    }


def test_grpo_beside_a_lot_is_trained_on_the_same_data_without_additions(tmp_path):
    for threshold in (0.02, 0.1):
        write_run(tmp_path / str(threshold), olr(threshold))
    write_run(tmp_path / "other-noise", "grpo", noise="inactive")
    write_run(tmp_path / "penalised", {"name": "grpo", "penalty_weight": 0.1})
    assert [lot.grpo for lot in lots_of(tmp_path)] == [None]
    write_run(tmp_path / "grpo", "grpo")
    (lot,) = lots_of(tmp_path)
    assert lot.grpo.name == "active 0.5 grpo"


def test_a_single_value_has_no_sd_and_none_has_no_mean():
    assert spread([0.5]) == (0.5, None, 1)
    assert spread([]) == (None, None, 0)
