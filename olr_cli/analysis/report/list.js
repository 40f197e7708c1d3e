// The list of prompts and its controls. Only visible rows are in the document, so that thousands scroll like a dozen.

const SPARE_ROWS = 8;  // rendered above and below those in view
const MOST_PRINTED = 500;  // rows on paper
let isPrinted = false;
let shown = [], opened = null, rowHeight = 40, detail = null;
const nodes = new Map();  // place among the shown -> its element

const extra = () => (detail ? detail.offsetHeight : 0);
const top = (place) => place * rowHeight + (opened !== null && place > opened ? extra() : 0);

function render() {
  const list = $("rows"), table = $("table");
  list.style.height = `${shown.length * rowHeight + extra()}px`;
  const above = table.scrollTop, below = above + table.clientHeight;
  const at = (y) => Math.floor((opened !== null && y > (opened + 1) * rowHeight
    ? Math.max(y - extra(), (opened + 1) * rowHeight) : y) / rowHeight);
  const first = isPrinted ? 0 : Math.max(0, at(above) - SPARE_ROWS);
  const last = Math.min(shown.length - 1, isPrinted ? MOST_PRINTED - 1 : at(below) + SPARE_ROWS);
  for (const [place, node] of nodes) {
    const isUsed = place === opened || node.contains(document.activeElement);
    if ((place < first || place > last) && !isUsed) {
      node.remove();
      nodes.delete(place);
    }
  }
  for (let place = first; place <= last; place++) {
    if (nodes.has(place)) continue;
    const node = row(place);
    nodes.set(place, node);
    // Keep the order of the list in the document too: screen readers follow the document.
    const next = Math.min(...[...nodes.keys()].filter((other) => other > place));
    list.insertBefore(node, nodes.get(next) ?? null);
  }
  for (const [place, node] of nodes) node.style.transform = `translateY(${top(place)}px)`;
  if (detail) detail.style.transform = `translateY(${(opened + 1) * rowHeight}px)`;
}

function countShown() {
  const isCut = isPrinted && shown.length > MOST_PRINTED;
  $("count").textContent = `${shown.length.toLocaleString("en")} of ${run.size.toLocaleString("en")} prompts`
    + (isCut ? `, of which the first ${MOST_PRINTED} are printed` : "");
}

function choose() {
  shown = matching();
  opened = detail = null;
  nodes.clear();
  $("rows").replaceChildren();
  countShown();
  $("table").setAttribute("aria-rowcount", shown.length + 1);
  $("table").scrollTop = 0;
  render();
  remember();
}

// The address -------------------------------------------------------------------------------------------------------

const CONTROLS = ["search", "view", ...Object.keys(filters)];
const PREFIX = "#prompts?";
let isRestoring = false;
const address = (state) => PREFIX + new URLSearchParams(state);

/** Write the view into the address, so that it can be shared as a link. */
function remember() {
  if (isRestoring) return;
  const state = $("run").options.length > 1 ? { run: run.number } : {};
  for (const name of CONTROLS) if ($(name).value) state[name] = $(name).value;
  if (order.key !== run.order) state.sort = order.key;
  if (!order.ascending) state.order = "down";
  if (opened !== null) state.prompt = run.ids[shown[opened]];
  const isPlain = Object.keys(state).every((name) => name === "run") && !location.hash.startsWith(PREFIX);
  if (!isPlain) history.replaceState(null, "", address(state));
}

const addressed = () => new URLSearchParams(location.hash.startsWith(PREFIX) ? location.hash.slice(PREFIX.length) : "");

/** Show the view in the address; ignore parts that have no meaning. */
async function restore() {
  const number = Number(addressed().get("run") ?? 0);
  if (number in $("run").options) $("run").value = String(number);
  await show(Number($("run").value), addressed());
}

let isDue = false;
function renderSoon() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => { isDue = false; render(); });
}

function toggle(place) {
  const before = opened;
  if (before !== null) {
    nodes.get(before)?.classList.remove("opened");
    nodes.get(before)?.querySelector(".open").setAttribute("aria-expanded", "false");
    detail?.remove();
    detail = opened = null;
  }
  if (place !== before) {
    opened = place;
    const node = nodes.get(place);
    node.classList.add("opened");
    node.querySelector(".open").setAttribute("aria-expanded", "true");
    detail = details(shown[place]);
    node.after(detail);
    new ResizeObserver(renderSoon).observe(detail);
  }
  render();
  remember();
}

/** The row that keys act on: the opened one, else the one with the focus. */
const current = () => opened ?? Number(document.activeElement?.closest?.(".row")?.dataset.place ?? -1);

