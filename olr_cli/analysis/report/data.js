// The data of a run: unpack, search, sort and filter them.

const $ = (id) => document.getElementById(id);
const { kinds: KINDS, sources: SOURCES, verdicts: MARKS } = JSON.parse($("words").textContent);
const [NO_VISIT, NO_MAJORITY, RIGHT] = KINDS.keys();
const collator = new Intl.Collator("en", { numeric: true });
let run;  // the one that is shown; p is a prompt of it, a cell one of its visits
let searched, arranged;

async function unpacked(name) {
  const block = $(name);
  const packed = atob(block.textContent);
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer();
  switch (block.dataset.kind) {
    case "json": return JSON.parse(new TextDecoder().decode(buffer));
    case "u8": return new Uint8Array(buffer);
    case "u16": return new Uint16Array(buffer);
    default: return new Uint32Array(buffer);
  }
}

/** A run's header and arrays, and the values derived from them for each prompt; a log has no arrays of visits. */
async function load(number) {
  const data = await unpacked(`run${number}-header`);
  const names = ["audit", ...data.arrays];
  const parts = await Promise.all(names.map((name) => unpacked(`run${number}-${name}`)));
  names.forEach((name, i) => { data[name] = parts[i]; });
  data.number = number;
  data.size = data.ids.length;
  data.replaced = data.sources.indexOf("majority");
  data.firstReplaced = new Uint32Array(data.size);
  data.wronglyReplaced = new Uint8Array(data.size);
  for (let p = 0; data.kind && p < data.size; p++) {
    for (let v = 0; v < data.last[p]; v++) {
      const cell = p * data.visits + v;
      if (data.source[cell] !== data.replaced) continue;
      data.firstReplaced[p] ||= v + 1;
      if (data.true[p] > 0 && data.kind[cell] !== RIGHT) data.wronglyReplaced[p] = 1;
    }
  }
  return data;
}

/** The audit's value of a column for a prompt, or null. */
const audit = (name, p) => run.audit?.[name][p] ?? null;
const final = (p) => p * run.visits + run.last[p] - 1;
const passRate = (cell) => run.votes[cell] / run.rollouts;

/** The text that the search reads: each prompt's id, question, labels and answers, in lower case. */
function haystacks() {
  return run.ids.map((id, p) => {
    const words = new Set([run.true[p]]);
    for (let cell = p * run.visits; run.kind && cell <= final(p); cell++) {
      words.add(run.majority[cell]).add(run.label[cell]);
    }
    const [head, tail, , others, end] = run.questions?.[p] ?? ["", "", 0, "", ""];
    const audited = [audit("proposed_label", p) ?? "", ...(audit("answers", p) ?? []).map(([answer]) => answer)];
    return [id, head + tail, others + end, judged(p) ?? "", ...audited, ...Array.from(words, (word) => run.strings[word])].join("\n").toLowerCase();
  });
}

const text = (index) => (index === run.sentinel && index > 0 ? "none right" : run.strings[index]);
/** The audited label, or null. It comes from the audit, since active noise draws a new label at every visit. */
const judged = (p) => (run.audit ? audit("given_label", p) : run.given[p] === run.sentinel ? null
  : run.strings[run.given[p]] || null);
const shownLabel = (p) => judged(p) ?? (run.given?.[p] === run.sentinel ? "none right" : "\u2013");
const question = (p) => (run.questions ? run.questions[p][0].slice(0, 400) : "");

