"""The output of commands in 80 columns and without colours: each line as typed, above its answer.

The texts are stored in `fixtures/transcripts`. After an intended change, `pytest -k shows_these_words --rewrite` writes
them again; read their diff. Standard error has a bar before each line. Times and sizes of files are left out.
"""

import re
import shlex
from pathlib import Path

from commands import olr
from rendered import few_digits

UNSTABLE = {
    r"127\.0\.0\.1:\d+": "HOST",
    r"\b\d+:\d\d left": "TIME left",
    r" +\d+(\.\d+)? (kB|MB|B)\b": " SIZE",
    r"\(\d+\.\d MB\)": "(SIZE)",
    r"digest [0-9a-f]+": "digest DIGEST",
    r'(?<="digest": ")[0-9a-f]{16}(?=")': "DIGEST",
    r"[0-9a-f]{64}": "SHA256",
    r"olr \d+\.\d+\.\d+": "olr VERSION",
    r"-[0-9a-f]{8}\.parquet": "-DIGEST.parquet",
}
"""Patterns of text that differs between runs or versions of a library -> its replacement."""


def transcript(lines, monkeypatch, **slots):
    """Run lines as a user types them after ``olr``, and return each, after ``$``, with its output below.

    A line ``cat FILE`` shows a file. A word that is a key of `slots` is shown, but its value is run.
    """
    texts = []
    for line in lines:
        if line.startswith("cat "):
            texts.append(f"$ {line}\n{stable(Path(line[4:]).read_text('utf-8'))}")
            continue
        words = [slots.get(word, word) for word in shlex.split(line)]
        monkeypatch.setattr("sys.argv", ["olr", *words])
        texts.append(f"$ olr {line}\n{shown(words)}")
    return "\n".join(texts)


def shown(words):
    """Run an `olr` command; return its standard output, then its standard error with a bar before each line.

    An exit status other than 0 follows.
    """
    result = olr(*words)
    text = result.stdout + "".join(f"| {line}\n" for line in result.stderr.splitlines())
    if result.exit_code:
        text += f"(exit status {result.exit_code})\n"
    return stable(text)


def stable(text):
    """Replace what differs between runs and machines, such as digests; round long decimals; strip the ends of lines."""
    for pattern, name in UNSTABLE.items():
        text = re.sub(pattern, name, text)
    text = few_digits(text)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())
