// The data of a run: unpacked, searched, sorted and filtered.

const NO_VISIT = 0, NO_MAJORITY = 1, RIGHT = 2, WRONG_LABEL = 3, GIVEN = 4, OTHER = 5;
const KINDS = {
  [RIGHT]: { css: "right", height: 1, name: "the true answer" },
  [WRONG_LABEL]: { css: "wrong-label", height: 0.7, name: "a wrong label" },
  [GIVEN]: { css: "given", height: 0.85, name: "the given label, truth unknown" },
  [OTHER]: { css: "other", height: 0.45, name: "another answer" },
  [NO_MAJORITY]: { css: "none", height: 0.2, name: "no majority" },
};
const $ = (id) => document.getElementById(id);
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

/** A run's header and arrays, and what is derived from them for each prompt. */
async function load(number) {
  const names = ["header", "audit", "noise", "given", "true", "last", "label_right",
    "kind", "votes", "majority", "label", "source"];
  const parts = await Promise.all(names.map((name) => unpacked(`run${number}-${name}`)));
  const data = Object.fromEntries(names.map((name, i) => [name, parts[i]]));
  Object.assign(data, data.header);
  data.number = number;
  data.size = data.ids.length;
  data.replaced = data.sources.indexOf("majority");
  data.firstReplaced = new Uint32Array(data.size);
  data.wronglyReplaced = new Uint8Array(data.size);
  for (let p = 0; p < data.size; p++) {
    for (let v = 0; v < data.last[p]; v++) {
      const cell = p * data.visits + v;
      if (data.source[cell] !== data.replaced) continue;
      data.firstReplaced[p] ||= v + 1;
      if (data.true[p] > 0 && data.kind[cell] !== RIGHT) data.wronglyReplaced[p] = 1;
    }
  }
  return data;
}

/** What the audit says of a prompt: null where it says nothing. */
const audit = (name, p) => run.audit?.[name][p] ?? null;
const final = (p) => p * run.visits + run.last[p] - 1;
const passRate = (cell) => run.votes[cell] / run.rollouts;

/** What the search looks through: each prompt's id, question, labels and answers, in lower case. */
function haystacks() {
  return run.ids.map((id, p) => {
    const words = new Set([run.given[p], run.true[p]]);
    for (let cell = p * run.visits; cell <= final(p); cell++) {
      words.add(run.majority[cell]).add(run.label[cell]);
    }
    const question = run.questions ? `${run.questions[p][0]}${run.questions[p][1]}` : "";
    const audited = [audit("given_label", p) ?? "", audit("proposed_label", p) ?? ""];
    return [id, question, ...audited, ...Array.from(words, (word) => run.strings[word])].join("\n").toLowerCase();
  });
}

const text = (index) => (index === run.sentinel && index > 0 ? "none right" : run.strings[index]);
/** The label that stands in the data; under active noise none does, as one is drawn from the rollouts of each visit. */
const givenLabel = (p) => (run.given[p] === run.sentinel && run.noiseTypes[run.noise[p]] === "active"
  ? "varies" : text(run.given[p]));
const question = (p) => (run.questions ? run.questions[p][0] : "");
const columns = [
  { key: "id", name: "prompt", by: (p) => p },
  { key: "question", name: "question", by: question },
  { key: "noise", name: "noise", by: (p) => run.noiseTypes[run.noise[p]] },
  { key: "given", name: "given label", by: givenLabel },
  { key: "true", name: "true answer", by: (p) => text(run.true[p]) },
  { key: "label", name: "label now", by: (p) => text(run.label[final(p)]) },
  { key: "strip", name: "majority answer by visit", by: (p) => run.kind[final(p)] },
  { key: "rate", name: "pass rate", by: (p) => passRate(final(p)) },
  { key: "changed", name: "label replaced", by: (p) => run.firstReplaced[p] || Infinity },
  // Verified to be wrong, then the queue, and last those of which the audit says nothing.
  { key: "wrong", name: "label wrong", by: (p) => audit("rank", p) ?? (audit("confidence", p) === 1 ? 0 : Infinity) },
  { key: "proposal", name: "proposal", by: (p) => audit("proposed_label", p) ?? "\uffff" },
  { key: "verdict", name: "your verdict", by: (p) => VERDICTS.indexOf(verdictOf(p)) },
];
const orders = [...columns, { key: "random", name: "random order", by: (p) => scrambled(run.ids[p]) }];

/** FNV-1a of a text, mixed: an order without pattern that is the same each time. */
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

/** The prompts that the search and the filters leave, in order. */
function matching() {
  const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length && !searched) searched = haystacks();
  const asked = Object.entries(filters).filter(([name]) => $(name).value !== "");
  return arranged.filter((p) => asked.every(([name, holds]) => holds(p, $(name).value))
    && words.every((word) => searched[p].includes(word)));
}
