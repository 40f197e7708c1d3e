"""The report in a real browser, from a file."""

import json
from itertools import pairwise

import polars as pl
import pytest
from audit_tables import many as rollouts_of_many, write
from commands import answered
from histories import write_history
from pages import label, report, rollout, write_run

from olr_cli.runs.store import scan_labels

MANY = 6000


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    run = write_history(
        tmp_path_factory.mktemp("one") / "run", prompts=30, prompts_per_step=10, epochs=6
    )
    return report(run, with_figures=True)


@pytest.fixture(scope="module")
def two_arms(tmp_path_factory):
    place = tmp_path_factory.mktemp("two")
    small = {"prompts": 12, "prompts_per_step": 6, "epochs": 3}
    write_history(place / "a", arm="grpo", method={"name": "grpo"}, **small)
    write_history(place / "b", arm="olr", noise="inactive", **small)
    return report(place / "a", place / "b")


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    settings = {
        "prompts": MANY,
        "prompts_per_step": 3000,
        "epochs": 2,
        "store_rollouts": False,
    }
    return report(write_history(tmp_path_factory.mktemp("many") / "run", **settings))


def test_a_report_loads_from_a_file_without_error_and_asks_for_nothing_else(one, open_page):
    tab = open_page(one)
    assert tab.errors == [] and tab.violations() == []
    assert [url for url in tab.requests if not url.startswith("data:")] == [one.as_uri()]
    assert tab.count == "30 of 30 prompts"
    assert tab.ids() == [str(number) for number in range(len(tab.ids()))]
    drawn = tab.page.locator(".sheet img").evaluate_all(
        "all => all.map((image) => image.naturalWidth)"
    )
    assert len(drawn) >= 3 and min(drawn) > 200
    meaning = (
        tab.rows.first.locator("svg.strip")
        .get_attribute("aria-label")
        .split(": ")[1]
        .split(";")[0]
    )
    assert meaning in ("the true answer", "a wrong label", "another answer", "no majority")


def test_a_search_finds_ids_and_answers_and_all_words_must_be_there(one, open_page):
    tab = open_page(one)
    tab.search("17")
    assert tab.ids() == ["17"]
    tab.search("no such thing")
    assert tab.count == "0 of 30 prompts" and tab.ids() == []
    tab.search("17 10")
    assert tab.ids() == ["17"], "10 is the true answer of every prompt"
    tab.search("")
    assert tab.count == "30 of 30 prompts"


@pytest.mark.slow
def test_columns_sort_both_ways(one, open_page):
    tab = open_page(one)
    tab.sort("prompt")
    assert tab.ids()[0] == "29"
    tab.sort("pass rate")
    rates = [
        float(text)
        for text in tab.page.locator("#rows .cell.rate .number").all_text_contents()
    ]
    assert rates == sorted(rates)
    assert tab.page.locator("[aria-sort=ascending]").text_content().startswith("pass rate")
    tab.choose("sort", "noise")
    noises = tab.page.locator("#rows .cell.noise").all_text_contents()
    assert noises == sorted(noises)
    tab.page.locator("#direction").click()
    assert tab.page.locator("#rows .cell.noise").first.text_content() == "clean"


@pytest.mark.slow
def test_filters_hold_together(one, open_page):
    tab = open_page(one)
    tab.page.locator("#noise").select_option(label="active")
    assert tab.count == "15 of 30 prompts"
    tab.choose("majority", "right")
    right = int(tab.count.split()[0])
    tab.choose("majority", "wrong")
    wrong = int(tab.count.split()[0])
    tab.choose("majority", "none")
    assert right + wrong + int(tab.count.split()[0]) == 15
    tab.choose("majority", "")
    tab.choose("changed", "never")
    never = int(tab.count.split()[0])
    tab.choose("changed", "ever")
    assert int(tab.count.split()[0]) + never == 15
    assert all(
        "visit" in text
        for text in tab.page.locator("#rows .cell.changed").all_text_contents()
    )
    tab.page.locator("#noise").select_option(label="any")
    tab.choose("changed", "wrongly")
    wrongly = (pl.col("label_source") == "majority") & ~pl.col("effective_label_is_correct")
    rows = (
        scan_labels(one.parents[1] / "run")
        .filter(wrongly)
        .select("prompt_id")
        .unique()
        .collect()
    )
    assert sorted(tab.ids()) == sorted(rows["prompt_id"]) and len(rows) > 0


