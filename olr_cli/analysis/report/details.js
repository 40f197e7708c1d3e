// The details of an opened prompt.

function details(p) {
  const made = make("div", "detail");
  made.setAttribute("role", "row");
  const inside = make("div", "inside");
  inside.setAttribute("role", "cell");
  inside.setAttribute("aria-colspan", columns.length);
  made.append(inside);
  const history = make("div"), answers = make("div", "responses");
  history.append(heading("Question"), ...asked(p), heading("Is the label right?"), ...judgement(p));
  inside.append(history);
  if (isBlind()) return made;
  inside.append(answers);
  if (run.audit) history.append(heading("What the audit says"), audited(p), heading("Answers"), ...counted(p));
  if (run.kind) {
    history.append(heading("Label by visit"), labels(p), heading("Majority answer by visit"), visits(p));
  }
  answers.append(heading("Responses"));
  const block = `run${run.number}-responses-${Math.floor(p / run.promptsABlock)}`;
  if (!$(block)) answers.append(make("p", "note", run.responsesNote));
  else unpacked(block).then((stored) => answers.append(...responses(stored[p % run.promptsABlock])));
  return made;
}

/** How often each answer was given, and by which model. */
function counted(p) {
  const names = run.models.length ? ["answer", "rollouts", "by"] : ["answer", "rollouts"];
  const rows = (audit("answers", p) ?? []).map(([answer, isLabel, count, by]) => {
    const line = make("tr"), cell = make("td", "whole");
    cell.append(isolated(answer, "answer"), isLabel ? " (the label)" : "");
    line.append(cell, make("td", "number", count));
    if (run.models.length) {
      const models = make("td", "whole");
      models.append(isolated(by.map(([model, n]) => (n > 1 ? `${run.models[model]} ${n}` : run.models[model])).join("; ")));
      line.append(models);
    }
    return line;
  });
  return rows.length ? [grid(names, rows)] : [make("p", "note", "No response has an answer.")];
}

function grid(names, rows) {
  const head = make("tr"), whole = make("thead"), body = make("tbody"), table = make("table");
  for (const name of names) {
    const made = make("th", ["visit", "votes", "rollouts"].includes(name) ? "number" : "", name);
    made.scope = "col";
    head.append(made);
  }
  whole.append(head);
  body.append(...rows);
  table.append(whole, body);
  const scroll = make("div", "scroll short");
  scroll.tabIndex = 0;
  scroll.append(table);
  return scroll;
}

/** The label, and the reader's verdict on it. */
function judgement(p) {
  const facts = make("p", "facts"), warning = make("p", "warning");
  facts.append("label: ", isolated(judged(p) ?? (shownLabel(p) === "none right" ? "none (no answer counts as right)" : "\u2013"), "answer"));
  const own = make("p", "judgement"), input = make("input");
  input.type = "text";
  input.placeholder = "true answer, if known";
  input.setAttribute("aria-label", input.placeholder);
  input.value = verdicts.get(run.ids[p])?.answer ?? "";
  warning.setAttribute("role", "status");
  const warn = () => { warning.textContent = input.value.trim() === judged(p) ? "This is the label itself, so the verdict would not count." : ""; };
  const answer = () => { decide(p, "wrong", input.value); warn(); };
  input.addEventListener("input", answer);
  own.append(verdictButtons(p, false), input);
  if (audit("proposed_label", p) !== null && !isBlind()) {
    const use = make("button", "", "use the proposal");
    use.type = "button";
    use.addEventListener("click", () => { input.value = audit("proposed_label", p); answer(); });
    own.append(use);
  }
  const link = make("a", "", "link to this prompt");
  link.href = address({ run: run.number, prompt: run.ids[p] });
  own.append(link);
  warn();
  return [facts, own, warning];
}

/** The audit's verdict on the label, shown for labels without doubt too. */
function audited(p) {
  const made = make("p", "facts"), chance = audit("confidence", p), rank = audit("rank", p);
  const status = audit("status", p) === "missing" ? "no label" : audit("status", p);
  made.append(status);
  if (rank === null) made.append(chance === null ? "" : `, ${doubt(p)}`);
  else made.append(`, rank ${rank.toLocaleString("en")} in the queue`, chance === null ? "" : `, wrong with a chance of ${percent(chance)}`);
  if (audit("proposed_label", p) === null) return made;
  made.append("; proposal: ", proposal(p));
  if (audit("proposal_confidence", p) !== null) made.append(`, right with a chance of ${percent(audit("proposal_confidence", p))}`);
  return made;
}

