"""Coverage-guided fuzzing of what is made of answers: libFuzzer, by way of atheris, looks for texts that break a law.

    make fuzz                                                   # every law, FUZZ_RUNS texts in all
    python tests/hard/fuzz_answers.py --runs 100000 notation    # one law
    python tests/hard/fuzz_answers.py --keep                    # and add to the corpus what covers more of the code

Starts from the corpus in tests/fixtures/answers, which ordinary tests go through. Prints a JSON line a law: how many
texts, how long, and the memory in use at the start, in the middle and at the end. A text that breaks a law, takes
longer than it may or more memory is printed and ends all with exit status 1.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 1_200_000
SHARES = {
    "extraction": 0.37,
    "notation": 0.30,
    "comparison": 0.30,
    "parsing": 0.015,
    "classes": 0.015,
}
LONGEST = {
    "extraction": 2000,
    "notation": 1500,
    "comparison": 400,
    "parsing": 120,
    "classes": 240,
}
"""Largest number of bytes of a text."""
SECONDS = {"parsing": 60, "classes": 60}
"""Time limit of a text; laws without computer algebra have 5 seconds."""
KEPT_BYTES = 300
KEPT_SECONDS = 0.05

_TOKENS = r"""
\boxed{ \frac \dfrac{ \frac{1}{2} \sqrt \sqrt[3]{ \left( \right) \{ \} \text{ \mathrm{ \textbf{ \mbox{ \operatorname{
\overline{ \mathbb{R} \\ \, \! \% \$ $ ^\circ ^{ _{ \cdot \times 10^{ \pm \infty -\infty \cup \cap \in \emptyset \le
\ne \pi \theta \sin \log_ \ln \exp \binom{ \int \sum_{ \prod \lim_{ \to \begin{pmatrix} \end{pmatrix} & \max \gcd \mod
\lfloor \rfloor and or percent 1,234 0.5 1e3 1/2 -3 100 ² √ π − ° × ½ **
"""
TOKENS = (*_TOKENS.split(), "\\ ", "\n", " ")
"""Texts that a mutation may insert, besides bytes."""


def text_of(data: bytes) -> str:
    """Return the text that libFuzzer's bytes stand for, any bytes; it may have lone surrogates."""
    return data.decode("utf-8", "surrogateescape")


def bytes_of(text: str) -> bytes:
    """Return bytes for libFuzzer's corpus, of which `text_of` makes the same text unless it has lone surrogates."""
    return text.encode("utf-8", "surrogatepass")


def fuzz(law: str, arguments: list[str], runs: int) -> None:
    """Try `runs` texts on a law, in this process, which libFuzzer ends; print the memory in use at times.

    `arguments` are libFuzzer's flags and folders.
    """
    import atheris

    with atheris.instrument_imports(include=["olr_cli.answers", "latex2sympy2_extended"]):
        from answer_laws import LAWS
    check, done = LAWS[law], 0
    # The laws print exact numbers of any length.
    sys.set_int_max_str_digits(0)

    def one(data: bytes) -> None:
        nonlocal done
        check(text_of(data))
        done += 1
        if done in (1000, runs // 2, runs - 1000):
            print(json.dumps({"after": done, "rss_mb": _resident()}), flush=True)

    atheris.Setup([os.environ["FUZZER"], *arguments], one)
    atheris.Fuzz()


def _resident() -> dict[str, int]:
    """Return the resident megabytes of this process (``own``) and of all its descendants (``workers``)."""
    processes = [os.getpid()]
    for process in processes:
        children = Path(f"/proc/{process}/task/{process}/children")
        processes += map(int, children.read_text().split() if children.exists() else [])
    sizes = [
        int(Path(f"/proc/{p}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        >> 20
        for p in processes
    ]
    return {"own": sizes[0], "workers": sum(sizes[1:])}


def run(law: str, runs: int, *, keep: bool) -> dict[str, object]:
    """Fuzz one law with `runs` texts in a process of its own; return its name, the texts, the seconds and the memory.

    With `keep`, store a smallest corpus that covers the same code, of texts that are short and quick.

    Raises:
        SystemExit: the law was broken.
    """
    from answer_laws import CORPUS, corpus

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        seeds, fewest = folder / "corpus", folder / "fewest"
        for each in (seeds, fewest):
            each.mkdir()
        for number, text in enumerate(corpus(law)):
            (seeds / f"{number:04}").write_bytes(bytes_of(text))
        tokens = folder / "tokens"
        tokens.write_text("".join(f'"{_escaped(token)}"\n' for token in TOKENS))
        flags = [
            f"-runs={runs}", f"-max_len={LONGEST[law]}", f"-timeout={SECONDS.get(law, 5)}", "-rss_limit_mb=1500",
            f"-dict={tokens}", f"-artifact_prefix={folder}/broken-",
        ]  # fmt: skip
        began = time.perf_counter()
        output = _child(law, runs, [*flags, str(seeds)], folder)
        seconds = time.perf_counter() - began
        if keep:
            _child(law, runs, ["-merge=1", str(fewest), str(seeds)], folder)
            texts = {text_of(path.read_bytes()) for path in fewest.iterdir()}
            kept = [
                text
                for text in texts
                if len(bytes_of(text)) <= KEPT_BYTES and _is_quick(law, text)
            ]
            lines = sorted(map(json.dumps, kept), key=lambda line: (len(line), line))
            (CORPUS / f"{law}.jsonl").write_text("\n".join(lines) + "\n", "ascii")
        memory = [
            json.loads(line) for line in output.splitlines() if line.startswith('{"after"')
        ]
        return {"law": law, "texts": runs, "seconds": round(seconds), "memory": memory}


def _is_quick(law: str, text: str) -> bool:
    """Return whether a law takes less than `KEPT_SECONDS` for a text, so that ordinary tests may try it."""
    from answer_laws import LAWS

    began = time.perf_counter()
    LAWS[law](text)
    return time.perf_counter() - began < KEPT_SECONDS


def _child(law: str, runs: int, flags: list[str], folder: Path) -> str:
    """Run libFuzzer on a law in a process of its own, with these flags, and return its output.

    `folder` is a temporary one for its files.

    Raises:
        SystemExit: a text broke the law; the text and the output are printed.
    """
    # A program with a path: to merge, libFuzzer starts itself again by its name.
    fuzzer = folder / "fuzzer"
    command = shlex.join(
        [sys.executable, str(Path(__file__).resolve()), "--child", str(runs), law]
    )
    fuzzer.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    fuzzer.chmod(0o755)
    environment = {**os.environ, "FUZZER": str(fuzzer)}
    ended = subprocess.run(
        [fuzzer, *flags], capture_output=True, text=True, errors="replace", env=environment
    )
    if ended.returncode:
        for path in folder.glob("broken-*"):
            print(f"{law} breaks on {text_of(path.read_bytes())!r}", file=sys.stderr)
        print(ended.stdout[-2000:], ended.stderr[-6000:], file=sys.stderr)
        raise SystemExit(1)
    return ended.stdout


def _escaped(token: str) -> str:
    r"""Return a token in the notation of libFuzzer's dictionaries: ``\x41`` for each byte."""
    return "".join(f"\\x{byte:02x}" for byte in token.encode())


def main() -> None:
    """Fuzz the laws that the command line names, by default all, and print a JSON line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("laws", nargs="*", choices=[[], *SHARES], help="by default all")
    parser.add_argument(
        "--runs",
        type=int,
        default=int(os.environ.get("FUZZ_RUNS") or RUNS),
        help="of all laws together",
    )
    parser.add_argument("--keep", action="store_true", help="add to the corpus")
    arguments = parser.parse_args()
    laws = arguments.laws or list(SHARES)
    for law in laws:
        share = SHARES[law] / sum(SHARES[each] for each in laws)
        print(
            json.dumps(run(law, round(arguments.runs * share), keep=arguments.keep)),
            flush=True,
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        fuzz(sys.argv[3], sys.argv[4:], int(sys.argv[2]))
    else:
        main()
