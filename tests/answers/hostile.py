"""Answers that a policy might write and that must cost no more than their time limit (R8)."""

HOSTILE = [
    # numbers that no memory holds
    "9^{9^{9^9}}", "10^{10^{10}}", "10^{999999999}", r"1.5\times10^{999999999}", "1e999999999", "5182E020357216",
    "(10^9)!", "100000!", r"\binom{10^9}{5\cdot 10^8}", "e^{e^{e^{e^{e^{100}}}}}", r"{10^9}^{10^9}",
    r"0.1^{10^9}", r"\lfloor 10^{10^{9}} \rfloor", r"2^{10^{12}x}",
    # algebra that doesn't end
    r"\int x^{x^x} dx", r"\sum_{k=1}^{10^9} \frac{1}{k^2+1}", "(x+1)^{1000}", "(a+b+c+d)^{200}",
    # long or deep
    "{" * 10_000 + "}" * 10_000, "\\frac{" * 10_000 + "1" + "}" * 10_000, "(" * 30 + "x" + ")" * 30,
    "x" * 1_000_000, "1" * 1_000_000, "a" * 999, "-" * 900 + "1", "1/" * 450 + "1", "7" * 400, "7" * 700 + "%",
    "7" * 900 + r"\text{ cm}", "8" * 800 + "_{9}", r"0.\overline{" + "7" * 700 + "}",
    "7" * 700 + "/" + "6" * 200 + "%", "+".join(f"x_{{{i}}}" for i in range(120)),
    "the number of ways is 5 since we choose " * 20, r"\begin{pmatrix}" + "1&" * 200 + r"1\end{pmatrix}",
    # torn
    "", "   ", "\\", "\\\\", "{", "}", "$", r"\boxed{", r"\boxed{}", r"\left(\left(", "\\" * 999, "^" * 500,
    # not text
    "\x00", "5\x00", "\x1b[31m7\x1b[0m", "\ud800", "x+\udfff", "\ud83d\ude42", "🙂" * 50, "\u202e5",
    # undefined
    r"\frac{1}{0}", "0/0", "x=x", "1=2", r"\sqrt{-1}^{\sqrt{-1}}", "__NoCorrectAnswer__",
]  # fmt: skip