const heading = (name) => make("h3", "", name);

/** Beginning and end of a text, with a mark between them that cannot be mistaken for text. */
function withCut(tag, css, head, tail, leftOut) {
  const made = make(tag, css);
  made.dir = "auto";
  made.append(head);
  if (leftOut) made.append(make("span", "cut", `${leftOut.toLocaleString("en")} characters left out`), tail);
  return made;
}

/** The question, and separately the system message or other turns. */
function asked(p) {
  if (!run.questions) return [make("p", "note", run.questionsNote)];
  const parts = run.questions[p], made = [withCut("pre", "text", ...parts.slice(0, 3))];
  if (parts[3] || parts[5]) {
    const others = make("details");
    others.append(make("summary", "", parts[3].startsWith("[system]") ? "System message" : "Other messages"),
      withCut("pre", "text", ...parts.slice(3)));
    made.push(others);
  }
  return made;
}

/** One line per stretch of visits with the same label, or with labels drawn anew. */
function labels(p) {
  const made = make("ul", "labels");
  const majority = (cell) => (run.source[cell] === run.replaced ? `=${run.label[cell]}` : run.sources[run.source[cell]]);
  for (const [first, last] of stretches(p, majority)) {
    const start = p * run.visits + first - 1, end = p * run.visits + last;
    const source = run.source[start];
    const item = make("li", "", `${span(first, last)}: `);
    item.append(SOURCES[run.sources[source]] ?? "unknown");
    const words = new Set(run.label.slice(start, end));
    if (run.sources[source] !== "sentinel") {
      [...words].filter((word) => word > 0).slice(0, 20).forEach((word, i) => {
        item.append(i ? ", " : " ", isolated(run.strings[word], "answer"));
      });
      if (words.size > 20) item.append(` and ${words.size - 20} more`);
    }
    made.append(item);
  }
  return made;
}

function visits(p) {
  const rows = [];
  for (let visit = 1; visit <= run.last[p]; visit++) {
    const at = p * run.visits + visit - 1, kind = run.kind[at];
    if (kind === NO_VISIT) continue;
    const line = make("tr"), which = make("td");
    which.append(make("span", `swatch ${KINDS[kind].css}`), KINDS[kind].name);
    const answer = make("td"), label = make("td");
    answer.append(isolated(run.strings[run.majority[at]] || "\u2013"));
    label.append(isolated(text(run.label[at]) || "\u2013"));
    line.append(make("td", "number", visit), answer, make("td", "number", `${run.votes[at]}/${run.rollouts}`),
      which, label, make("td", "", run.sources[run.source[at]]));
    rows.push(line);
  }
  return grid(["visit", "majority answer", "votes", "which is", "label", "from"], rows);
}

/** Responses by visit; those between the first and the last visit are built when the reader opens them. */
function responses(stored) {
  if (!stored.length) return [make("p", "note", "No responses to this prompt are stored.")];
  if (!run.kind) return stored.map(response);
  const groups = new Map();
  for (const each of stored) {
    const [visit, , view] = each;
    const name = `visit ${visit}${view === "original" ? "" : `, ${view} question`}`;
    groups.set(name, [...(groups.get(name) ?? []), each]);
  }
  const ends = [stored[0][0], stored[stored.length - 1][0]];
  return [...groups].flatMap(([name, group]) => {
    const head = `${name}: ${group.length} of ${run.rollouts} responses`;
    if (ends.includes(group[0][0])) return [make("h4", "", head), ...group.map(response)];
    const more = make("details");
    more.append(make("summary", "", head));
    more.addEventListener("toggle", () => more.append(...group.map(response)), { once: true });
    return [more];
  });
}

function response([visit, sample, , answer, reward, right, tokens, isTruncated, model, ...content]) {
  const facts = make("p", "facts");
  facts.append(model ? isolated(model) : run.kind ? `sample ${sample}` : `visit ${visit}`, ": ", answer === null ? make("em", "", "no answer") : isolated(answer, "answer"));
  if (right !== null) facts.append(make("span", `mark ${CORRECT[right + 1]}`, right ? " \u2713 right" : " \u2717 wrong"));
  if (reward !== null) facts.append(`, reward ${typeof reward === "number" ? Number(reward.toPrecision(4)) : reward}`);
  if (tokens !== null) facts.append(`, ${tokens.toLocaleString("en")} tokens`);
  if (isTruncated) facts.append(", cut by the length limit");
  const made = make("div", "response");
  made.append(facts, withCut("pre", "text", ...content));
  return made;
}
