"""Which questions ask for a percentage (R7)."""

import time

from cases import each

from olr_cli.data.percent import asks_for_percent


@each(
    "question",
    "Of 20 pens 20% are red and 8 are blue. What percentage of the pens is blue?",
    "By what percent does the area grow if the side grows by $10\\%$?",
    "What's the total percent increase?",
    "How many per cent of the 60 tickets were sold?",
    "What % of 80 is 16?",
    "Find the percentage of students who passed.",
    "Express your answer as a percent. What is the chance of two heads?",
    "How likely is it (in percent) that it rains?",
    "Give the loss to the nearest whole percent.",
    "The price rises by ____%.",
    "Wie viel Prozent der Schüler fehlen?",
    "合格率是百分之几？",
)
def test_a_question_that_asks_for_a_percentage_is_known(question):
    assert asks_for_percent(question)


@each(
    "question",
    "",
    "What is 20% of 15?",
    "What is fifty percent of 6?",
    "A shirt costs $20 after a discount of 25 percent. What did it cost before?",
    "It is off by the same percentage each time. What does it show at 500?",
    "What percent is left is not known, but 3 of 4 are. How many are there?",
    "What percentage is red? And how many of them are blue?",
)
def test_a_percentage_that_is_given_is_not_asked_for(question):
    assert not asks_for_percent(question)


@each(
    "text", "what ", "find a ", "nearest 1.", "_", r"\underline{", "in ( ", "percent what "
)
def test_any_question_is_read_in_time_that_grows_with_its_length(text):
    start = time.process_time()
    asks_for_percent(text * (100_000 // len(text)) + "%")
    assert time.process_time() - start < 2
