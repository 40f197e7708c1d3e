"""What is said of a recipe is said from a bound on and not before it; which methods and keys decide what."""

import math
from decimal import Decimal

from cases import each, refusal

from olr_cli.recipe.checks import code_notes, recipe_warnings, step_warnings
from olr_cli.recipe.layers import folder_name, override, put, read_pairs, validate
from olr_cli.recipe.methods import METHODS, MethodRow
from olr_cli.recipe.sampling import Sampling
from olr_cli.recipe.schema import Recipe, changed_keys, refused_changes
from olr_cli.recipe.section import flatten


def recipe(**sections):
    return validate(sections, "x")


def test_a_method_is_these_four_choices():
    assert {
        name: (row.label, row.reward, row.presets, row.section.__name__)
        for name, row in METHODS.items()
    } == {
        "grpo": ("given", "verifier", {}, "PlainMethod"),
        "olr": ("refined", "verifier", {}, "OlrMethod"),
        "ttrl": ("majority", "verifier", {}, "PlainMethod"),
        "co_reward": ("other_view", "verifier", {}, "PlainMethod"),
        "self_certainty": ("none", "self_certainty", {}, "PlainMethod"),
        "token_entropy": ("none", "token_entropy", {}, "ScoreMethod"),
        "sequence_entropy": ("none", "sequence_entropy", {}, "ScoreMethod"),
        "confidence_penalty": ("given", "verifier", {"penalty_weight": 0.001}, "PlainMethod"),
        "label_smoothing": ("given", "verifier", {"smoothing": 0.1}, "PlainMethod"),
        "small_loss_selection": ("given", "verifier", {"prompts": "small_loss"}, "PlainMethod"),
        "random_selection": ("given", "verifier", {"prompts": "random"}, "PlainMethod"),
    }  # fmt: skip


@each(
    "label, uses, needs",
    ("given", True, True), ("refined", True, True), ("own", True, False), ("majority", False, False),
    ("other_view", False, False), ("none", False, False),
)  # fmt: skip
def test_a_rule_of_ones_own_may_use_labels_and_needs_none(label, uses, needs):
    row = MethodRow("", label)
    assert (row.uses_labels, row.needs_labels) == (uses, needs)


