"""Nothing evaluates text as code: what the package calls, and what models, templates, answers and pickles may try."""

import ast
import functools
import json
import os
import pickle
import random
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from make_toys import build_tokenizer
from outcomes import reopen
from sentences import cases, olr, options, refusal
from transformers import dynamic_module_utils

from olr_cli.answers import EXTRACTORS, Judge, extract
from olr_cli.data.chat import Message
from olr_cli.data.hub import HubId, load_hub_table
from olr_cli.engines import prompt_text
from olr_cli.engines.backends.vllm_backend import read_model
from olr_cli.engines.local.policy import Policy
from olr_cli.engines.models import load_tokenizer, policy_path
from olr_cli.engines.openrlhf.flags import BY_KEYS, BY_OLR, arguments
from olr_cli.engines.openrlhf.starting_model import StartingModel
from olr_cli.errors import UserError
from olr_cli.recipe.layers import validate
from olr_cli.recipe.section import flatten
from olr_cli.runs.checkpoints import write_checkpoint

PACKAGE = Path(prompt_text.__file__).parents[1]

# What the package calls ---------------------------------------------------------------------------------------------

FORBIDDEN = {
    "eval", "exec", "compile", "__import__", "input", "breakpoint", "types.FunctionType", "code.interact",
    "os.system", "os.popen", "os.execv", "os.execve", "os.execvp", "os.spawnv", "pty.spawn",
    "runpy.run_module", "runpy.run_path", "import_module", "importlib.import_module", "exec_module",
    "resolve_name", "pkgutil.resolve_name",
    "spec_from_file_location", "pickle.load", "pickle.loads", "pickle.Unpickler", "marshal.load", "marshal.loads",
    "shelve.open", "dill.load", "dill.loads", "joblib.load", "cloudpickle.loads", "pandas.read_pickle",
    "load_from_disk", "yaml.load", "yaml.unsafe_load", "sympify", "sympy.sympify", "parse_expr", "sympy.parse_expr",
    "parse_latex", "sympy.S", "lambdify", "sympy.lambdify", "Template", "jinja2.Template", "Environment",
}  # fmt: skip
NEVER = {
    "marshal",
    "shelve",
    "dill",
    "joblib",
    "cloudpickle",
    "pty",
    "code",
    "yaml",
    "pickle",
}
"""Modules that make objects of text."""
EXCUSE = "# no user's text: "
"""Begins the comment above a line that may do what the scan looks for, and says why."""


@functools.cache
def sources() -> dict[str, list[str]]:
    """The lines of every module of the package, by its path."""
    return {
        file.relative_to(PACKAGE).as_posix(): file.read_text(encoding="utf-8").splitlines()
        for file in sorted(PACKAGE.rglob("*.py"))
    }


@functools.cache
def nodes() -> list[tuple[str, ast.AST]]:
    """Everything that the package's modules say, and where."""
    return [
        (file, node)
        for file, lines in sources().items()
        for node in ast.walk(ast.parse("\n".join(lines)))
    ]


def calls() -> Iterator[tuple[str, ast.Call, str]]:
    """Every call in the package: the file, the call, and what is called as it is written."""
    return (
        (file, node, ast.unparse(node.func))
        for file, node in nodes()
        if isinstance(node, ast.Call)
    )


def keywords(call: ast.Call) -> dict[str | None, str]:
    return {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}


def test_the_package_evaluates_no_text_but_where_a_comment_says_why():
    excused = {
        (file, n)
        for file, lines in sources().items()
        for n, line in enumerate(lines, 1)
        if EXCUSE in line
    }
    found = set()
    for file, call, called in calls():
        if called in FORBIDDEN or called.rpartition(".")[2] in (
            "exec_module",
            "import_module",
        ):
            found.add((file, call.lineno - 1))
    assert found == excused


def test_no_module_that_makes_objects_of_text_is_imported():
    for file, node in nodes():
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not all(
            alias.name.endswith("Error") for alias in node.names
        ):
            names.append(node.module or "")  # an error to catch makes nothing
        assert not NEVER & set(names), file