def audited(run, *words):
    return answered("audit", run, *words)[0]


@pytest.mark.slow
def test_the_audit_can_be_sorted_and_filtered(one, open_page):
    tab = open_page(one)
    told = audited(one.parents[1] / "run")
    statuses = {name: told["labels"][name] for name in ("doubted", "questionable", "fine")}
    for status, count in statuses.items():
        tab.choose("audit", status)
        assert int(tab.count.split()[0]) == count
    assert min(statuses["questionable"], statuses["fine"]) > 0
    tab.choose("audit", "questionable")
    tab.choose("sort", "wrong")
    assert tab.ids() == [
        row["prompt_id"] for row in told["prompts"] if row["status"] == "questionable"
    ]
    evidence = tab.page.locator("#rows .cell.evidence").first.text_content()
    assert evidence.startswith("of 48 rollouts 5 × the label, ")
    marks = {"right": 0, "wrong": 0}
    for verdict in marks:
        tab.choose("audit", f"proposal {verdict}")
        marks[verdict] = int(tab.count.split()[0])
        assert (
            tab.page.locator(f"#rows .cell.proposal .mark.{verdict}").count()
            == marks[verdict]
        )
    assert marks["right"] > 0


@pytest.mark.slow
def test_the_address_holds_what_is_shown(two_arms, open_page):
    tab = open_page(two_arms)
    tab.choose("run", "1")
    tab.page.locator("#noise option", has_text="inactive").wait_for(state="attached")
    tab.choose("sort", "rate")
    tab.page.locator("#direction").click()
    tab.choose("verdict", "none")
    tab.search("1")
    tab.open(1)
    shown = tab.ids(), tab.count, tab.page.url
    again = open_page(two_arms)
    again.page.goto(tab.page.url)
    again.page.locator(".detail").wait_for()
    assert (again.ids(), again.count, again.page.url) == shown
    name = again.page.locator(".row.opened .open").text_content()
    link = again.page.locator(".detail a", has_text="link to this prompt").get_attribute(
        "href"
    )
    third = open_page(two_arms)
    third.page.evaluate("hash => { location.hash = hash; }", link)
    third.page.locator(".detail").wait_for()
    assert (
        third.count == "12 of 12 prompts"
        and third.page.locator(".row.opened .open").text_content() == name
    )
    third.page.evaluate(
        "location.hash = '#prompts?run=9&audit=nonsense&sort=x&prompt=nobody'"
    )
    third.page.locator(".detail").wait_for(state="detached")
    assert third.count == "12 of 12 prompts" and third.errors == []


