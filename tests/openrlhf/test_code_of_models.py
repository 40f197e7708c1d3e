"""What OpenRLHF's own loaders do with a model that comes with code, in a process of a job."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from olr_cli.engines.models import policy_path

CODE = """
from pathlib import Path
from transformers import PreTrainedTokenizerFast, ProcessorMixin, Qwen3ForCausalLM

Path({mark!r}).touch()

class Model(Qwen3ForCausalLM):
    pass

class Tokenizer(PreTrainedTokenizerFast):
    pass

class Processor(ProcessorMixin):
    pass

def generate(model, *_, **__):
    pass
"""

IN_A_JOB = """
import os, sys
from olr_cli.engines.openrlhf.bridges import bridge_process, environment
os.environ |= environment(trusts_code=sys.argv[1] == "1", device="cpu")
bridge_process()
from openrlhf.models.actor import Actor
from openrlhf.utils.utils import get_tokenizer
for model in sys.argv[2:]:
    for load in (lambda: get_tokenizer(model, None), lambda: Actor(model, attn_implementation="sdpa")):
        try:
            load()
        except Exception as error:
            print(type(error).__name__, error)
"""


def change(file, **values):
    before = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(before | values))


@pytest.fixture
def models(tmp_path):
    """Models whose weights, tokenizer, processor and generation come with code; it leaves a mark when it is run."""
    made = []
    for where in ("weights", "tokenizer", "processor", "generation"):
        model = shutil.copytree(policy_path("addition-easier"), tmp_path / where)
        code = CODE.format(mark=str(model / "ran"))
        (model / "odd.py").write_text(code)
        if where == "weights":
            change(model / "config.json", auto_map={"AutoModelForCausalLM": "odd.Model"})
        elif where == "tokenizer":
            change(
                model / "tokenizer_config.json",
                auto_map={"AutoTokenizer": ["odd.Tokenizer"] * 2},
            )
        elif where == "processor":
            change(model / "config.json", vision_config={})
            change(
                model / "processor_config.json", auto_map={"AutoProcessor": "odd.Processor"}
            )
        else:
            (model / "custom_generate").mkdir()
            (model / "custom_generate" / "generate.py").write_text(code)
        made.append(model)
    return made


@pytest.mark.parametrize("is_trusted", [False, True])
def test_code_that_comes_with_a_model_is_run_only_if_the_recipe_trusts_it(
    models, is_trusted, tmp_path
):
    environment = os.environ | {"HF_MODULES_CACHE": str(tmp_path / "modules")}
    words = [sys.executable, "-c", IN_A_JOB, str(int(is_trusted)), *map(str, models)]
    told = subprocess.run(
        words, capture_output=True, text=True, check=True, env=environment
    )
    assert [(model / "ran").exists() for model in models] == [is_trusted] * len(models)
    refused = told.stdout.count("UserError the model comes with code of its own")
    assert (refused >= len(models)) == (not is_trusted)