def test_every_loader_is_told_to_take_data_only():
    """torch.load, numpy.load, YAML's readers, processes without a shell, and models without their code."""
    loaders = 0
    for file, call, called in calls():
        given_ = keywords(call)
        place = f"{file}:{call.lineno}: {ast.unparse(call)[:100]}"
        if called == "torch.load":
            assert given_["weights_only"] == "True", place
        elif called in ("np.load", "numpy.load"):
            assert given_.get("allow_pickle", "False") == "False", place
        elif called == "YAML":
            assert not call.args and given_ in ({}, {"typ": "'safe'", "pure": "True"}), (
                place
            )
        elif called.startswith("subprocess.") or called == "Popen":
            assert given_.get("shell", "False") == "False", place
        elif called.endswith("PeftModel.from_pretrained"):
            # And not the adapter's file, which may name modules
            assert given_["config"] == "settings", place
        elif called.endswith(".from_pretrained") and not called.startswith(
            "GenerationConfig"
        ):
            loaders += 1
            told = given_.get("trust_remote_code", given_.get(None, ""))
            assert told in ("trust_remote_code", "remote"), place
        elif called.endswith("load_dataset"):
            assert "trust_remote_code" not in given_, place
    assert loaders >= 4


def test_code_is_trusted_only_where_a_recipe_or_an_option_says_so():
    for file, call, _ in calls():
        for name, value in keywords(call).items():
            if name == "trust_remote_code":
                assert value.rpartition(".")[2] == "trust_remote_code", (
                    f"{file}:{call.lineno}"
                )
    for file, lines in sources().items():
        assert "trust_remote_code=True" not in "\n".join(lines).replace(
            "`trust_remote_code=True`", ""
        ), file


POLARS_READERS = {
    "read_parquet", "scan_parquet", "read_csv", "scan_csv", "read_ndjson", "scan_ndjson", "read_ipc", "scan_ipc",
    "scan_lines", "scan_delta", "scan_iceberg",
}  # fmt: skip
ARROW_READERS = {
    "ParquetFile",
    "ParquetDataset",
    "read_table",
    "open_csv",
    "read_json",
    "open_json",
}
"""Readers of pyarrow, which take part of a path for columns of a partitioned data set."""


def test_foreign_tables_are_read_in_one_place_and_paths_are_no_patterns():
    """`table_files.py` reads some rows at a time, up to a limit; `shards.py` reads shards, checked by their marks.

    By default polars expands patterns, and reads another run whose name fits.
    """
    readers = set()
    for file, call, called in calls():
        name = called.rpartition(".")[2]
        if name in POLARS_READERS:
            assert keywords(call).get("glob") == "False", f"{file}:{call.lineno}"
        if name in POLARS_READERS | ARROW_READERS and name != called:
            readers.add(file)
    assert readers == {"data/table_files.py", "runs/shards.py", "analysis/replay.py"}


# Code that comes with a model ---------------------------------------------------------------------------------------

CODE = """
from pathlib import Path
from transformers import PreTrainedTokenizerFast, ProcessorMixin, Qwen3Config, Qwen3ForCausalLM

Path({mark!r}).touch()

class Config(Qwen3Config):
    pass

class Model(Qwen3ForCausalLM):
    config_class = Qwen3Config

class Tokenizer(PreTrainedTokenizerFast):
    pass

class Processor(ProcessorMixin):
    pass

def generate(model, *_, **__):
    pass
"""


@pytest.fixture(autouse=True)
def modules_of_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where transformers keeps the code of models, for one test."""
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr("sys.path", sys.path[:])
    yield
    for name in [name for name in sys.modules if name.startswith("transformers_modules")]:
        del sys.modules[name]


CHANGES: dict[str, dict[str, dict[str, Any]]] = {
    "config": {"config.json": {"auto_map": {"AutoConfig": "odd.Config"}}},
    "unknown config": {
        "config.json": {"auto_map": {"AutoConfig": "odd.Config"}, "model_type": "odd"}
    },
    "weights": {"config.json": {"auto_map": {"AutoModelForCausalLM": "odd.Model"}}},
    "tokenizer": {
        "tokenizer_config.json": {"auto_map": {"AutoTokenizer": ["odd.Tokenizer"] * 2}}
    },
    "processor": {
        "config.json": {"vision_config": {}},
        "processor_config.json": {
            "auto_map": {"AutoProcessor": "odd.Processor"},
            "processor_class": "X",
        },
    },
}
"""What a model's files say of code beside them."""


def changed_policy(folder: Path, changes: Mapping[str, Mapping[str, Any]]) -> Path:
    """A built-in policy with other values in its JSON files."""
    model = Path(shutil.copytree(policy_path("addition-easier"), folder))
    for name, values in changes.items():
        before = json.loads((model / name).read_text()) if (model / name).exists() else {}
        (model / name).write_text(json.dumps({**before, **values}))
    return model


def model_with_code(folder: Path, where: str) -> Path:
    """A built-in policy that says that code beside it is part of it; the code leaves a mark when it is run."""
    model = changed_policy(folder / where, CHANGES.get(where, {}))
    (model / "odd.py").write_text(CODE.format(mark=str(folder / "ran")))
    if where == "generation":
        (model / "custom_generate").mkdir()
        shutil.copy(model / "odd.py", model / "custom_generate" / "generate.py")
    return model


