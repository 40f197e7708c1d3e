"""The plain rewards beside those of TRL and verl, called as these are, on answers about which all should agree."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
from cases import each

from olr_cli.trainers.grading import accuracy_reward, compute_score

HALVES = r"\frac{35}{48}"
SAID = [
    (rf"so \boxed{{{HALVES}}}", HALVES, 1),
    (rf"so \boxed{{{HALVES}}}", "35/48", 1),
    (r"so \boxed{\frac{36}{48}}", HALVES, 0),
    (r"\boxed{0.5}", r"$\frac12$", 1),
    (r"\boxed{12}", r"\boxed{12}", 1),
    (r"\boxed{5}", "9", 0),
    ("no box", "7", 0),
    ("", "7", 0),
]
THOUGHT = [
    (rf"<think> Hm. </think> \boxed{{{HALVES}}}", HALVES, 1),
    (rf"Hm. </think> \boxed{{{HALVES}}}", HALVES, 1),
    (r"<think> Hm. </think> \boxed{36}", "35", 0),
    (r"<think> \boxed{35} </think> That is all.", "35", 0),
    (r"<think> \boxed{35} </think> No: \boxed{36}", "35", 0),
    (r"<think> \boxed{35}", "35", 0),
]
"""(completion, gold, reward): what TRL's own tests ask of its rewards, with other numbers."""


@each("name, cases", ("accuracy_reward", SAID), ("reasoning_accuracy_reward", THOUGHT))
def test_a_reward_is_that_of_trl_in_any_thread(name, cases):
    theirs = getattr(pytest.importorskip("trl.rewards"), name)
    said, golds, rewards = map(list, zip(*cases, strict=True))
    chats = [[{"role": "assistant", "content": text}] for text in said]
    of_a_process = pickle.loads(pickle.dumps(accuracy_reward))
    with ThreadPoolExecutor(1) as thread:
        in_a_thread = thread.submit(of_a_process, chats, solution=golds).result()
    assert theirs(chats, golds) == in_a_thread == rewards


@each(
    "source, extractor, said, gold, score",
    ("openai/gsm8k", "after:####", "so\n#### 72", "72", 1),
    ("openai/gsm8k", "after:####", "so\n#### 1,072", "1072", 1),
    ("openai/gsm8k", "after:####", "so\n#### 73", "72", 0),
    ("openai/gsm8k", "after:####", "72", "72", 0),
    ("HuggingFaceH4/MATH-500", None, r"so \boxed{\frac12}", r"\frac{1}{2}", 1),
    ("HuggingFaceH4/MATH-500", None, r"so \boxed{3}", r"\frac{1}{2}", 0),
)
def test_a_score_is_that_of_verl(source, extractor, said, gold, score):
    theirs = pytest.importorskip("verl.utils.reward_score").default_compute_score
    assert theirs(source, said, gold, {"index": 0}) == score
    assert compute_score(source, said, gold, {"index": 0}, extractor=extractor) == score
