// A prompt's row. All strings of a run are written as text and never become HTML.

const SVG = "http://www.w3.org/2000/svg";

function make(tag, css, content) {
  const made = document.createElement(tag);
  if (css) made.className = css;
  if (content !== undefined) made.textContent = content;
  return made;
}

/** Text from a run, isolated so that right-to-left text does not reorder the rest of the line. */
const isolated = (content, css) => make("bdi", css, content);

function drawn(tag, attributes, parent) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (parent) parent.append(made);
  return made;
}

/** Runs of visits with the same value: [first, last, value], visits from 1. */
function stretches(p, value) {
  const found = [];
  for (let visit = 1; visit <= run.last[p]; visit++) {
    const now = value(p * run.visits + visit - 1);
    const latest = found[found.length - 1];
    if (latest && latest[2] === now) latest[1] = visit;
    else found.push([visit, visit, now]);
  }
  return found;
}

const span = (first, last) => (first === last ? `visit ${first}` : `visits ${first} to ${last}`);

function picture(css, width, label) {
  return drawn("svg", {
    class: css, viewBox: `0 0 ${width} 1`, preserveAspectRatio: "none", role: "img", "aria-label": label,
  });
}

/** One cell per visit; kinds differ in colour and in height. */
function strip(p) {
  const kinds = stretches(p, (cell) => run.kind[cell]);
  const told = kinds.map(([first, last, kind]) => `${span(first, last)}: ${KINDS[kind].name}`);
  const made = picture("strip", run.visits, told.join("; "));
  drawn("title", {}, made).textContent = told.join("\n");
  // Draw one path per kind: with a rectangle per visit a page of rows would have thousands of elements.
  const gap = run.visits > 40 ? 0 : 0.12;
  const outlines = {};
  for (const [first, last, kind] of kinds) {
    if (kind === NO_VISIT) continue;
    const { height } = KINDS[kind];
    const width = gap ? 1 - gap : last - first + 1;
    for (let visit = first; visit <= (gap ? last : first); visit++) {
      const cell = `M${(visit - 1 + gap / 2).toFixed(2)} 1v${-height}h${width}v${height}z`;
      outlines[kind] = (outlines[kind] ?? "") + cell;
    }
  }
  for (const [kind, d] of Object.entries(outlines)) drawn("path", { class: KINDS[kind].css, d }, made);
  return made;
}

function line(p) {
  const start = p * run.visits;
  const rates = Array.from({ length: run.last[p] }, (_, v) => passRate(start + v));
  const shownRate = rates[rates.length - 1].toFixed(2);
  const made = picture("line", Math.max(run.visits - 1, 1), `pass rate ${rates[0].toFixed(2)} at first, ${shownRate} now`);
  const end = rates.length === 1 ? [rates[0]] : [];  // a single visit is a level line
  const points = [...rates, ...end].map((rate, v) => `${v},${(1 - rate).toFixed(3)}`);
  drawn("polyline", { points: points.join(" "), "vector-effect": "non-scaling-stroke" }, made);
  const cell = make("span", "trend");
  cell.append(made, make("span", "number", shownRate));
  return cell;
}

const CORRECT = ["", "wrong", "right"];

function label(p) {
  const made = make("span", "label");
  const right = CORRECT[run.label_right[p]];
  made.append(isolated(text(run.label[final(p)]) || "\u2013"));
  if (right) made.append(correctness(right));
  return made;
}

function replaced(p) {
  const first = run.firstReplaced[p];
  if (!first) return make("span", "dim", "never");
  const now = run.source[final(p)] === run.replaced ? "" : " (not now)";
  const made = make("span", "", `visit ${first} \u2192 `);
  made.append(isolated(text(run.label[p * run.visits + first - 1])), now);
  return made;
}

/** A confidence in percent; one that is not certain never reads as 0 or 100. */
const percent = (share) => (share === null ? "\u2013" : share > 0.995 ? ">99 %" : share < 0.005 ? "<1 %"
  : `${(100 * share).toFixed(0)} %`);

/** The chance that the label is wrong (its rank in the queue without verified labels), and its status. */
function doubt(p) {
  const chance = audit("confidence", p), rank = audit("rank", p), status = audit("status", p);
  if (rank === null) return chance === null ? "\u2013" : `verified: ${chance ? "wrong" : "right"}`;
  const number = chance === null ? `rank ${rank.toLocaleString("en")}` : `${percent(chance)} wrong`;
  return ["doubted", "questionable"].includes(status) ? `${number}, ${status}` : number;
}

function proposal(p) {
  const made = make("span", "label"), right = audit("proposal_is_right", p);
  made.append(isolated(audit("proposed_label", p) ?? "\u2013"));
  if (right !== null) made.append(correctness(CORRECT[right + 1]));
  return made;
}

function correctness(right) {
  const made = make("span", `mark ${right}`, right === "right" ? "\u2713" : "\u2717");
  made.setAttribute("role", "img");
  made.setAttribute("aria-label", right);
  return made;
}

/** The content of a row, by column. */
const contents = {
  question: (p) => isolated(question(p)),
  evidence: (p) => isolated(audit("evidence", p) ?? ""),
  given: (p) => isolated(shownLabel(p)),
  true: (p) => isolated(text(run.true[p]) || "\u2013"),
  noise: (p) => run.noiseTypes[run.noise[p]] || "unknown",
  label, strip, rate: line, changed: replaced, wrong: doubt, proposal, verdict: (p) => verdictButtons(p),
};

function row(place) {
  const p = shown[place];
  const made = make("div", "row");
  made.setAttribute("role", "row");
  made.setAttribute("aria-rowindex", place + 2);
  made.dataset.place = place;
  const button = make("button", "open");
  button.type = "button";
  button.setAttribute("aria-expanded", "false");
  button.append(isolated(run.ids[p]));
  for (const { key, name } of columns) {
    const cell = make("div", `cell ${key}`);
    cell.setAttribute("role", "cell");
    cell.dataset.name = name;
    cell.append(key === "id" ? button : contents[key](p));
    made.append(cell);
  }
  return made;
}
