// What an opened prompt shows.

function details(p) {
  const made = make("div", "detail");
  made.setAttribute("role", "row");
  const inside = make("div", "inside");
  inside.setAttribute("role", "cell");
  inside.setAttribute("aria-colspan", columns.length);
  made.append(inside);
  const history = make("div"), answers = make("div", "responses");
  history.append(heading("Question"), asked(p), heading("Label by visit"), labels(p),
    heading("Majority answer by visit"), visits(p));
  answers.append(heading("Responses"));
  inside.append(history, answers);
  unpacked(`run${run.number}-responses-${Math.floor(p / run.promptsABlock)}`)
    .then((block) => answers.append(...responses(block[p % run.promptsABlock])));
  return made;
}

const heading = (name) => make("h3", "", name);

/** Beginning and end of a text, with a mark between that cannot be taken for a part of it. */
function withCut(tag, css, head, tail, leftOut) {
  const made = make(tag, css);
  made.dir = "auto";
  made.append(head);
  if (leftOut) made.append(make("span", "cut", `${leftOut.toLocaleString("en")} characters left out`), tail);
  return made;
}

function asked(p) {
  if (!run.questions) return make("p", "note", run.questionsNote);
  return withCut("pre", "text", ...run.questions[p]);
}

/** A line a stretch of visits with the same label, or with labels drawn anew. */
function labels(p) {
  const made = make("ul", "labels");
  const majority = (cell) => (run.source[cell] === run.replaced ? `=${run.label[cell]}` : run.sources[run.source[cell]]);
  for (const [first, last] of stretches(p, majority)) {
    const start = p * run.visits + first - 1, end = p * run.visits + last;
    const source = run.source[start];
    const item = make("li", "", `${span(first, last)}: `);
    const names = { given: "the given label", noisy: "the noisy label", sentinel: "none, no answer is right",
      majority: "the majority answer", none: "no label is used" };
    item.append(names[run.sources[source]] ?? "unknown");
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
  const table = make("table");
  const head = make("tr");
  for (const name of ["visit", "majority answer", "votes", "which is", "label", "from"]) {
    const made = make("th", ["visit", "votes"].includes(name) ? "number" : "", name);
    made.scope = "col";
    head.append(made);
  }
  const body = make("tbody");
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
    body.append(line);
  }
  const whole = make("thead");
  whole.append(head);
  table.append(whole, body);
  const scroll = make("div", "scroll short");
  scroll.tabIndex = 0;
  scroll.append(table);
  return scroll;
}

function responses(stored) {
  if (!stored.length) return [make("p", "note", "No responses to this prompt are stored.")];
  const made = [];
  let before = "";
  for (const [visit, sample, view, answer, reward, right, tokens, isTruncated, ...content] of stored) {
    const group = `visit ${visit}${view === "original" ? "" : `, ${view} question`}`;
    if (group !== before) {
      const count = stored.filter((each) => each[0] === visit && each[2] === view).length;
      made.push(make("h4", "", `${group}: ${count} of ${run.rollouts} responses`));
    }
    before = group;
    const facts = make("p", "facts");
    facts.append(`sample ${sample}: `, answer === null ? make("em", "", "no answer") : isolated(answer, "answer"));
    if (right !== null) facts.append(make("span", `mark ${verdict[right + 1]}`, right ? " \u2713 right" : " \u2717 wrong"));
    facts.append(`, reward ${typeof reward === "number" ? Number(reward.toPrecision(4)) : reward ?? "unknown"}`);
    if (tokens !== null) facts.append(`, ${tokens.toLocaleString("en")} tokens`);
    if (isTruncated) facts.append(", cut by the length limit");
    const answered = make("div", "response");
    answered.append(facts, withCut("pre", "text", ...content));
    made.push(answered);
  }
  return made;
}
