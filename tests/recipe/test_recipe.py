"""A recipe says what is wrong with it in one sentence, and means what is written in it."""

import itertools
from decimal import Decimal
from fractions import Fraction

import pytest
from cases import each, refusal

from olr_cli.answers import Vote
from olr_cli.cli.options import read_columns, read_log_columns
from olr_cli.errors import UserError
from olr_cli.recipe import layers
from olr_cli.recipe.checks import recipe_warnings, steepest_slope, step_warnings
from olr_cli.recipe.layers import find_recipe, load_recipe, overlay, override, validate
from olr_cli.recipe.methods import OlrMethod
from olr_cli.recipe.reference import key_table
from olr_cli.recipe.schema import Recipe, changed_keys
from olr_cli.recipe.sections import ActiveNoiseSection, OpenRlhfEngine
from olr_cli.recipe.sentences import OTHER_NAMES
from olr_cli.recipe.sweep import expand_sweep
from olr_cli.runs.directory import recipe_yaml
from olr_cli.supervision.history import Past

_NO_EXTRACTORS = ("{after: '#', tag: x}", "{before: x}", "{after: 4}", "{}", "[boxed]")


def write(tmp_path, text, name="mine.yaml"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_the_defaults_are_the_papers_settings():
    train, method = Recipe().train, OlrMethod()
    assert (train.prompts_per_step, train.mini_batch_prompts) == (160, 32)
    assert (train.epochs, train.rollouts_per_prompt) == (10, 8)
    assert (train.learning_rate, train.kl_weight, train.clip) == (1e-6, 1e-3, 0.2)
    assert (train.temperature, train.evaluation_temperature, train.max_new_tokens) == (
        1.0,
        0.6,
        4096,
    )
    assert (method.slope_threshold, method.warmup_epochs) == (Decimal("0.05"), 5)


@each(
    "text",
    "noise: {type: active, ratio: 0.3}\nmethod: {name: olr, slope_threshold: 0.05}\n",
    "train: {mini_batch_prompts: null}\n",
    "sweep: {arms: {clean: {noise: null}, noisy: {noise.type: active}}}\n",
)
def test_a_resolved_recipe_is_a_recipe_and_means_the_same(tmp_path, text):
    recipe = load_recipe(write(tmp_path, text))
    again = load_recipe(write(tmp_path, recipe_yaml(recipe), "again.yaml"))
    assert again == recipe
    assert again.digest() == recipe.digest()


def test_held_out_prompts_are_rolled_out_as_often_as_training_ones_unless_it_is_said():
    assert Recipe().train.held_out_rollouts == 8
    own = validate({"train": {"evaluation_samples": 3}}, "x").train
    assert (own.held_out_rollouts, own.rollouts_per_prompt) == (3, 8)


def test_decimals_are_taken_as_written(tmp_path):
    noise = load_recipe(write(tmp_path, "noise: {type: active, ratio: 0.1}")).noise
    assert Fraction(noise.ratio) == Fraction(1, 10)


@each(
    "text, message",
    ("trian: {epochs: 3}", "unknown key 'trian' (did you mean 'train'"),
    ("train: {epoch: 3}", "unknown key 'train.epoch' (did you mean 'train.epochs'"),
    (
        "sweep: {seed: [1, 2]}",
        "unknown key 'sweep.seed'; a sweep has a grid of keys and values, as",
    ),
    ("method: {name: olr, slop: 1}", "did you mean 'method.slope_threshold'"),
    (
        "method: {name: grop}",
        "method.name is 'grop' (did you mean 'grpo'?); known: 'grpo', 'olr'",
    ),
    (
        "noise: {type: active, ratio: 1.5}",
        "noise.ratio is 1.5: input should be less than or equal to 1",
    ),
    (
        "train: {rollouts_per_prompt: 1}",
        "train.rollouts_per_prompt is 1: input should be greater than",
    ),
    ("train: {epochs: many}", "train.epochs is 'many'"),
    ("method: {name: olr, criteria: [slope, slope]}", "each criterion at most once"),
    ("name: ../../etc", "name is '../../etc'"),
    (
        "method: {name: grpo, keep_fraction: 0.5}",
        "method: keep_fraction is set, but prompts is all",
    ),
    (
        "method: {name: random_selection, prompts: all}",
        "is another method; input should be random",
    ),
    (
        "method: {name: grpo, score_reduction: sum}",
        "'method.score_reduction' is a key of method.name",
    ),
    (
        "base: laptop/quickstart\nengine: {nodes: 2}",
        "'engine.nodes' is a key of engine.name openrlhf",
    ),
    (
        "engine: {name: openrlhf}\ntrain: {lora_rank: 8}",
        "train.lora_rank is a key of engine.name local",
    ),
    ("base: nowhere.yaml", "is neither a file"),
    (
        "data: {columns: {questions: x}}",
        "data.columns.questions.[key] is 'questions' (did you mean",
    ),
    (
        "data: {columns: {question: x, prompt: y}}",
        "data.columns: two columns for one role; leave one",
    ),
    (
        "noise: {type: active, draw: unifrm}",
        "noise.draw is 'unifrm' (did you mean 'uniform'?): expected",
    ),
    (
        "trian: {}\nmodle: {}",
        "unknown key 'trian' (did you mean 'train'?) (and 1 more: unknown key",
    ),
    *((f"data: {{extractor: {text}}}", "data.extractor is ") for text in _NO_EXTRACTORS),
)
def test_what_is_wrong_is_said_in_one_sentence(tmp_path, text, message):
    error = refusal(load_recipe, write(tmp_path, text))
    assert message in error
    assert "mine.yaml" in error


def test_overrides_are_yaml_values_and_reach_every_section(tmp_path):
    path = write(tmp_path, "seed: 1")
    recipe = load_recipe(
        path, ["train.epochs=3", "noise.type=active", "noise.ratio=0.5", "data.test=null"]
    )
    noise = ActiveNoiseSection(ratio=Decimal("0.5"))
    assert (recipe.train.epochs, recipe.noise, recipe.data.test) == (3, noise, None)
    with pytest.raises(UserError, match=r"method\.name is \['a'\]; known: 'grpo', 'olr'"):
        load_recipe(write(tmp_path, "method: {name: olr}", "olr.yaml"), ["method.name=[a]"])
    assert "train.epochs is no setting; write it as key=value" in refusal(
        load_recipe, path, ["train.epochs"]
    )
    assert "did you mean 'train.epochs'" in refusal(load_recipe, path, ["train.epoch=3"])


def test_another_kind_drops_the_keys_it_does_not_have():
    tree = {
        "method": {"name": "olr", "slope_threshold": 0.1},
        "noise": {"type": "active", "ratio": 0.5, "draw": "uniform"},
    }
    changed = override(tree, ["method.name=grpo", "noise.type=inactive"])
    assert changed == {
        "method": {"name": "grpo"},
        "noise": {"type": "inactive", "ratio": 0.5},
    }
    assert validate(changed, "x").method.name == "grpo"
    assert overlay(tree, {"method": {"warmup_epochs": 2}})["method"] == tree["method"] | {
        "warmup_epochs": 2
    }


def test_an_error_names_the_layer_that_is_wrong(tmp_path):
    write(tmp_path, "train: {epochs: 0, clip: 0.1}", "base.yaml")
    mine = write(tmp_path, "base: base.yaml\nseed: 3")
    with pytest.raises(UserError, match=r"^\S*base\.yaml: train\.epochs is 0"):
        load_recipe(mine, ["seed=4"])
    with pytest.raises(UserError, match=r"^set: train\.clip is 7"):
        load_recipe(mine, ["train.epochs=2", "train.clip=7"])
    with pytest.raises(
        UserError, match=r"^set: train\.top_k is a key of engine\.name local alone"
    ):
        load_recipe(write(tmp_path, "train: {top_k: 5}"), ["engine.name=openrlhf"])
    with pytest.raises(UserError, match=r"^\S*alone\.yaml: method\.prompts is verified"):
        load_recipe(
            write(tmp_path, "method: {prompts: verified}", "alone.yaml"), ["seed=4"]
        )


def test_a_recipe_builds_on_its_base(tmp_path):
    write(tmp_path, "# base\ntrain: {epochs: 3, prompts_per_step: 8}\n", "base.yaml")
    path = write(tmp_path, "# mine\nbase: base.yaml\ntrain: {epochs: 4}\n")
    assert load_recipe(path).train.epochs == 4
    assert load_recipe(path).train.prompts_per_step == 8
    assert layers.merged_text(path).startswith("# mine\n")
    assert load_recipe(
        write(tmp_path, layers.merged_text(path), "copy.yaml")
    ) == load_recipe(path)
    write(tmp_path, "base: mine.yaml", "base.yaml")
    assert "leads back to itself" in refusal(load_recipe, path)
    write(tmp_path, "base: laptop/quickstart\nname: mine\n", "base.yaml")
    assert load_recipe(path).engine == load_recipe("laptop/quickstart").engine
    assert "did you mean 'laptop/quickstart'" in refusal(find_recipe, "laptop/quikstart")


def test_of_three_layers_the_highest_counts(tmp_path):
    write(
        tmp_path,
        "seed: 1\ntrain: {epochs: 1, rollouts_per_prompt: 2}\nname: low",
        "low.yaml",
    )
    write(tmp_path, "base: low.yaml\nseed: 2\ntrain: {epochs: 2}", "middle.yaml")
    recipe = load_recipe(write(tmp_path, "base: middle.yaml\nseed: 3", "high.yaml"))
    assert (recipe.seed, recipe.train.epochs) == (3, 2)
    assert (recipe.train.rollouts_per_prompt, recipe.name) == (2, "low")


def test_a_name_that_leads_out_of_the_bundled_recipes_is_none_of_them():
    bundled = find_recipe("laptop/quickstart")
    for name in ("paper/../laptop/quickstart", str(bundled.with_suffix(""))):
        assert "does not exist" in refusal(find_recipe, name)


def test_a_sweep_is_arms_times_grid(tmp_path):
    path = write(
        tmp_path,
        "noise: {type: active, ratio: 0.5}\n"
        "sweep:\n  arms: {clean: {noise: null}, olr: {method.name: olr}}\n  grid: {seed: [1, 2], train.epochs: [3]}\n",
    )
    runs = expand_sweep(path)
    arms = ["clean_epochs-3"] * 2 + ["olr_epochs-3"] * 2
    assert [run.arm for run in runs] == arms
    assert [run.place for run in runs] == [
        f"{arm}_seed-{n % 2 + 1}" for n, arm in enumerate(arms)
    ]
    assert runs[0].recipe.noise is None
    assert runs[3].recipe.seed == 2
    assert runs[3].recipe.method == OlrMethod()
    assert "no `sweep` section" in refusal(
        expand_sweep, write(tmp_path, "seed: 1", "plain.yaml")
    )


@each(
    "sweep, message",
    ("{arms: {a/b: {}, a b: {}}}", "would be the folder of two runs"),
    ("{grid: {data.train: [x/y, x:y]}}", "would be the folder of two runs"),
    (
        "{arms: {clean: {noise: null}}, grid: {noise.ratio: [0.1]}}",
        "'clean': noise.ratio: 'noise' is",
    ),
    (
        "{arms: {odd: {noise.ratio: 0.1, noise: null}}}",
        "the sweep's arm 'odd': noise: 'noise' is set",
    ),
)
def test_runs_that_share_a_folder_or_a_replaced_section_are_refused(
    tmp_path, sweep, message
):
    assert message in refusal(
        expand_sweep,
        write(tmp_path, f"noise: {{type: active, ratio: 0.5}}\nsweep: {sweep}"),
    )


def test_keys_of_a_section_add_up_in_any_order(tmp_path):
    path = write(tmp_path, "seed: 1")
    for order in (
        ["train.epochs=3", "train={clip: 0.1}"],
        ["train={clip: 0.1}", "train.epochs=3"],
    ):
        train = load_recipe(path, order).train
        assert (train.epochs, train.clip) == (3, 0.1)
    with pytest.raises(
        UserError, match="set: train: 'train' is set to a value and to a section"
    ):
        load_recipe(path, ["train.epochs=3", "train=5"])
    assert load_recipe(path, ["seed=2", "seed=3"]).seed == 3


def test_an_arms_section_is_the_same_at_every_point_of_the_grid(tmp_path):
    sweep = "{arms: {x: {noise: {type: active}}}, grid: {noise.ratio: [0.1, 0.2]}}"
    ratios = [
        run.recipe.noise.ratio for run in expand_sweep(write(tmp_path, f"sweep: {sweep}"))
    ]
    assert ratios == [Decimal("0.1"), Decimal("0.2")]


def test_the_digest_ignores_what_does_not_decide_the_result():
    recipe = Recipe()
    assert recipe.model_copy(update={"name": "other"}).digest() == recipe.digest()
    assert recipe.model_copy(update={"seed": 1}).digest() != recipe.digest()
    added = recipe.train.model_copy(update={"top_p": 0.9})
    assert recipe.model_copy(update={"train": added}).digest() != recipe.digest()
    assert changed_keys(recipe, recipe.model_copy(update={"seed": 1, "name": "x"})) == [
        "seed: 0 -> 1"
    ]


DIGESTS = {
    "": "a88080e6bdecb56c",
    "method: {name: olr}": "25021780f67bb5e0",
    "method: {name: ttrl}": "d1c8d44ec0079c6b",
    "method: {name: co_reward}": "fc716ed89263f018",
    "method: {name: self_certainty}": "de799704a643f8c2",
    "method: {name: token_entropy}": "1a50f454e53f5020",
    "method: {name: sequence_entropy}": "173c6c4e4eb2dd9a",
    "method: {name: confidence_penalty}": "35d6ffe8c1a33c51",
    "method: {name: label_smoothing}": "9696c88583509505",
    "method: {name: small_loss_selection}": "ff9b857c2467822e",
    "method: {name: random_selection}": "9f1aa94cac003be8",
    "noise: {type: inactive, ratio: 0.3}": "78417f688013dc7b",
    "noise: {type: active, ratio: 0.3}": "31edc88709863651",
    "noise: {type: mixed, ratio: 0.3}": "ac0f24bcd2de6ae6",
    "engine: {name: openrlhf, nodes: 2}": "595607bd928f8b78",
}


@each(
    "setting, key",
    ("num_generations=8", "train.rollouts_per_prompt"),
    ("train.kl_loss_coef=0.1", "train.kl_weight"),
    ("learning_rate=0.1", "train.learning_rate"),
    ("model.top_p=0.9", "train.top_p"),
)
def test_the_names_of_other_trainers_are_understood_well_enough_to_suggest_ours(
    setting, key
):
    with pytest.raises(UserError, match=rf"did you mean '{key}'"):
        validate(override({}, [setting]), "--set")


def test_every_key_with_other_names_exists():
    known = {row["key"] for row in key_table().rows}
    assert OTHER_NAMES.keys() <= known


@each(
    "text, settings, extractor",
    ("after: '####'", [], "after:####"),
    ("tag: answer", [], "tag:answer"),
    (r"regex: 'is (\d+)'", [], r"regex:is (\d+)"),
    ("function: 'mine:read'", [], "mine:read"),
    ("tag: answer", ["data.extractor.regex=x+"], "regex:x+"),
    ("tag: answer", ["data.extractor=after:####"], "after:####"),
    ("tag: answer", ["data.extractor=boxed"], "boxed"),
)
def test_an_extractor_is_a_kind_and_its_text_and_another_replaces_it(
    tmp_path, text, settings, extractor
):
    recipe = load_recipe(write(tmp_path, f"data:\n  extractor: {{{text}}}\n"), settings)
    assert recipe.data.extractor == extractor
    assert load_recipe(write(tmp_path, recipe_yaml(recipe), "resolved.yaml")) == recipe
    other = load_recipe(write(tmp_path, "data: {}"))
    assert recipe.digest() != other.digest()
    assert changed_keys(other, recipe) == [f"data.extractor: unset -> {extractor}"]


@pytest.mark.parametrize(("text", "digest"), DIGESTS.items())
def test_a_recipe_keeps_its_digest_so_that_older_runs_can_be_resumed(
    tmp_path, text, digest
):
    assert load_recipe(write(tmp_path, text)).digest() == digest


@each(
    "text, message",
    ("method: {name: olr, slope_threshold: 0.26}", "no slope exceeds 0.257 at visit 6"),
    (
        "method: {name: olr, warmup_epochs: 30}\ntrain: {epochs: 40}",
        "exceeds 0.048 at visit 31",
    ),
    (
        "method: {name: olr, warmup_epochs: 0}\ntrain: {epochs: 1}",
        "at visit 1, and later ones are",
    ),
    ("method: {name: olr, warmup_epochs: 10, slope_threshold: 9}", "leaves no epoch"),
    ("method: {name: olr}\ntrain: {rollouts_per_prompt: 3}", "poor vote"),
    ("method: {name: ttrl}\ntrain: {rollouts_per_prompt: 2}", "poor vote"),
    ("train: {mini_batch_prompts: 48}", "does not divide"),
    ("train: {mini_batch_prompts: 500}", "each step is one mini-batch"),
    ("train: {lora_rank: 8}", "usually take ten times the learning rate of all weights"),
)
def test_likely_mistakes_are_warned_of(tmp_path, text, message):
    (warning,) = recipe_warnings(load_recipe(write(tmp_path, text)))
    assert message in warning


def test_the_steepest_slope_is_that_of_the_best_of_all_histories():
    def best(visits):
        votes = itertools.product(range(3), repeat=visits)
        pasts = (
            Past.of([Vote.stored("1", "1", count, 2) for count in counts])
            for counts in votes
        )
        return max(Fraction(*past.slope_ratio) for past in pasts)

    steepest = [steepest_slope(visits) for visits in range(1, 9)]
    assert steepest == [best(visits) for visits in range(1, 9)]
    assert steepest[1:] == sorted(steepest[1:], reverse=True)


def test_a_sound_recipe_gives_no_warning():
    assert recipe_warnings(Recipe(method=OlrMethod())) == []
    steep = OlrMethod(warmup_epochs=1, slope_threshold="0.99")
    assert recipe_warnings(Recipe(method=steep)) == []
    assert step_warnings(Recipe(), 800) == []
    assert "of each epoch has 80" in step_warnings(Recipe(), 400)[0]
    assert "one step an epoch" in step_warnings(Recipe(), 100)[0]


@pytest.mark.parametrize(
    "path", layers.recipes_by_name().values(), ids=lambda path: path.stem
)
def test_every_recipe_that_comes_with_olr_is_valid_and_says_how_to_launch_it(path):
    recipe = load_recipe(path)
    assert recipe_warnings(recipe) == []
    assert path.read_text().startswith("# ")
    assert "olr train" in path.read_text()
    if recipe.sweep is not None:
        assert expand_sweep(path)


@each(
    "method, is_warned",
    ({"name": "ttrl"}, True),
    ({"name": "ttrl", "prompts": "random"}, False),
    ({"name": "grpo"}, False),
)
def test_noise_that_changes_nothing_in_training_is_warned_of(method, is_warned):
    """A random half of the prompts trains because half are marked."""
    recipe = validate({"method": method, "noise": {"type": "active", "ratio": 0.5}}, "x")
    assert bool(recipe_warnings(recipe)) == is_warned


def test_columns_of_logs_and_of_data_are_named_alike():
    theirs, ours = (
        {"data": {"columns": {prompt: "q", label: "a"}}}
        for prompt, label in (("prompt", "label"), ("question", "answer"))
    )
    assert validate(theirs, "x") == validate(ours, "x")
    assert read_columns(["{prompt: q, given_label: a}"]) == {"question": "q", "answer": "a"}
    assert read_log_columns(["question=q,label=a"]) == {"prompt": "q", "given_label": "a"}


def test_a_mix_is_a_recipe_and_another_method_starts_from_its_own_defaults():
    mix = validate(
        {"method": {"name": "olr", "penalty_weight": 0.01, "prompts": "random"}}, "x"
    ).method
    assert (mix.slope_threshold, mix.penalty_weight) == (Decimal("0.05"), 0.01)
    mixed = {"method": {"name": "label_smoothing", "smoothing": 0.3, "prompts": "random"}}
    other = validate(override(mixed, ["method.name=grpo"]), "x").method
    assert (other.smoothing, other.prompts) == (0, "all")
    same = validate(
        override(mixed, ["method.name=label_smoothing", "method.penalty_weight=0.1"]), "x"
    ).method
    assert (same.smoothing, same.prompts, same.penalty_weight) == (0.3, "random", 0.1)


def test_what_a_sweep_sets_itself_cannot_be_set_for_all_its_runs():
    with pytest.raises(
        UserError, match=r"^set method\.name: \d+ of the sweep's arms set that \(ttrl, …\)"
    ):
        expand_sweep("laptop/baselines", ["method.name=grpo"])
    with pytest.raises(
        UserError, match=r"^set seed: the sweep's grid sets that; set 'sweep\.grid\.seed"
    ):
        expand_sweep("laptop/baselines", ["seed=7"])
    seeds = {
        run.recipe.seed for run in expand_sweep("laptop/baselines", ["sweep.grid.seed=[7]"])
    }
    assert seeds == {7}


def on_a_stored_recipe(folder, stored, mine=""):
    """A recipe whose base lies in a run directory."""
    (folder / "stored").mkdir()
    (folder / "stored" / "manifest.json").touch()
    write(folder / "stored", stored, "recipe.yaml")
    return write(folder, f"base: stored/recipe.yaml\n{mine}")


@each(
    "sweep, refused",
    ("{grid: {seed: [1]}}", True),
    ("{arms: {a: {data.extractor: 'mine:read'}}}", False),
)
def test_a_sweep_of_the_users_grants_only_the_functions_that_it_names(
    tmp_path, sweep, refused
):
    mine = on_a_stored_recipe(
        tmp_path, "data: {extractor: 'mine:read'}\n", f"sweep: {sweep}\n"
    )
    (run,) = expand_sweep(mine)
    assert run.recipe.strangers == ({"data.extractor"} if refused else set())
    assert load_recipe(mine, ["data.extractor=mine:read"]).strangers == set()
    assert load_recipe(mine, ["data.extractor=mine:other"]).strangers == set()


def test_the_functions_of_a_verifier_are_granted_by_who_names_them(tmp_path):
    function = "{function: 'mine:errs', false_positive_rate: 1}"
    where = f"{{where: [{function}, {{answer: '1$', false_negative_rate: 1}}]}}"
    mine = on_a_stored_recipe(tmp_path, f"verifier: {where}\n")
    remedy = r"a stored file names a function; .* set verifier\.where=\[.*\] again"
    with pytest.raises(UserError, match=remedy) as refused:
        load_recipe(mine).require_named()
    again = str(refused.value).partition(" set ")[2].removesuffix(" again")
    assert load_recipe(mine, [again]).strangers == set()
    (run,) = expand_sweep(
        write(tmp_path, f"sweep: {{arms: {{a: {{verifier: {where}}}}}}}\n", "sweep.yaml")
    )
    assert run.recipe.strangers == set()


@each("text, what", ("[1]", "a list"), ("5", "the value 5"), ("'x'", "text"))
def test_a_recipe_that_is_no_keys_and_values_is_called_what_it_is(tmp_path, text, what):
    said = refusal(load_recipe, write(tmp_path, text))
    assert f"mine.yaml holds {what}, not the keys of a recipe" in said


@pytest.mark.parametrize(
    "keys, engines",
    [
        ({"colocate": False}, 1),
        ({"colocate": False, "vllm_engines": 3}, 3),
        ({"colocate": True, "gpus_per_node": 8}, 8),
        ({"colocate": True, "gpus_per_node": 8, "nodes": 2, "tensor_parallel": 4}, 4),
        ({"colocate": True, "gpus_per_node": 1, "tensor_parallel": 2}, 1),
    ],
)
def test_there_are_as_many_vllm_engines_as_fit_beside_the_policy_and_at_least_one(
    keys, engines
):
    assert OpenRlhfEngine(**keys).engines == engines