/** Scroll to a row and focus it; if one is open, or `isOpened`, open it. */
function go(wanted, isOpened = opened !== null) {
  if (!shown.length) return;
  const place = Math.min(Math.max(wanted, 0), shown.length - 1);
  if (opened !== null && opened !== place) toggle(opened);
  const table = $("table"), head = $("heads").offsetHeight;
  if (top(place) < table.scrollTop || isOpened) table.scrollTop = top(place);
  const end = top(place) + rowHeight + head - table.clientHeight;
  if (end > table.scrollTop) table.scrollTop = end;
  render();
  if (isOpened && opened !== place) {
    toggle(place);
    table.scrollTop = top(place);
    render();
  }
  nodes.get(place).querySelector(".open").focus({ preventScroll: true });
}

/** The columns of this run and view, their heads and orders. */
function heads() {
  columns = allColumns.filter(({ has, isBlind: isShown }) => (!has || has()) && (isShown || !isBlind()));
  const made = columns.map(({ key, name }) => {
    const head = make("div", `cell ${key}`);
    head.setAttribute("role", "columnheader");
    const button = make("button", "", name);
    button.type = "button";
    button.addEventListener("click", () => sortBy(key, order.key === key ? !order.ascending : true));
    head.append(button);
    return head;
  });
  $("heads").replaceChildren(...made);
  $("sort").replaceChildren(...ordersNow().map(({ key, name }) => new Option(name, key)));
  $("table").style.setProperty("--columns", columns.filter(({ isLong }) => !isLong).map(({ width }) => width).join(" "));
  $("legend").hidden = isBlind() || !run.kind;
  measure();
}

function sortBy(key, ascending) {
  if (!ordersNow().some((each) => each.key === key)) key = run.order;
  Object.assign(order, { key, ascending });
  const word = ascending ? "ascending" : "descending";
  [...$("heads").children].forEach((head, i) => {
    if (columns[i].key === key) head.setAttribute("aria-sort", word);
    else head.removeAttribute("aria-sort");
  });
  $("sort").value = key;
  $("direction").textContent = `${ascending ? "\u2191" : "\u2193"} ${word}`;
  arrange();
  choose();
}

function legend() {
  if (!run.kind) return;
  const there = new Set(run.kind);
  const items = [...KINDS.keys()].slice(RIGHT).concat(NO_MAJORITY).filter((kind) => there.has(kind)).map((kind) => {
    const { css, name } = KINDS[kind];
    const item = make("span");
    item.append(make("span", `swatch ${css}`), name);
    return item;
  });
  $("legend").replaceChildren("Majority answer: ", ...items);
}

async function show(number, state = new URLSearchParams()) {
  const loaded = await load(number);
  if (Number($("run").value) !== number) return;  // another one was chosen meanwhile
  run = loaded;
  searched = null;
  $("noise").replaceChildren(new Option("any", ""),
    ...run.noiseTypes.map((name, i) => new Option(name || "unknown", i)));
  recallVerdicts();
  countVerdicts();
  isRestoring = true;
  for (const name of CONTROLS) {
    $(name).value = state.get(name) ?? "";
    if ($(name).selectedIndex === -1) $(name).value = "";
  }
  legend();
  $("prompts-note").textContent = `${run.responsesNote} ${run.questionsNote}`;
  $("command").textContent = `${run.command} --verified selection.json`;
  $("audit-note").replaceChildren(...run.auditNotes.map((sentence) => make("li", "", sentence)));
  $("tools").hidden = $("table").hidden = $("checking").hidden = false;
  const isOffered = { audit: run.audit !== null, noise: run.noiseTypes.length > 1, majority: Boolean(run.kind),
    changed: run.firstReplaced.some(Boolean) };
  for (const [name, isUseful] of Object.entries(isOffered)) $(name).closest("label").hidden = !isUseful;
  showDraw();
  // A random draw must come from all prompts: drawn from the most doubtful ones it would estimate nothing.
  for (const name of ["size", "seed", "drawing"]) ($(name).closest("label") ?? $(name)).hidden = run.isPart;
  heads();
  sortBy(state.get("sort") ?? run.order, state.get("order") !== "down");
  const asked = state.has("prompt") ? shown.findIndex((p) => run.ids[p] === state.get("prompt")) : -1;
  if (asked >= 0) go(asked, true);
  if (location.hash.startsWith(PREFIX)) $("prompts").scrollIntoView();
  isRestoring = false;
  remember();
  setTimeout(() => { searched ??= haystacks(); });  // so that the first letter typed finds them ready
}

const narrow = window.matchMedia("(max-width: 60rem)");