def test_verdicts_are_given_with_keys_and_exported_for_the_audit(one, open_page, tmp_path):
    run = one.parents[1] / "run"
    tab = open_page(one, viewport={"width": 1400, "height": 900})
    page, keys = tab.page, tab.page.keyboard
    assert page.evaluate(
        "(() => { const t = document.getElementById('table'); return t.scrollWidth <= t.clientWidth; })()"
    )
    for key in ("j", "1", "2", "Enter", "2"):
        keys.press(key)
    field = page.locator(".judgement input")
    keys.type("1j")  # typed, and no command
    assert field.input_value() == "1j"
    field.fill("12")
    keys.press("Escape")
    assert page.locator(".row.opened .open:focus").text_content() == "2", (
        "the list has the keys again"
    )
    for key in ("j", "4", "1", "k", "1", "j", "3"):
        keys.press(key)
    assert page.locator(".row.opened .open:focus").text_content() == "6", (
        "a verdict goes on to the next row"
    )
    page.reload()
    tab.rows.first.wait_for()
    tab.choose("verdict", "wrong")
    assert tab.ids() == ["1", "2"], "they are remembered"
    with page.expect_download() as started:
        page.locator("#export").click()
    file = tmp_path / started.value.suggested_filename
    started.value.save_as(file)
    rows = json.loads(file.read_text("utf-8"))
    assert [(row["prompt_id"], row["verdict"]) for row in rows] == [
        ("0", "kept"), ("1", "wrong"), ("2", "wrong"), ("3", "unsure"), ("5", "flawed"),
    ]  # fmt: skip
    assert [row["true_answer"] for row in rows] == [
        rows[0]["given_label"],
        None,
        "12",
        None,
        None,
    ]
    assert not any(row["drawn"] for row in rows)
    told = audited(run, "--verified", file)
    ranked = {row["prompt_id"]: row for row in told["prompts"]}
    decided = [
        row for row in rows if row["given_label"] is not None and row["verdict"] != "unsure"
    ]
    assert told["verified_labels"] == len(decided) > 2
    for row in decided:
        assert ranked[row["prompt_id"]]["confidence"] == (row["verdict"] != "kept")
    assert ranked["5"]["status"] == "doubted", (
        "so that --drop doubted leaves a flawed question out"
    )
    assert ranked["2"]["proposed_label"] == "12" and not ranked["3"]["is_verified"]
    assert tab.errors == [] and tab.violations() == []


def test_an_opened_prompt_shows_its_history_and_a_few_responses(one, open_page):
    tab = open_page(one)
    tab.open(1)
    detail = tab.page.locator(".detail")
    assert detail.locator("tbody").last.locator("tr").count() == 6
    assert detail.locator(".response").count() == 8
    heads = detail.locator("h4").all_text_contents()
    assert heads == ["visit 1: 4 of 8 responses", "visit 6: 4 of 8 responses"]
    assert "boxed" in detail.locator(".response pre").first.text_content()
    assert detail.locator("summary").all_text_contents()[0] == "visit 2: 4 of 8 responses"
    detail.locator("summary").first.click()
    detail.locator("details .response").first.wait_for()
    assert detail.locator("details .response").count() == 4
    tab.rows.nth(1).locator(".open").click()
    assert detail.count() == 0


@pytest.mark.slow
def test_the_list_can_be_used_with_a_keyboard(one, open_page):
    tab = open_page(one)
    tab.rows.first.locator(".open").focus()
    for _ in range(25):
        tab.page.keyboard.press("ArrowDown")
    focused = tab.page.locator(".open:focus")
    assert focused.text_content() == "25"
    tab.page.keyboard.press("Enter")
    assert focused.get_attribute("aria-expanded") == "true"
    tab.page.locator(".response").first.wait_for()


@pytest.mark.slow
def test_a_row_shows_the_label_that_is_judged_and_without_one_there_is_nothing_to_keep(
    two_arms, open_page
):
    tab = open_page(two_arms)
    assert tab.page.locator("#run option").all_text_contents() == [
        "grpo, seed 0",
        "olr, seed 0",
    ]
    assert tab.page.locator("#noise option").all_text_contents() == [
        "any",
        "active",
        "clean",
    ]
    judged = {
        row["prompt_id"]: row["given_label"]
        for row in audited(two_arms.parents[1] / "a")["prompts"]
    }
    noisy = scan_labels(two_arms.parents[1] / "a").filter(
        pl.col("noisy_label").is_not_null()
    )
    last = (
        noisy.sort("visit")
        .group_by("prompt_id")
        .agg(pl.col("noisy_label").last())
        .collect()
    )
    tab.page.locator("#noise").select_option(label="active")
    shown = dict(
        zip(
            tab.ids(),
            tab.page.locator("#rows .cell.given").all_text_contents(),
            strict=True,
        )
    )
    assert shown == dict(last.iter_rows()) == {name: judged[name] for name in shown}
    tab.choose("run", "1")
    tab.page.locator("#noise option", has_text="inactive").wait_for(state="attached")
    tab.page.locator("#noise").select_option(label="inactive")
    assert set(tab.page.locator("#rows .cell.given").all_text_contents()) == {"none right"}
    tab.page.keyboard.press("j")
    tab.page.keyboard.press("1")
    assert tab.rows.first.locator("button.kept").is_disabled()
    assert tab.page.locator("#export").is_disabled(), "nothing was decided"


