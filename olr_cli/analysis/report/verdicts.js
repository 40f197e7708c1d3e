// The reader's verdicts on labels, kept in the browser and exported for `olr audit --verified`.

const VERDICTS = [...Object.keys(MARKS), ""];
let verdicts = new Map();  // prompt id -> { verdict, answer, label, drawn }, of the run that is shown

const verdictOf = (p) => verdicts.get(run.ids[p])?.verdict ?? "";
const place = () => `olr report ${location.pathname} ${run.run}`;

/** The verdicts that this browser has stored, without those on labels that have changed since. */
function recallVerdicts() {
  verdicts = new Map();
  let stored = {};
  try { stored = JSON.parse(localStorage.getItem(place())) ?? {}; } catch { /* nothing is remembered */ }
  run.ids.forEach((id, p) => {
    const { verdict, answer, label, drawn } = Object.hasOwn(stored, id) ? stored[id] ?? {} : {};
    if (Object.hasOwn(MARKS, verdict) && label === judged(p)) {
      verdicts.set(id, { verdict, answer: String(answer ?? ""), label, drawn: drawn === true });
    }
  });
}

/** Set a verdict on a label; the same verdict again removes it. `answer` is the true answer for a wrong label. */
function decide(p, verdict, answer) {
  const before = verdicts.get(run.ids[p]), label = judged(p);
  const isTaken = answer !== undefined || before?.verdict !== verdict;
  if (verdict === "kept" && label === null) return false;
  const drawn = drawnPrompts().has(p) || (before?.drawn ?? false);
  if (isTaken) verdicts.set(run.ids[p], { verdict, answer: answer ?? before?.answer ?? "", label, drawn });
  else verdicts.delete(run.ids[p]);
  try { localStorage.setItem(place(), JSON.stringify(Object.fromEntries(verdicts))); } catch { /* until the page closes */ }
  for (const group of document.querySelectorAll(`.verdicts[data-prompt="${p}"]`)) mark(group, p);
  countVerdicts();
  return isTaken;
}

function mark(group, p) {
  for (const button of group.children) button.setAttribute("aria-pressed", button.value === verdictOf(p));
}

/** In a row, keys set the verdict, so that each row is a single stop of the tab key. */
function verdictButtons(p, isInRow = true) {
  const group = make("span", "verdicts");
  group.dataset.prompt = p;
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", "Your verdict on the label");
  Object.entries(MARKS).forEach(([verdict, [sign, name]], i) => {
    const button = make("button", verdict, sign);
    button.append(make("span", "word", ` ${name}`));
    button.type = "button";
    button.value = verdict;
    button.title = `${name} (key ${i + 1})`;
    button.setAttribute("aria-label", name);
    button.disabled = verdict === "kept" && judged(p) === null;
    if (isInRow) button.tabIndex = -1;
    button.addEventListener("click", () => decide(p, verdict));
    group.append(button);
  });
  mark(group, p);
  return group;
}

function countVerdicts() {
  $("export").disabled = verdicts.size === 0;
  $("export").textContent = `Export selection (${verdicts.size.toLocaleString("en")})`;
}

/** One row per verdict, in the order of the prompts, as `olr audit --verified` reads it; `drawn` marks a random draw. */
function exportVerdicts() {
  const rows = [...run.ids.entries()].filter(([, id]) => verdicts.has(id)).map(([p, id]) => {
    const { verdict, answer, label, drawn: wasDrawn } = verdicts.get(id);
    const drawn = wasDrawn || drawnPrompts().has(p);  // or was read before the draw
    const right = { kept: label, wrong: answer.trim() || null }[verdict] ?? null;
    return { prompt_id: id, verdict, given_label: label, true_answer: right, drawn };
  });
  const link = make("a");
  link.href = URL.createObjectURL(new Blob([`${JSON.stringify(rows, null, 1)}\n`], { type: "application/json" }));
  link.download = "selection.json";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
