"""`--paper`: the samples and the templates with which the paper's printed scores were made.

docs/evaluation.md ("Beside the paper's scores") lists where the authors' files and scripts
(https://github.com/ShenzhiYang2000/OLR, `data/` and `eval_scripts/`) depart from the paper's text, and what else an
evaluation beside them does otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from olr_cli.engines.prompt_text import ChatFormat
from olr_cli.errors import UserError
from olr_cli.evaluation.benchmark import Benchmark
from olr_cli.evaluation.prompting import Prompting
from olr_cli.evaluation.results import Compared
from olr_cli.evaluation.scores import is_evaluation
from olr_cli.evaluation.store import Protocol, Target

_SAMPLES = {"aime24": 8, "aime25": 8, "amc": 8}
"""Samples of a problem behind the printed scores; 1 for the other benchmarks."""

_JOINED = "{{ bos_token }}{% for message in messages %}{{ message.content }}{% endfor %}"
"""A chat template that joins messages without a separator."""

_WITHOUT_TEMPLATE = frozenset({"DeepSeek-R1-Distill-Llama-8B"})


def protocol_of(compare: Compared, targets: Sequence[Target]) -> Protocol:
    """The protocol of a command: that of the evaluation it goes on with; else the paper's if it is compared with it.

    Raises:
        UserError: evaluations that were begun have different ones.
    """
    begun = {target.store.record().protocol for target in targets if is_evaluation(target.folder)}
    if len(begun) > 1:
        raise UserError(
            "some of these evaluations were begun with --paper and others without; evaluate them one at a time"
        )
    return begun.pop() if begun else "paper" if compare == "paper" else "standard"


def paper_benchmark(benchmark: Benchmark) -> Benchmark:
    """A benchmark with the paper's number of samples, and GPQA's questions without the last line break."""
    changes: dict[str, object] = {"samples": _SAMPLES.get(benchmark.name, 1)}
    if benchmark.name == "gpqa_diamond":
        changes["prompt"] = benchmark.prompt.rstrip("\n")
    return benchmark.model_copy(update=changes)


def paper_prompting(prompting: Prompting, model: str) -> Prompting:
    """The prompting of the paper's row of a model, called as in its tables; a template that the user chose stays."""
    if model not in _WITHOUT_TEMPLATE or prompting.chat.template is not None:
        return prompting
    return replace(prompting, chat=ChatFormat(_JOINED, prompting.chat.variables))