@pytest.fixture(scope="module")
def queue(tmp_path_factory):
    """The page of a log of two models."""
    folder = tmp_path_factory.mktemp("queue")
    chat = [{"role": "system", "content": "Sums."}]
    rows = [
        {
            **row,
            "model": model,
            "question": [*chat, {"role": "user", "content": f"{row['prompt_id']}, 3 + 4?"}],
        }
        for model in ("small", "large")
        for row in rollouts_of_many(40, wrong={9, 11}, visits=1)
    ]
    write(folder / "log.jsonl", rows)
    audited(folder / "log.jsonl", "--report", folder / "queue.html")
    return folder / "queue.html"


@pytest.mark.slow
def test_the_queue_of_any_log_is_a_page_with_who_answered_what(queue, open_page):
    tab = open_page(queue)
    assert tab.errors == [] and tab.violations() == [] and tab.count == "40 of 40 prompts"
    assert tab.ids()[:2] == ["p9", "p11"], "the queue"
    heads = tab.page.locator("#heads .cell").all_text_contents()
    assert heads == [
        "question",
        "answers",
        "prompt",
        "label",
        "doubt",
        "proposal",
        "your verdict",
    ]
    cells = tab.rows.first.locator(".cell").all_text_contents()
    assert cells[:2] == [
        "p9, 3 + 4?",
        "of 16 rollouts 2 × the label, 10 × 7, 2 × 5",
    ] and len(cells) == len(heads)
    tab.open()
    detail = tab.page.locator(".detail")
    assert detail.locator("pre").first.text_content() == "p9, 3 + 4?"
    assert detail.locator("summary").text_content() == "System message"
    assert not detail.get_by_text("[system] Sums.").is_visible(), "apart from the question"
    detail.locator("summary").click()
    assert detail.get_by_text("[system] Sums.").is_visible()
    lines = [" ".join(line.split()) for line in detail.locator("tbody tr").evaluate_all(
        "rows => rows.map((row) => [...row.cells].map((cell) => cell.textContent).join(' '))"
    )]  # fmt: skip
    assert lines == [
        "7 10 small 5; large 5",
        "5 2 small; large",
        "8 (the label) 2 small; large",
    ]
    assert detail.locator(".response").count() == 8
    told = detail.locator(".response .facts").all_text_contents()
    assert {text.split(": ")[0] for text in told} == {"small", "large"}
    assert {text.split(": ")[1].split(",")[0] for text in told} == {
        "7",
        "7.0",
        "8",
        "5",
        "no answer",
    }


def beside(detail, heading):
    """The text of the paragraph below a heading."""
    return detail.locator(f"h3:text-is('{heading}') + p").text_content()


@pytest.mark.slow
def test_what_the_audit_says_stands_apart_from_the_question_whether_the_label_is_right(
    queue, open_page
):
    tab = open_page(queue)
    detail, queued = tab.page.locator(".detail"), "rank {} in the queue"
    tab.open()
    assert beside(detail, "Is the label right?") == "label: 8"
    doubted = f"doubted, {queued.format(1)}; proposal: 7"
    assert beside(detail, "What the audit says") == doubted
    tab.choose("audit", "fine")
    tab.open(0)
    assert beside(detail, "Is the label right?") == "label: 7"
    assert beside(detail, "What the audit says") == f"fine, {queued.format(3)}"


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 1400])
def test_buttons_have_words_and_their_keys_a_table(queue, open_page, width):
    tab = open_page(queue, viewport={"width": width, "height": 900})
    tab.open()
    words = ["✓ right", "✗ wrong", "! flawed", "? unsure"]
    buttons = tab.page.locator(".judgement .verdicts button")
    assert buttons.evaluate_all("all => all.map((e) => e.innerText)") == words
    keys = tab.page.locator(".keys tr").evaluate_all(
        "rows => rows.map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    assert [(key, word) for key, word, _ in keys[:4]] == [
        (str(number), word) for number, word in enumerate(words, start=1)
    ]
    assert tab.page.locator("#direction").text_content() == "↑ ascending"
    assert tab.page.evaluate("document.documentElement.scrollWidth") == width
    is_whole = tab.page.locator(
        "#rows :is(.id, .verdict), .detail .judgement"
    ).evaluate_all("all => all.every((e) => e.scrollWidth <= e.clientWidth)")
    assert is_whole