@each(
    "sections, warned",
    ({"train": {"epochs": 5}, "method": {"name": "olr"}}, "leaves no epoch of 5"),
    ({"train": {"epochs": 6}, "method": {"name": "olr"}}, None),
    ({"train": {"epochs": 5}}, None),
    # at visit 6 the steepest is 9/35
    ({"method": {"name": "olr", "slope_threshold": "0.2571428"}}, None),
    ({"method": {"name": "olr", "slope_threshold": "0.2571429"}}, "no slope exceeds 0.257 at visit 6, and later ones"
     " are flatter; try 0.020"),
    ({"method": {"name": "olr", "slope_threshold": "1", "warmup_epochs": 0}}, "no slope exceeds 1.000 at visit 2"),
    ({"method": {"name": "olr", "slope_threshold": "0.999", "warmup_epochs": 0}}, None),
    ({"method": {"name": "olr", "slope_threshold": 0, "warmup_epochs": 0}, "train": {"epochs": 1}}, "train longer"),
    ({"method": {"name": "olr", "slope_threshold": 9, "criteria": ["consistency"]}}, None),
    ({"method": {"name": "olr"}, "train": {"rollouts_per_prompt": 3}}, "3 makes a poor vote"),
    ({"method": {"name": "olr"}, "train": {"rollouts_per_prompt": 4}}, None),
    ({"method": {"name": "co_reward"}, "train": {"rollouts_per_prompt": 3}}, "3 makes a poor vote"),
    ({"method": {"name": "mine:rule"}, "train": {"rollouts_per_prompt": 3}}, "3 makes a poor vote"),
    ({"method": {"name": "grpo"}, "train": {"rollouts_per_prompt": 3}}, None),
    ({"method": {"name": "token_entropy"}, "train": {"rollouts_per_prompt": 3}}, None),
    ({"method": {"name": "ttrl"}, "noise": {"type": "active", "ratio": 0.1}}, "method ttrl uses no labels: the noise"),
    ({"method": {"name": "ttrl"}, "noise": {"type": "active", "ratio": 0}}, None),
    ({"method": {"name": "ttrl"}, "noise": None}, None),
    ({"method": {"name": "ttrl", "prompts": "random", "keep_fraction": 0.5}, "noise": {"type": "active", "ratio": 0.1}},
     "uses no labels"),
    ({"method": {"name": "olr"}, "noise": {"type": "active", "ratio": 0.1}}, None),
    ({"train": {"lora_rank": 8, "learning_rate": 2e-6}}, "train.learning_rate 2e-06 hardly moves LoRA's adapters"),
    ({"train": {"lora_rank": 8, "learning_rate": 2.1e-6}}, None),
    ({"train": {"learning_rate": 2e-6}}, None),
    ({"train": {"mini_batch_prompts": 161}}, "161 is more than train.prompts_per_step 160: each step is one"),
    ({"train": {"mini_batch_prompts": 160}}, None),
    ({"train": {"mini_batch_prompts": 80}}, None),
    ({"train": {"mini_batch_prompts": None}}, None),
    ({"train": {"mini_batch_prompts": 70}}, "does not divide train.prompts_per_step 160: the last mini-batch of each"
     " step has 20 prompts"),
)  # fmt: skip
def test_a_likely_mistake_is_warned_of_from_its_bound_on(sections, warned):
    said = recipe_warnings(recipe(**sections))
    if warned is None:
        assert said == []
    else:
        assert len(said) == 1 and warned in said[0]


@each(
    "prompts, said",
    (159, "train.prompts_per_step 160 is more than the 159 training prompts: one step an epoch"),
    (160, None), (320, None),
    (161, "161 prompts do not divide into steps of 160: the last of each epoch has 1"),
)  # fmt: skip
def test_how_prompts_divide_into_steps_is_said_where_they_do_not(prompts, said):
    assert step_warnings(Recipe(), prompts) == ([] if said is None else [said])


@each(
    "sections, code, note",
    ({}, {}, None),
    ({"data": {"extractor": "regex:x"}}, {}, None),
    ({"data": {"extractor": "m:read"}}, {"data.extractor": ["m:read"]}, "m:read (data.extractor)"),
    ({"method": {"name": "m:rule"}}, {"method.name": ["m:rule"]}, "m:rule (method.name)"),
    ({"model": {"trust_remote_code": True}}, {"model.trust_remote_code": ["true"]}, "model.trust_remote_code"),
    ({"verifier": {"false_negative_rate": 0.1}}, {}, None),
    ({"verifier": {"where": [{"answer": "1", "false_negative_rate": 1},
                             {"function": "m:errs", "false_negative_rate": 1}]}},
     {"verifier.where": ["m:errs"]}, "m:errs (verifier.where)"),
)  # fmt: skip
def test_the_code_of_a_recipe_is_that_of_others_alone(sections, code, note):
    made = recipe(**sections)
    assert made.code() == code
    assert code_notes(made) == (
        [] if note is None else [f"Runs code that the recipe names: {note}."]
    )
    assert made.of_strangers(["data.extractor", "seed", *code]).strangers == code.keys()
    words = made.named_again()
    assert words[::2] == ["--set"] * len(code)
    again = validate(override(made.plain(), words[1::2]), "x")
    assert again == made