/** Leave out columns that are empty for a run, and in blind mode all columns that reveal answers. */
const allColumns = [
  { key: "question", name: "question", by: question, has: () => run.questions, isBlind: true, isLong: true },
  { key: "evidence", name: "answers", by: (p) => audit("evidence", p) ?? "", has: () => run.audit, isLong: true },
  { key: "id", name: "prompt", by: (p) => p, isBlind: true, width: "minmax(5.5rem, 0.7fr)" },
  { key: "given", name: "label", by: (p) => judged(p) ?? "", isBlind: true, width: "minmax(5rem, 1fr)" },
  { key: "true", name: "true answer", by: (p) => text(run.true[p]), has: () => run.true.some(Boolean), width: "minmax(5rem, 1fr)" },
  { key: "noise", name: "noise", by: (p) => run.noiseTypes[run.noise[p]], has: () => run.noiseTypes.length > 1, width: "5rem" },
  { key: "label", name: "label now", by: (p) => text(run.label[final(p)]), has: () => run.label?.some(Boolean), width: "5.5rem" },
  { key: "strip", name: "majority answer by visit", by: (p) => run.kind[final(p)], has: () => run.kind, width: "9rem" },
  { key: "rate", name: "pass rate", by: (p) => passRate(final(p)), has: () => run.kind, width: "7rem" },
  { key: "changed", name: "label replaced", by: (p) => run.firstReplaced[p] || Infinity, has: () => run.firstReplaced.some(Boolean), width: "9.5rem" },
  // Labels verified to be wrong come first, then the queue, then labels without a verdict.
  { key: "wrong", name: "doubt", by: (p) => audit("rank", p) ?? (audit("confidence", p) === 1 ? 0 : Infinity), has: () => run.audit, width: "9rem" },
  { key: "proposal", name: "proposal", by: (p) => audit("proposed_label", p) ?? "\uffff", has: () => run.audit?.proposed_label.some((label) => label !== null), width: "minmax(5.5rem, 1fr)" },
  { key: "verdict", name: "your verdict", by: (p) => VERDICTS.indexOf(verdictOf(p)), isBlind: true, width: "var(--verdicts)" },
];
let columns = [];
const isBlind = () => $("view").value === "blind";
const orders = [...allColumns, { key: "random", name: "random order", by: (p) => scrambled(`${seed()}${run.ids[p]}`) }];
const ordersNow = () => orders.filter((each) => !allColumns.includes(each) || columns.includes(each) || each.key === run.order);

/** A random draw is written "SIZE:SEED"; empty for no draw. */
const seed = () => $("draw").value.split(":")[1] ?? "";
let lastDraw = [];
function drawnPrompts() {
  const name = $("draw").value;
  if (lastDraw[0] !== name || lastDraw[1] !== run) {
    const keys = run.ids.map((id) => scrambled(`${seed()}${id}`));
    const labelled = [...keys.keys()].filter((p) => judged(p) !== null);
    labelled.sort((p, q) => keys[p] - keys[q] || p - q);
    lastDraw = [name, run, new Set(labelled.slice(0, parseInt(name, 10) || 0))];
  }
  return lastDraw[2];
}

/** FNV-1a hash of a text, mixed: it gives an order without pattern that is the same each time. */
function scrambled(word) {
  let hash = 2166136261;
  for (let i = 0; i < word.length; i++) hash = Math.imul(hash ^ word.charCodeAt(i), 16777619);
  hash = Math.imul(hash ^ (hash >>> 16), 2246822507);
  return (hash ^ (hash >>> 13)) >>> 0;
}
const order = { key: "id", ascending: true };

function compare(a, b) {
  if (typeof a === "number") return a === b ? 0 : a - b;
  return collator.compare(a, b);
}

function arrange() {
  const by = orders.find(({ key }) => key === order.key).by;
  const values = Array.from({ length: run.size }, (_, p) => by(p));
  const sign = order.ascending ? 1 : -1;
  arranged = Uint32Array.from(values.keys());
  arranged.sort((p, q) => sign * compare(values[p], values[q]) || p - q);
}

const filters = {
  draw: (p) => drawnPrompts().has(p),
  noise: (p, value) => String(run.noise[p]) === value,
  changed: (p, value) => ({
    now: run.source[final(p)] === run.replaced,
    ever: run.firstReplaced[p] > 0,
    never: run.firstReplaced[p] === 0,
    wrongly: run.wronglyReplaced[p] > 0,
  })[value],
  audit: (p, value) => (value.startsWith("proposal") ? audit("proposal_is_right", p) === (value === "proposal right")
    : value === audit(value === "changed" ? "change" : "status", p)),
  verdict: (p, value) => (value === "any" ? verdictOf(p) !== "" : value === "none" ? verdictOf(p) === ""
    : verdictOf(p) === value),
  majority: (p, value) => {
    const kind = run.kind[final(p)];
    if (value === "none") return kind === NO_MAJORITY;
    if (value === "unknown") return run.true[p] === 0;
    return run.true[p] > 0 && kind !== NO_MAJORITY && (kind === RIGHT) === (value === "right");
  },
};

/** The prompts that pass the search and the filters, in order. */
function matching() {
  const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length && !searched) searched = haystacks();
  const asked = Object.entries(filters).filter(([name]) => $(name).value !== "");
  return arranged.filter((p) => asked.every(([name, holds]) => holds(p, $(name).value))
    && words.every((word) => searched[p].includes(word)));
}