@pytest.mark.slow
def test_the_label_itself_as_its_true_answer_is_warned_of(queue, open_page):
    tab = open_page(queue)
    tab.open()
    field = tab.page.locator(".judgement input")
    field.fill("8")
    assert "the label itself" in tab.page.locator(".warning").text_content()
    field.fill("7")
    assert tab.page.locator(".warning").text_content() == ""


@pytest.mark.slow
def test_blind_rows_have_question_and_label_alone(queue, open_page):
    tab = open_page(queue)
    tab.choose("view", "blind")
    heads = tab.page.locator("#heads .cell").all_text_contents()
    assert heads == ["question", "prompt", "label", "your verdict"]
    tab.rows.first.locator(".open").click()
    detail = tab.page.locator(".detail")
    assert detail.locator("h3").all_text_contents() == ["Question", "Is the label right?"]
    assert (
        "proposal" not in detail.text_content() and "rollouts" not in detail.text_content()
    )


@pytest.mark.slow
def test_a_random_draw_is_exported_as_drawn_and_read_so(queue, open_page, tmp_path):
    tab = open_page(queue)
    page, log = tab.page, queue.parent / "log.jsonl"
    page.locator(".open").first.focus()
    page.keyboard.press("3")  # the first of the queue, chosen and not drawn
    page.locator("#size").fill("12")
    page.locator("#seed").fill("5")
    page.keyboard.press("Enter")
    page.locator("#drawing").click()
    assert tab.count == "12 of 40 prompts"
    drawn = tab.ids()
    assert drawn != sorted(drawn, key=lambda name: int(name[1:])), "in random order"
    for key in ("j", *"1" * 12):
        page.keyboard.press(key)
    with page.expect_download() as started:
        page.locator("#export").click()
    file = tmp_path / "selection.json"
    started.value.save_as(file)
    rows = json.loads(file.read_text("utf-8"))
    assert {row["prompt_id"] for row in rows if row["drawn"]} == set(drawn)
    assert len(drawn) == 12 and len(rows) == 13 - ("p9" in drawn)
    told = audited(log, "--verified", file)
    assert told["noise_ratio"] is not None and told["verified_labels"] == len(rows)
    again = open_page(queue)
    again.page.goto(page.url)
    again.page.get_by_text("12 of 40 prompts").wait_for()
    assert again.ids() == drawn
    again.page.locator("#drawing").click()
    assert again.count == "40 of 40 prompts"


CONTRAST = """element => {
  const parts = (text) => text.match(/[\\d.]+/g).slice(0, 3).map((value) => value / 255);
  const light = (text) => parts(text).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = document.getElementById("heads");
  const pair = [light(getComputedStyle(element).color), light(getComputedStyle(ground).backgroundColor)];
  return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
}"""


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_marks_can_be_read_and_a_row_is_one_stop_of_the_tab_key(one, open_page, scheme):
    tab = open_page(one, viewport={"width": 1400, "height": 900}, color_scheme=scheme)
    for mark in ("right", "wrong"):
        assert tab.page.locator(f"#rows .mark.{mark}").first.evaluate(CONTRAST) >= 4.5
    heads, cells = (
        tab.page.locator(place) for place in ("#heads > *", "#rows .row:first-child > *")
    )
    assert heads.count() == cells.count()
    tab.rows.first.locator(".open").focus()
    tab.page.keyboard.press("Tab")
    assert tab.page.evaluate("document.activeElement.closest('.row').ariaRowIndex") == "3"