@each(
    "old, new, refused",
    ({}, {}, []),
    ({}, {"train": {"epochs": 11}}, []),
    ({}, {"train": {"epochs": 9}}, ["train.epochs: 10 -> 9, which can only be raised"]),
    ({}, {"train": {"epochs": 11, "lr_warmup_ratio": 0.1}},
     ["train.lr_warmup_ratio: 0.0 -> 0.1",
      "train.epochs: 10 -> 11, on which the schedule of the learning rate depends"]),
    ({"train": {"lr_schedule": "linear"}}, {"train": {"lr_schedule": "linear", "epochs": 11}},
     ["train.epochs: 10 -> 11, on which the schedule of the learning rate depends"]),
    ({"train": {"lr_schedule": "linear"}}, {"train": {"lr_schedule": "linear"}}, []),
    ({}, {"seed": 1, "train": {"checkpoint_every": 3}, "name": "x"}, ["seed: 0 -> 1"]),
)  # fmt: skip
def test_a_run_goes_on_with_more_epochs_and_what_does_not_decide(old, new, refused):
    assert refused_changes(recipe(**old), recipe(**new)) == refused


def test_a_key_that_one_recipe_lacks_is_unset():
    clean, noisy = recipe(), recipe(noise={"type": "active", "ratio": 0.5})
    assert "noise.ratio: unset -> 0.5" in changed_keys(clean, noisy)
    assert "noise.ratio: 0.5 -> unset" in changed_keys(noisy, clean)


@each(
    "verifier, brief",
    ({}, ""),
    ({"draw": "answer"}, ""),
    ({"false_negative_rate": 0.3}, "FN 0.3"),
    ({"false_positive_rate": 0.1, "draw": "answer"}, "FP 0.1 by answer"),
    ({"false_negative_rate": 0.3, "false_positive_rate": 0.1}, "FN 0.3 FP 0.1"),
    ({"where": [{"error": [10], "false_positive_rate": 1}]}, "rule on error"),
    ({"where": [{"answer": "x", "false_positive_rate": 1}] * 2}, "rules on answer"),
    ({"false_negative_rate": 0.3, "where": [{"error": [1], "false_positive_rate": 1},
                                            {"answer": "x", "false_negative_rate": 1}]},
     "FN 0.3, rules on error and answer"),
)  # fmt: skip
def test_a_verifier_has_a_brief_name(verifier, brief):
    assert recipe(verifier=verifier).verifier.brief == brief


@each(
    "rule, said",
    ({"false_positive_rate": 1}, "a rule has one of error, relative_error, answer, response, function, and here are 0"),
    ({"answer": "x", "error": [1], "false_positive_rate": 1}, "and here are 2"),
    ({"answer": "x"}, "a rule needs false_negative_rate, false_positive_rate or both"),
    ({"error": [], "false_positive_rate": 1}, "error is a list of distances, which count above and below; name some"),
    ({"error": [1, -1], "false_positive_rate": 1}, "error is a list of distances"),
    ({"relative_error": 0, "false_positive_rate": 1}, "input should be greater than 0"),
)  # fmt: skip
def test_a_rule_of_a_verifier_has_one_condition_and_a_rate(rule, said):
    assert said in refusal(recipe, verifier={"where": [rule]})
    for fits in ({"error": [0]}, {"relative_error": 0.1}, {"answer": "x"}):
        for rate in ("false_positive_rate", "false_negative_rate"):
            (read,) = recipe(verifier={"where": [{**fits, rate: 0}]}).verifier.where
            assert read.conditions == [*fits]


@each(
    "name, bad, good",
    ("temperature", (-1, 0.0009, math.inf, math.nan), (0, 0.001, 5)),
    ("top_p", (0, 1.1), (0.1, 1)),
    ("min_p", (-0.1, 1.1), (0, 1)),
    ("stop", (("x", ""),), ((), ("x",))),
)
def test_sampling_has_bounds(name, bad, good):
    for value in bad:
        assert name.partition("_")[0] in refusal(Sampling, **{name: value})
    for value in good:
        assert getattr(Sampling(**{name: value}), name) == value


