/* The page: population charts at once, a role's section when it is opened, filter and order of the table. */
const data = JSON.parse(document.getElementById("data").textContent);
const roles = data.roles;
const VERDICTS = { PASS: "steers", PASS_PROMPT_ONLY: "prompt only", FLAG: "flagged" };
const byId = (id) => document.getElementById(id);

/* --- population ------------------------------------------------------------------------------------------------ */
const whole = data.population;
const series = (table) => Object.entries(table).map(([arm, points]) => ({ arm, label: data.arms[arm] ?? arm, points }));

chart(byId("chart-gain"), (width) => {
  const refs = whole.prompted_gain ? [{ arm: "prompted", label: "prompted", value: whole.prompted_gain[0] }] : [];
  const label = "Mean gain over the unsteered model by strength, for each arm";
  return [armLegend(series(whole.gain), refs), lines(width, 300, { strengths: whole.strengths, series: series(whole.gain), refs, zero: true, label, yTitle: "points", yText: (v) => signed(v, v % 1 ? 1 : 0) })];
});

chart(byId("chart-margin"), (width) => {
  const shown = series(whole.margins);
  const label = "Margin of the role's direction over each control, by strength";
  return [armLegend(shown, []), lines(width, 300, { strengths: whole.strengths, series: shown, refs: [], zero: true, loose: true, label, yTitle: "points", yText: (v) => signed(v, v % 1 ? 1 : 0) })];
});

chart(byId("chart-bigrams"), (width) => {
  const refs = [{ limit: true, label: "least allowed", value: whole.min_diversity }];
  if (whole.baseline_bigrams) refs.push({ arm: "baseline", label: "unsteered", value: whole.baseline_bigrams[0] });
  const label = "Unique-bigram ratio by strength, for each arm";
  return [armLegend(series(whole.bigrams), refs), lines(width, 250, { strengths: whole.strengths, series: series(whole.bigrams), refs, digits: 2, label, yText: (v) => fixed(v, 2) })];
});

chart(byId("chart-chosen"), (width) => {
  const most = Math.max(1, ...whole.chosen);
  const label = `Passing roles by strength: ${whole.strengths.map((s, i) => `${whole.chosen[i]} at ${s}`).join(", ")}`;
  const count = whole.strengths.length;
  const plot = frame(width, 210, [-0.5, count - 0.5], [0, most * 1.12], { label, xTitle: "strength", xTicks: whole.strengths.map((_, i) => i), xText: (i) => plain(whole.strengths[i]), yTicks: ticks(0, most, Math.min(4, most)).filter(Number.isInteger) });
  const wide = Math.min(54, ((plot.right - plot.left) / count) * 0.62);
  whole.chosen.forEach((value, i) => {
    plot.svg.append(shape("rect", { class: "fillbar", x: plot.sx(i) - wide / 2, y: plot.sy(value), width: wide, height: plot.bottom - plot.sy(value), rx: 2 }));
    plot.svg.append(shape("text", { class: "strong", x: plot.sx(i), y: plot.sy(value) - 6, "text-anchor": "middle" }, String(value)));
  });
  return plot.svg;
});

/* --- role space ------------------------------------------------------------------------------------------------ */
const space = data.space;
const LEVELS = { 1: "1 individual", 5: "5 nation" };
const GROUPS = {
  family: (point) => roles[point.id]?.family || "no family",
  level: (point) => (point.level === null ? "no level" : `level ${LEVELS[point.level] ?? point.level}`),
  verdict: (point) => VERDICTS[roles[point.id]?.verdict] ?? "undecided",
};

function grouped(kind) {
  const names = [...new Set(space.points.map(GROUPS[kind]))];
  if (kind === "level") names.sort();
  if (kind === "verdict") names.sort((a, b) => Object.values(VERDICTS).indexOf(a) - Object.values(VERDICTS).indexOf(b));
  const styles = new Map(names.map((name, i) => [name, { style: `k${i % 6}`, outline: Math.floor(i / 6) }]));
  for (const name of names) {
    if (name.startsWith("no ")) styles.set(name, { style: "none", outline: 0 });
    if (kind === "level" && name.startsWith("level ")) styles.set(name, { style: `l${Math.min(5, Number(name[6]))}`, outline: 0 });
    if (kind === "verdict") styles.set(name, { style: `p-${Object.keys(VERDICTS).find((key) => VERDICTS[key] === name)}`, outline: Object.values(VERDICTS).indexOf(name) });
  }
  return styles;
}

