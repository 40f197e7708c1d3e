"""Data for the question why Co-Reward does so well on the built-in task: its second view is another calculation.

Writes 400 built-in prompts with other rephrasings than their own, one file a kind and seed:

    identical   the prompt itself: two groups of rollouts of one prompt label each other
    commuted    b+a= for a+b=: the wrong procedure (dropped carries) gives the same wrong answer

    python benchmarks/co_reward_views.py data/views 1 2 3 4 5
    olr train laptop/quickstart --set noise=null --set method.name=co_reward --set seed=1 \
        --set data.train=data/views/commuted-1.parquet --run-dir runs/views/commuted-1
"""

import argparse
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from olr_cli.data.chat import Message
from olr_cli.data.interchange import interchange_table
from olr_cli.data.prompt_files import read_prompts
from olr_cli.data.writers import write_prompts


def identical(prompt):
    """The prompt itself."""
    return prompt.messages


def commuted(prompt):
    """Its two numbers in the other order."""
    left, right = prompt.messages[0].content.rstrip("=").split("+")
    return (Message("user", f"{right}+{left}="),)


def main():
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("seeds", type=int, nargs="+")
    arguments = parser.parse_args()
    for seed in arguments.seeds:
        builtin = read_prompts("arithmetic", split="train", limit=400, seed=seed)
        for rephrase in (identical, commuted):
            prompts = tuple(
                replace(prompt, rephrased=rephrase(prompt)) for prompt in builtin.prompts
            )
            bare = pa.table(
                {
                    "reward_model": builtin.table["reward_model"],
                    "extra_info": builtin.table["extra_info"],
                }
            )
            table = interchange_table(bare, prompts, "train")
            target = arguments.folder / f"{rephrase.__name__}-{seed}.parquet"
            write_prompts(replace(builtin, prompts=prompts, table=table), target)
            print(target)


if __name__ == "__main__":
    main()