/** Long cells have a line each on a narrow screen, and else one together; the others fill a line, or lines of three, where the id has two places. */
function measure() {
  const long = columns.filter(({ isLong }) => isLong).length, others = columns.length - long;
  const lines = narrow.matches ? long + Math.ceil((others + 1) / 3) : Math.min(long, 1) + 1;
  rowHeight = 8 + 26 * lines;
  $("table").style.setProperty("--row-height", `${rowHeight}px`);
}

/** The buttons of a draw show the current draw. */
function showDraw() {
  const [size, chosen] = $("draw").value.split(":");
  if (size) Object.assign($("size"), { value: size });
  if (chosen) Object.assign($("seed"), { value: chosen });
  $("drawing").textContent = size ? "All prompts again" : "Draw at random";
  $("size").disabled = $("seed").disabled = Boolean(size);
}

function toggleDraw() {
  $("draw").value = $("draw").value ? "" : `${Math.max(1, parseInt($("size").value, 10) || 25)}:${parseInt($("seed").value, 10) || 0}`;
  showDraw();
  sortBy($("draw").value ? "random" : run.order, true);
}

/** Record a verdict and go to the next row; for a wrong label, ask for the true answer first. */
function judge(place, verdict) {
  if (!decide(shown[place], verdict)) return;
  if (verdict !== "wrong") go(place + 1);
  else {
    go(place, true);
    detail.querySelector(".judgement input").focus();
  }
}

/** Enter and Escape return the keys to the list; after a true answer, Enter goes to the next row. */
function leave(field, isDone) {
  if (!field.closest(".detail")) field.blur();
  else go(opened + (isDone ? 1 : 0));
}

function listen() {
  $("tools").addEventListener("submit", (event) => event.preventDefault());
  $("search").addEventListener("input", choose);
  for (const name of Object.keys(filters)) $(name).addEventListener("change", choose);
  $("run").addEventListener("change", () => show(Number($("run").value)));
  $("run").closest("label").hidden = $("run").options.length < 2;
  $("sort").addEventListener("change", () => sortBy($("sort").value, true));
  $("direction").addEventListener("click", () => sortBy(order.key, !order.ascending));
  $("table").addEventListener("scroll", renderSoon, { passive: true });
  window.addEventListener("resize", () => { measure(); renderSoon(); });
  for (const [event, isNow] of [["beforeprint", true], ["afterprint", false]]) {
    window.addEventListener(event, () => { isPrinted = isNow; countShown(); render(); });
  }
  $("view").addEventListener("change", () => { heads(); sortBy(order.key, order.ascending); });
  $("drawing").addEventListener("click", toggleDraw);
  $("export").addEventListener("click", exportVerdicts);
  window.addEventListener("hashchange", () => { if (location.hash.startsWith(PREFIX)) restore(); });
  $("rows").addEventListener("click", (event) => {
    const node = event.target.closest(".verdicts") ? null : event.target.closest(".row");
    // A click that ends a selection of text must not open the row.
    const isMeant = event.target.closest(".open") || !getSelection().toString();
    if (node && isMeant) toggle(Number(node.dataset.place));
  });
  $("rows").addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const node = event.target.closest(".row");
    if (!step || !node) return;
    event.preventDefault();
    go(Number(node.dataset.place) + step, false);
  });
  document.addEventListener("keydown", (event) => {
    const field = event.target.closest?.("input, select, textarea");
    if (event.ctrlKey || event.metaKey || event.altKey || !run) return;
    const step = { j: 1, k: -1 }[event.key], verdict = VERDICTS[Number(event.key) - 1];
    if (field?.matches("input") && ["Enter", "Escape"].includes(event.key)) leave(field, event.key === "Enter");
    else if (field) return;
    else if (step) go(current() + step);
    else if (verdict && shown[current()] !== undefined) judge(current(), verdict);
    else return;
    event.preventDefault();
  });
}

// A figure is at most as wide as the page; a button shows it at its full size, where all text is readable.
const enlarging = [...document.querySelectorAll(".enlarge")];
function offerFullSize() {
  for (const button of enlarging) {
    const figure = button.closest("figure"), image = figure.querySelector("img");
    const isLarge = figure.classList.contains("large");
    button.textContent = isLarge ? "Fit the page" : "Full size";
    button.hidden = !isLarge && image.clientWidth >= Number(image.getAttribute("width"));
  }
}
for (const button of enlarging) {
  button.addEventListener("click", () => { button.closest("figure").classList.toggle("large"); offerFullSize(); });
}
window.addEventListener("resize", offerFullSize);
offerFullSize();

if (typeof DecompressionStream === "undefined") {
  $("count").textContent = "This browser is too old to unpack the prompts; any of 2023 or later can.";
} else {
  listen();
  restore();
}