@pytest.mark.slow
def test_all_rows_are_printed_and_none_over_another(one, open_page):
    tab = open_page(one, viewport={"width": 794, "height": 1000})
    tab.page.emulate_media(media="print")
    tab.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert tab.rows.count() == 30
    edges = tab.rows.evaluate_all(
        "rows => rows.map((row) => row.getBoundingClientRect()).map((r) => [r.top, r.bottom])"
    )
    assert all(above[1] <= below[0] + 1 for above, below in pairwise(edges))
    assert all(bottom > top + 20 for top, bottom in edges)
    is_whole = tab.page.locator("#rows .cell.evidence").evaluate_all(
        "all => all.every((e) => e.scrollWidth <= e.clientWidth)"
    )
    assert is_whole, "what is cut on a screen is whole on paper"
    cut = tab.page.locator(".scroll").evaluate_all(
        "all => all.filter((e) => e.scrollWidth > document.body.clientWidth).length"
    )
    assert cut == 0, "no table is wider than the paper"


@pytest.mark.slow
def test_thousands_of_prompts_stay_fluid(many, open_page):
    tab = open_page(many)
    assert tab.count == "5,000 of 5,000 prompts"
    assert (
        tab.page.locator("#drawing, #size, #seed").evaluate_all(
            "all => all.some((e) => e.offsetParent)"
        )
        is False
    ), "a draw of some prompts estimates nothing"
    assert tab.rows.count() < 60
    tab.page.evaluate("document.getElementById('table').scrollTop = 1e9")
    tab.page.get_by_text("4999", exact=True).wait_for()
    assert tab.rows.count() < 60
    took = tab.page.evaluate(
        """() => {
          const box = document.getElementById("search"), start = performance.now();
          box.value = "4998";
          box.dispatchEvent(new Event("input"));
          return performance.now() - start;
        }"""
    )
    assert tab.ids() == ["4998"]
    assert took < 1000, "generous: a busy machine takes ten times what a quiet one does"


@pytest.mark.slow
def test_rows_stay_in_order_around_an_opened_one(many, open_page):
    tab = open_page(many)
    tab.open(10)
    for top in (1e9, 50_000, 0):
        tab.page.evaluate("top => document.getElementById('table').scrollTop = top", top)
        tab.page.wait_for_timeout(100)
        places = [
            int(place)
            for place in tab.rows.evaluate_all(
                "rows => rows.map((row) => row.ariaRowIndex)"
            )
        ]
        assert places == sorted(places) and 12 in places, "the opened one stays"
        edges = tab.rows.evaluate_all(
            "rows => rows.map((row) => row.getBoundingClientRect().top)"
        )
        assert edges == sorted(edges) and len(set(edges)) == len(edges)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_both_colour_schemes(one, open_page, scheme):
    tab = open_page(one, viewport={"width": 400, "height": 800}, color_scheme=scheme)
    tab.open()
    assert tab.page.evaluate("document.documentElement.scrollWidth") == 400
    ground = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") == (scheme == "light")
    sheet = tab.page.evaluate(
        "getComputedStyle(document.querySelector('.sheet')).backgroundColor"
    )
    drawn = tab.page.evaluate(
        "getComputedStyle(document.querySelector('.sheet img')).filter"
    )
    assert (sheet == "rgb(255, 255, 255)", drawn == "none") == (scheme == "light",) * 2, (
        "drawn for white"
    )