LOADERS: dict[str, Callable[[Path], object]] = {
    "training": lambda model: Policy.load(model, device="cpu"),
    "openrlhf": lambda model: StartingModel.look_at(str(model), trust_remote_code=False),
    "vllm": lambda model: read_model(str(model), trust_remote_code=False),
    "show": lambda model: load_tokenizer(str(model), trust_remote_code=False),
}


@pytest.mark.parametrize("where", [*CHANGES, "generation"])
@pytest.mark.parametrize("loader", LOADERS)
def test_code_that_comes_with_a_model_is_not_run(tmp_path, where, loader):
    model = model_with_code(tmp_path, where)
    try:
        LOADERS[loader](model)
        assert loader != "openrlhf"  # which would run it later
    except UserError as error:
        assert "trust" in str(error)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("where", ["config", "unknown config"])
def test_openrlhfs_command_reads_a_configuration_with_code_that_is_trusted(tmp_path, where):
    model = model_with_code(tmp_path, where)
    assert StartingModel.look_at(str(model), trust_remote_code=True).context_length == 64
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("where", ["weights", "generation"])
def test_a_command_runs_it_only_when_told_so(tmp_path, where):
    model = model_with_code(tmp_path, where)
    words = ["train", "laptop/quickstart", "--dry-run"]
    settings = [f"model.path={model}", "data.limit=4", "data.test=null"]
    assert olr(*words, *options(*settings))[0] == 0
    assert not (tmp_path / "ran").exists()
    assert olr(*words, *options(*settings, "model.trust_remote_code=true"))[0] == 0
    assert (tmp_path / "ran").exists()


FOREIGN: dict[str, dict[str, dict[str, Any]]] = {
    "attention": {"config.json": {"attn_implementation": "evil/kernel"}},
    "attention, private": {
        "config.json": {"_attn_implementation": "evil/kernel@main:forward"}
    },
    "attention by part": {
        "config.json": {"attn_implementation": {"": "sdpa", "text_config": "evil/kernel"}}
    },
    "attention of a part": {
        "config.json": {"text_config": {"_attn_implementation": "paged|evil/kernel"}}
    },
    "experts": {"config.json": {"experts_implementation": "evil/kernel"}},
    "adapter": {
        "adapter_config.json": {
            "peft_type": "LORA",
            "base_model_name_or_path": "evil/model",
        }
    },
}
"""What makes transformers fetch and run code once the packages kernels and peft are installed."""


@pytest.mark.parametrize("where", FOREIGN)
@pytest.mark.parametrize("loader", LOADERS)
def test_kernels_and_adapters_that_a_model_names_are_not_fetched(tmp_path, where, loader):
    model = changed_policy(tmp_path / "model", FOREIGN[where])
    expected = "is an adapter" if where == "adapter" else "names the kernel '.*evil/"
    with pytest.raises(UserError, match=expected):
        LOADERS[loader](model)


@pytest.mark.parametrize("loader", LOADERS)
def test_implementations_of_transformers_are_no_kernels(tmp_path, loader):
    LOADERS[loader](
        changed_policy(
            tmp_path / "model", {"config.json": {"attn_implementation": "eager"}}
        )
    )


def test_a_model_with_garbled_files_is_refused_in_a_sentence(tmp_path, is_long):
    model = Path(shutil.copytree(policy_path("addition-easier"), tmp_path / "model"))
    draw, refused, rounds = random.Random(0), 0, 200 if is_long else 3
    for name in (
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "model.safetensors",
    ):
        whole = (model / name).read_bytes()
        for number in range(rounds):
            garbled = bytearray(whole)
            for _ in range(draw.randint(1, 4)):  # where the files say what they are
                garbled[draw.randrange(min(len(whole), 3000))] = draw.randrange(32, 127)
            (model / name).write_bytes(
                garbled[: draw.randrange(len(whole)) if number % 10 == 0 else None]
            )
            for load in (LOADERS["training"], LOADERS["openrlhf"]):
                try:
                    load(model)
                except UserError as error:
                    assert str(error).isprintable()
                    refused += 1
        (model / name).write_bytes(whole)
    assert refused
    print(f"\n  {rounds * 8} readings of garbled models, {refused} refused", end="")


# Pickles ------------------------------------------------------------------------------------------------------------