function roleWords(point) {
  const role = roles[point.id];
  const gone = [role?.family, point.level === null ? null : `level ${point.level}`].filter(Boolean).join(", ");
  return [role?.name ?? point.id, gone, role ? `${VERDICTS[role.verdict]}${role.strength === null ? "" : ` at ${plain(role.strength)}`}` : ""].filter(Boolean).join("\n");
}

function spacePoints(kind, xy) {
  const styles = grouped(kind);
  return space.points.map((point) => ({ id: point.id, name: roles[point.id]?.name ?? point.id, told: roleWords(point), group: GROUPS[kind](point), ...styles.get(GROUPS[kind](point)), ...xy(point) })).filter((p) => Number.isFinite(p.x) && Number.isFinite(p.y));
}

function spotlight(host, group) {
  for (const made of host.querySelectorAll("[data-group]")) made.classList.toggle("dim", group !== null && made.dataset.group !== group);
}

function drawSpace() {
  const kinds = Object.keys(GROUPS).filter((kind) => grouped(kind).size > 1);
  let kind = kinds[0] ?? "family";
  const host = byId("chart-pca");
  const paint = (width) => {
    let held = null;
    const legend = [...grouped(kind)].map(([name, look]) => node("button", { type: "button", "aria-pressed": "false", onclick: (event) => {
      held = held === name ? null : name;
      for (const button of event.currentTarget.parentNode.children) button.setAttribute("aria-pressed", String(button === event.currentTarget && held !== null));
      spotlight(host, held);
    }, onpointerenter: () => spotlight(host, name), onpointerleave: () => spotlight(host, held) }, [shape("svg", { width: 12, height: 12, "aria-hidden": "true" }, mark(6, 6, look.style, look.outline, 4.5)), name]));
    const choose = kinds.map((name) => node("button", { type: "button", "aria-pressed": String(name === kind), onclick: () => { kind = name; host.replaceChildren(...paint(host.clientWidth)); } }, name));
    const points = spacePoints(kind, (point) => ({ x: point.xy[0], y: point.xy[1] }));
    return [
      ...(kinds.length > 1 ? [node("div", { class: "switch", role: "group", "aria-label": "Colour by" }, ["Colour by ", ...choose])] : []),
      node("div", { class: "legend" }, legend),
      scatter(width, Math.min(460, Math.max(320, width * 0.64)), points, { named: points.length <= 32, xTitle: "PC1", yTitle: "PC2", label: `Directions of ${points.length} roles on their first two principal components` }),
    ];
  };
  chart(host, paint);

  chart(byId("chart-levels"), (width) => {
    const levels = [...new Set(space.points.map((p) => p.level ?? 0))].sort((a, b) => b - a);
    const points = spacePoints("level", (point) => ({ x: point.along, y: levels.indexOf(point.level ?? 0) })).map((p, i) => ({ ...p, y: p.y + (((i * 0.618034) % 1) - 0.5) * 0.5 }));
    return scatter(width, 70 + 44 * levels.length, points, { y: [levels.length - 0.4, -0.6], left: 84, yTicks: levels.map((_, i) => i), yText: (i) => (levels[i] ? `${LEVELS[levels[i]] ?? levels[i]}` : "no level"), xTitle: "projection", label: "Projection on the granularity axis by level" });
  });

  chart(byId("chart-norm"), (width) => {
    const points = spacePoints("verdict", (point) => ({ x: point.norm, y: point.slope ?? NaN }));
    return scatter(width, 290, points, { named: points.length <= 20, zero: true, xTitle: "norm of the direction", yTitle: "points per unit of strength", label: "Norm of each direction against its slope", yText: (v) => signed(v, v % 1 ? 1 : 0) });
  });
}
if (space) drawSpace();

