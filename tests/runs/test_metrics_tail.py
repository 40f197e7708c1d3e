"""Lines of metrics.jsonl: what is no line, and those that another process appends."""

import json

from cases import refusal
from hypothesis import HealthCheck, given, settings, strategies as st

from olr_cli.runs.metrics import (
    MetricsTail,
    append_metrics,
    drop_metrics_after,
    read_metrics,
)


def test_lines_that_are_there_already_are_left_out(tmp_path):
    append_metrics(tmp_path, 1, 1, {})
    tail = MetricsTail(tmp_path)
    append_metrics(tmp_path, 2, 1, {})
    append_metrics(tmp_path, 3, 1, {})
    assert [line["step"] for line in tail.new_lines()] == [2, 3]


def test_lines_with_a_metric_are_found_among_the_others(tmp_path):
    for step in range(4):
        append_metrics(
            tmp_path, step, 1, {"eval/avg": step / 4} if step % 2 else {"eval/average": 1.0}
        )
    append_metrics(tmp_path, 4, 1, {})
    assert [line["step"] for line in read_metrics(tmp_path, "eval/avg")] == [1, 3]
    assert [line["step"] for line in read_metrics(tmp_path)] == [0, 1, 2, 3, 4]


def test_numbers_beyond_json_arrive(tmp_path):
    tail = MetricsTail(tmp_path)
    append_metrics(tmp_path, 1, 1, {"policy/kl": float("inf"), "policy/grad_norm": 1e-320})
    (line,) = tail.new_lines()
    assert line["policy/kl"] == float("inf") and line["policy/grad_norm"] == 1e-320


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(max_size=8), max_size=8), st.data())
def test_however_the_bytes_arrive_every_line_is_seen_once_and_in_order(
    tmp_path, names, data
):
    (tmp_path / "metrics.jsonl").unlink(missing_ok=True)
    lines = [
        {"step": step, "epoch": 1, f"x/{name}": 1.5} for step, name in enumerate(names)
    ]
    whole = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    whole = whole.encode("utf-8", "surrogatepass")
    tail, seen = MetricsTail(tmp_path), []
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    for first, last in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        with (tmp_path / "metrics.jsonl").open("ab") as file:
            file.write(whole[first:last])
        seen += tail.new_lines()
    assert seen == lines == read_metrics(tmp_path)


def test_a_broken_metrics_line_is_named(tmp_path):
    append_metrics(tmp_path, 1, 1, {})
    kinds = (
        '{"step": "3"}',
        '{"step": null}',
        '{"step": NaN}',
        '{"step": 3, "x": []}',
        "[]",
    )
    for broken in ('{"step": 2, "epo', "\x00\x00", "7", '{"epoch": 1}', *kinds):
        file = tmp_path / "metrics.jsonl"
        before = file.read_text()
        file.write_text(f"{before}{broken}\n{before}")
        assert "metrics.jsonl, line 2 is not a step's metrics" in refusal(
            read_metrics, tmp_path
        )
        file.write_text(before)


def test_a_metrics_line_cut_off_by_a_kill_is_left_out(tmp_path):
    for step in (1, 2, 3):
        append_metrics(tmp_path, step, 1, {"rollout/reward": step / 10})
    file, lines = tmp_path / "metrics.jsonl", read_metrics(tmp_path)
    whole = file.read_text()
    for kept in range(len(whole)):
        file.write_text(whole[:kept])
        assert read_metrics(tmp_path) == lines[: whole[:kept].count("\n")]
    drop_metrics_after(tmp_path, 1)
    assert file.read_text() == whole[: whole.index("\n") + 1]