def test_a_run_samples_as_its_recipe_says_and_held_out_prompts_at_their_own_temperature():
    own = {"temperature": 0.9, "max_new_tokens": 7, "top_p": 0.8, "top_k": 5, "min_p": 0.1, "stop": ("x",)}  # fmt: skip
    train = recipe(train={**own, "evaluation_temperature": 0.3}).train
    assert Sampling.of(train) == Sampling(**own)
    assert Sampling.held_out(train) == Sampling(**own | {"temperature": 0.3})
    assert Sampling() == Sampling(0.6, 4096, 1.0, None, 0.0, ())


@each(
    "ratio, said",
    ("0." + "1" * 30, None), ("0." + "1" * 31, "no more than 30 decimal places"), (1, None), (True, "is true"),
    (1.01, "less than or equal to 1"), (-0.1, "greater than or equal to 0"),
)  # fmt: skip
def test_a_ratio_is_taken_as_written_with_30_places(ratio, said):
    tree = {"noise": {"type": "active", "ratio": ratio}}
    if said is None:
        assert recipe(**tree).noise.ratio == Decimal(str(ratio))
        assert validate(recipe(**tree).plain(), "x") == recipe(**tree)
    else:
        assert said in refusal(recipe, **tree)


@each(
    "temperature, said",
    (0, None), (0.001, None), (0.0009, "at least 0.001: samples below it are those of the most likely token"),
)  # fmt: skip
def test_a_temperature_is_0_or_what_float32_can_divide_by(temperature, said):
    train = {"evaluation_temperature": temperature}
    if said is None:
        assert recipe(train=train).train.evaluation_temperature == temperature
    else:
        assert said in refusal(recipe, train=train)


@each(
    "text, name",
    ("a b/c", "a-b-c"), ("..hidden", "hidden"), ("../x", "-x"), ("é", "-"), ("", "run"), ("..", "run"),
    ("a+b_c.d", "a+b_c.d"),
)  # fmt: skip
def test_text_becomes_the_name_of_one_folder(text, name):
    assert folder_name(text) == name


def test_settings_of_other_programs_have_dashes_in_their_keys():
    assert read_pairs(["max-model-len=7", "a.b=x", "s='1'"]) == {
        "max_model_len": 7,
        "a": {"b": "x"},
        "s": "1",
    }
    assert flatten({"a": {"b": {"c": 1}}, "d": 2}) == {"a.b.c": 1, "d": 2}


def test_what_is_put_into_keys_is_a_copy():
    tree, section = {}, {"b": {"c": 1}}
    put(tree, "a", section)
    put(tree, "a.b.d", 2)
    assert (tree, section) == ({"a": {"b": {"c": 1, "d": 2}}}, {"b": {"c": 1}})


@each(
    "sections, extends",
    ({}, True), ({"lr_schedule": "cosine"}, False), ({"lr_warmup_ratio": 0.1}, False),
)  # fmt: skip
def test_only_a_constant_learning_rate_lets_a_run_have_more_epochs(sections, extends):
    assert recipe(train=sections).can_be_extended is extends


@each(
    "key, least, most",
    ("seed", -(2**63), 2**63 - 1),
    ("train.epochs", 1, 2**31 - 1),
    ("method.warmup_epochs", 0, 2**31 - 1),
    ("method.slope_threshold", "-999999.9", "999999.9"),
    ("data.tolerance", 0, 0.99),
    ("train.evaluation_temperature", 0, None),
)
def test_numbers_have_room_for_what_files_and_libraries_hold(key, least, most):
    section, _, name = key.rpartition(".")
    step = Decimal("0.1") if isinstance(least, str) else 1

    def read(number):
        tree = {name: number} if not section else {section: {name: number}}
        tree |= {"method": {"name": "olr", name: number}} if section == "method" else {}
        return flatten(recipe(**tree).plain())[key]

    for bound, outwards in ((least, -step), (most, step)):
        if bound is not None:
            assert Decimal(str(read(bound))) == Decimal(str(bound))
            assert f"{key} is " in refusal(read, str(Decimal(str(bound)) + outwards))