/* --- one role -------------------------------------------------------------------------------------------------- */
function drawRole(section) {
  const host = section.querySelector(".drawn");
  if (host.childElementCount) return;
  const role = roles[section.dataset.role];
  drawCurves(host, role);
  drawAnswers(host, role);
  drawHealth(host, role);
}

function drawCurves(host, role) {
  const arms = Object.keys(data.arms).filter((arm) => role.curves[arm] && arm !== "baseline" && arm !== "prompted");
  if (!arms.length) return;
  const pick = (arm, dimension) => whole.strengths.map((s) => role.curves[arm][String(s)]?.[dimension] ?? null);
  const level = (arm, dimension) => role.curves[arm]?.["0"]?.[dimension]?.[0];
  const all = data.dimensions.map((_, d) => ({
    series: arms.map((arm) => ({ arm, label: data.arms[arm], points: pick(arm, d) })),
    refs: ["baseline", "prompted"].filter((arm) => Number.isFinite(level(arm, d))).map((arm) => ({ arm, label: data.arms[arm], value: level(arm, d) })),
  }));
  const values = all.flatMap((one) => [...one.series.flatMap((s) => s.points.flatMap((p) => p ?? [])), ...one.refs.map((r) => r.value)]);
  const [low, high] = extent(values, 0.02);
  const y = [Math.max(0, Math.floor(low / 10) * 10), Math.min(100, Math.ceil(high / 10) * 10)];
  const grid = node("div", { class: "curves" });
  host.append(node("h3", {}, "Six dimensions by strength"), armLegend(all[0].series, all[0].refs), grid);
  all.forEach((one, d) => {
    const box = node("div", { class: "chart" });
    grid.append(node("div", {}, [node("h4", {}, data.dimensions[d]), box]));
    chart(box, (width) => lines(width, 170, { ...one, strengths: whole.strengths, y, here: role.strength, xTitle: "", left: 30, label: `${data.dimensions[d]} of ${role.name} by strength` }));
  });
}

function drawAnswers(host, role) {
  if (!role.examples.length) return;
  const shown = node("div", { class: "answers", "aria-live": "polite" });
  const pickers = role.examples.map((example, i) => node("button", { type: "button", "aria-pressed": "false", onclick: () => show(i) }, [example.label ? node("small", {}, example.label) : null, example.question]));
  const rank = (answer) => (answer.arm === "prompted" ? -2e9 : answer.arm === "baseline" ? -1e9 : answer.strength);
  function show(chosen) {
    pickers.forEach((button, i) => button.setAttribute("aria-pressed", String(i === chosen)));
    const answers = role.examples[chosen].answers.map(([arm, strength, score, text, note]) => ({ arm, strength, score, text, note })).sort((a, b) => rank(a) - rank(b));
    shown.replaceChildren(...answers.map((answer) => {
      const best = answer.arm === "role" && answer.strength === role.strength;
      const title = answer.arm === "role" ? `strength ${plain(answer.strength)}${best ? ", recommended" : ""}` : data.arms[answer.arm];
      const text = data.texts[answer.text];
      const body = answer.note ? node("p", { class: "gone" }, `No answer: ${answer.note}`) : text ? node("p", { tabindex: text.length > 700 ? 0 : null }, text) : node("p", { class: "gone" }, "Empty answer");
      const broken = role.health.find((row) => row.arm === answer.arm && row.strength === answer.strength)?.broken ?? [];
      const warning = broken.length ? node("p", { class: "bad" }, `over all its answers: ${broken.join(", ")}`) : null;
      return node("article", { class: `answer a-${answer.arm}${answer.arm === "role" && !best ? " plain" : ""}` }, [node("header", {}, [node("span", {}, title), node("span", {}, answer.score === null ? "no score" : `overall ${answer.score}`)]), warning, body]);
    }));
  }
  host.append(node("h3", {}, "Answers side by side"), node("div", { class: "questions", role: "group", "aria-label": "Question" }, pickers), shown);
  show(0);
}

