"""What commands show, in 80 columns and without colours: lines as typed, each above its answer.

The texts are stored in `fixtures/transcripts`. After a change that is meant, `pytest -k shows_these_words --rewrite`
writes them anew; read their diff. Standard error has a bar before each line; times and sizes of files are left out.
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
"""What is another at every run, or with every version of a library."""


def transcript(lines, monkeypatch, **slots):
    """The lines with their answers, of `cat FILE` the file; `slots` are words that stand for others."""
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
    """What a terminal shows, then what standard error has."""
    result = olr(*words)
    text = result.stdout + "".join(f"| {line}\n" for line in result.stderr.splitlines())
    if result.exit_code:
        text += f"(exit status {result.exit_code})\n"
    return stable(text)


def stable(text):
    """The text without what differs, spaces at the ends of lines, and digits that depend on versions of libraries."""
    for pattern, name in UNSTABLE.items():
        text = re.sub(pattern, name, text)
    text = few_digits(text)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())