@pytest.mark.slow
def test_a_figure_fits_a_phone_and_is_shown_larger_on_demand(one, open_page):
    tab = open_page(one, viewport={"width": 400, "height": 800})
    is_scrolled = "all => all.map((e) => e.scrollWidth > e.clientWidth)"
    sheets = tab.page.locator(".sheet")
    assert not any(sheets.evaluate_all(is_scrolled))
    tab.page.locator("figure:has-text('dynamics') .enlarge").click()
    assert sum(sheets.evaluate_all(is_scrolled)) == 1, "it scrolls, and the page does not"
    assert tab.page.evaluate("document.documentElement.scrollWidth") == 400
    tab.page.get_by_role("button", name="Fit the page").click()
    assert not any(sheets.evaluate_all(is_scrolled))
    tab.page.set_viewport_size({"width": 1400, "height": 900})
    # `wait_for_function` would evaluate a text as code, which the page's policy forbids.
    for button in tab.page.locator(".enlarge").all():
        button.wait_for(state="hidden")


HOSTILE = {
    "script": "<script>window.hacked = 1</script>",
    "image": '<img src=x onerror="window.hacked = 1">',
    "closing": "</script><script>window.hacked = 1</script>",
    "comment": "<!-- <script> ",
    "link": "javascript:window.hacked=1",
    "quotes": "\"'><svg onload=window.hacked=1>",
    "place": "{{script}} {{blocks}}",
    "right to left": "\u202eabc\u202c \u200b\u2066x",
    "line separators": "a\u2028b\u2029c",
    "zero": "a\x00b\x01c\x7f",
    "astral": "\U0001d465 \ufffe",
    "template": "${window.hacked = 1} `",
}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A run in which everything that anybody could have written is hostile."""
    place = tmp_path_factory.mktemp("hostile")

    def step(visit):
        labels = [
            label(
                word,
                visit,
                visit,
                given_label=word,
                true_answer=word,
                majority_answer=word,
                effective_label=word,
                label_source="majority",
                is_selected=True,
            )
            for word in HOSTILE.values()
        ]
        answers = [
            rollout(word, visit, visit, sample, response=word, answer=word)
            for word in HOSTILE.values()
            for sample in range(2)
        ]
        return labels, answers

    rows = [
        {
            "prompt": [{"role": "user", "content": word}],
            "extra_info": {"index": word},
            "answer": word,
        }
        for word in HOSTILE.values()
    ]
    arm = HOSTILE["closing"] + HOSTILE["quotes"]
    settings = {"model": {"path": HOSTILE["image"]}}
    run = write_run(
        place / "<b>run", [step(1), step(2)], rows=rows, arm=arm, settings=settings
    )
    return report(run, out=place, notes=[HOSTILE["image"], "half a character: \ud800"])


def test_markup_in_what_a_run_holds_is_shown_and_never_run(hostile, open_page):
    tab = open_page(hostile)
    assert tab.count == f"{len(HOSTILE)} of {len(HOSTILE)} prompts"
    shown = {}
    for place in range(len(HOSTILE)):
        tab.open(place)
        name = tab.rows.nth(place).locator(".open").text_content()
        shown[name] = tab.page.locator(".response pre").first.text_content()
        assert tab.page.locator(".detail pre").first.text_content() == name, "the question"
        tab.rows.nth(place).locator(".open").click()
    assert shown == {word: word for word in HOSTILE.values()}
    assert tab.page.evaluate("window.hacked") is None
    assert tab.errors == [] and tab.violations() == []
    assert [url for url in tab.requests if not url.startswith("data:")] == [
        hostile.as_uri()
    ]
    assert (
        tab.page.locator(
            "img:not(.sheet img), iframe, object, [onload], [onerror], a[href^=javascript]"
        ).count()
        == 0
    )
    assert tab.page.locator("script:not([type])").count() == 1, "the page's own"
    tab.search(HOSTILE["image"])
    assert tab.ids() == [HOSTILE["image"]]


def test_the_policy_of_the_page_stops_what_would_be_markup(one, open_page):
    tab = open_page(one)
    stopped = tab.page.evaluate(
        """() => {
          try { document.body.innerHTML += "<img src=x onerror='window.hacked = 1'>"; } catch { return true; }
          return false;
        }"""
    )
    assert stopped
    assert "require-trusted-types-for" in tab.violations()