function drawHealth(host, role) {
  if (!role.health.length) return;
  const columns = [["unique-bigram ratio", (v) => fixed(v, 2), "repetitive"], ["degenerate", share, "degenerate"], ["assistant phrases", share, "leakage"], ["words", (v) => fixed(v, 0)], ["perplexity", (v) => fixed(v, 1)]];
  const rows = role.health.map((row) => node("tr", {}, [
    node("th", { scope: "row" }, row.arm === "role" ? `strength ${plain(row.strength)}` : data.arms[row.arm]),
    ...columns.map(([, print, rule], i) => node("td", { class: row.broken.includes(rule) ? "bad" : null, title: row.broken.includes(rule) ? `breaks the rule: ${rule}` : null }, print(row.values[i]))),
  ]));
  const head = node("tr", {}, [node("th", { scope: "col" }, ""), ...columns.map(([name]) => node("th", { scope: "col" }, name))]);
  host.append(node("h3", {}, "Health of the text"), node("div", { class: "scroll" }, node("table", { class: "health" }, [node("thead", {}, head), node("tbody", {}, rows)])));
}
function share(value) { return value === null ? "–" : `${Math.round(value * 100)}%`; }

const sections = new Map([...document.querySelectorAll("details.role")].map((section) => [section.dataset.role, section]));
for (const section of sections.values()) section.addEventListener("toggle", () => section.open && drawRole(section));

function openRole(id) {
  const section = sections.get(id);
  if (!section) return;
  if (section.hidden) showAll();
  section.open = true;
  drawRole(section);
  section.querySelector("summary").focus({ preventScroll: true });
  section.scrollIntoView({ block: "start" });
  history.replaceState(null, "", `#role-${id}`);
}
const follow = () => location.hash.startsWith("#role-") && openRole(location.hash.slice(6));
addEventListener("hashchange", follow);

/* --- table ----------------------------------------------------------------------------------------------------- */
const body = document.querySelector("#heat tbody");
const rows = [...body.rows];
const field = byId("filter");
const toggles = [...document.querySelectorAll(".toggles button")];

function filter() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = new Set(toggles.filter((button) => button.getAttribute("aria-pressed") === "true").map((button) => button.dataset.verdict));
  let count = 0;
  for (const row of rows) {
    const seen = wanted.has(row.dataset.verdict) && words.every((word) => row.dataset.text.includes(word));
    row.hidden = !seen;
    sections.get(row.dataset.role).hidden = !seen;
    count += seen;
  }
  byId("shown").textContent = `${count} of ${rows.length} shown`;
}

function showAll() {
  field.value = "";
  for (const button of toggles) button.setAttribute("aria-pressed", "true");
  filter();
}

field.addEventListener("input", filter);
for (const button of toggles) {
  button.addEventListener("click", () => {
    button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
    filter();
  });
}

const SORTS = {
  text: (cell) => cell.textContent.trim().toLowerCase(),
  number: (cell) => (cell.dataset.v === "" ? NaN : Number(cell.dataset.v)),
  rank: (cell) => Number(cell.parentNode.dataset.rank),
};
document.querySelectorAll("#heat thead th").forEach((head, column, heads) => {
  head.addEventListener("click", () => {
    const value = SORTS[head.dataset.kind];
    const first = head.dataset.kind === "number" ? "descending" : "ascending";
    const way = head.getAttribute("aria-sort") === first ? (first === "ascending" ? "descending" : "ascending") : first;
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", way);
    const sign = way === "ascending" ? 1 : -1;
    const unknown = (v) => v !== v || v === "" || v === "–";
    const keyed = rows.map((row) => [value(row.cells[column]), row]);
    keyed.sort(([a], [b]) => unknown(a) - unknown(b) || sign * (a > b ? 1 : a < b ? -1 : 0));
    body.append(...keyed.map(([, row]) => row));
  });
});

body.addEventListener("click", (event) => {
  const row = event.target.closest("tr");
  if (!row || event.ctrlKey || event.metaKey || String(getSelection())) return;
  event.preventDefault();
  openRole(row.dataset.role);
});
follow();