class Bomb:
    """Unpickled, it leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self._mark,)


def test_a_bomb_goes_off_where_pickles_are_read(tmp_path):
    pickle.loads(pickle.dumps(Bomb(tmp_path / "ran")))
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "model.pt", "model.ckpt", "consolidated.00.pth"]
)
@pytest.mark.parametrize("loader", ["training", "openrlhf", "vllm"])
def test_weights_that_are_pickles_are_refused_and_not_read(tmp_path, name, loader):
    model = Path(shutil.copytree(policy_path("addition-easier"), tmp_path / "model"))
    (model / "model.safetensors").unlink()
    torch.save({"weight": Bomb(tmp_path / "ran")}, model / name)
    message = refusal(lambda: LOADERS[loader](model))
    assert (
        f"has no safetensors weights but {name}" in message and "convert it once" in message
    )
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_a_checkpoint_whose_optimiser_is_a_bomb_does_not_go_off(tmp_path):
    tiny = ["data.limit=4", "data.test=null", "train.prompts_per_step=2", "train.mini_batch_prompts=2",
            "train.epochs=2", "train.rollouts_per_prompt=2", "train.max_new_tokens=4",
            "train.checkpoint_every=1"]  # fmt: skip
    command = ["train", "laptop/quickstart", *options(*tiny), "--run-dir", tmp_path / "run"]
    assert olr(*command)[0] == 0
    before_last, last = sorted((tmp_path / "run" / "checkpoints").glob("step-*"))
    shutil.rmtree(last)  # or there would be nothing left to train
    copy = shutil.move(before_last, tmp_path / "copy")
    torch.save({"state": Bomb(tmp_path / "ran")}, copy / "optimizer.pt")
    (copy / "files.json").unlink()  # it is written anew, and fits
    fill = functools.partial(shutil.copytree, copy, dirs_exist_ok=True)
    write_checkpoint(
        tmp_path / "run", int(before_last.name.removeprefix("step-")), fill, keep=2
    )
    reopen(tmp_path / "run")
    status, said = olr(*command, "--resume")
    assert status == 2 and "it has no state of this run's optimiser" in said, said
    assert not (tmp_path / "ran").exists()


# Chat templates -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("template", cases("chat_templates"), ids=str)
def test_a_hostile_chat_template_is_an_error_and_nothing_else(tmp_path, template):
    tokenizer = build_tokenizer(64)
    mark = tmp_path / "ran"
    tokenizer.chat_template = (
        template.replace("MARK", str(mark)) if isinstance(template, str) else template
    )
    message = refusal(
        lambda: prompt_text.render(tokenizer, [Message("user", "1+1")]), longest=700
    )
    assert "the chat template" in message
    assert not mark.exists()


# Answers and settings -----------------------------------------------------------------------------------------------


def test_no_answer_is_run():
    """Through every extractor and the verifier, as an answer and as the label."""
    # Of few letters: each is a symbol to the verifier, which takes its time
    mark = Path("/tmp", str(os.getpid()))
    texts = [call.format(mark=mark) for call in cases("calls")]
    responses = [
        *texts,
        *(f"so it is \\boxed{{{text}}}" for text in texts),
        *(f"${text}$" for text in texts),
    ]
    read = {extract(response, name) for response in responses for name in EXTRACTORS}
    answers = sorted({answer for answer in read if answer is not None} | set(texts))
    with Judge() as judge:
        assert set(judge.keys(answers)) == set(answers)
        judge.matches([(gold, answer) for answer in answers for gold in ("4", answers[0])])
        judge.matches([(answer, "4") for answer in answers])
    assert not mark.exists() and not Path("ran").exists()


WORDS = (
    st.text(max_size=12)
    | st.sampled_from([f"--{name}" for name in (BY_KEYS | BY_OLR)])
    | st.integers()
    | st.booleans()
)
FLAGS = st.dictionaries(
    st.sampled_from(["actor.optim", "ds.tensor_parallel_size", "x.y"]),
    WORDS | st.lists(WORDS, max_size=3),
)


@given(flags=FLAGS)
def test_no_value_of_a_flag_is_a_flag_of_its_own_on_openrlhfs_command_line(flags):
    """OpenRLHF loads some of its flags' files as code; those are refused by name, and values cannot name them."""
    try:
        recipe = validate({"engine": {"name": "openrlhf", "flags": flags}}, "x")
    except UserError:
        return
    words = arguments(flatten(recipe.engine.plain()["flags"]))
    assert {word for word in words if word.startswith("--")} <= {
        f"--{name}" for name in flatten(flags)
    }


def test_a_datasets_package_that_runs_scripts_is_not_used(monkeypatch):
    from types import ModuleType

    old = ModuleType("datasets")
    old.__version__ = "3.6.0"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", old)
    with pytest.raises(UserError, match="can run code that comes with a data set"):
        load_hub_table(HubId("org/name", None, None, None), "train")
