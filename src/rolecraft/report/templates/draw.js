"use strict";
/* Small drawings in SVG: lines with intervals, points, bars. Texts are only ever set as text. */
const SVG = document.querySelector("svg").namespaceURI;
const tip = document.getElementById("tip");

function node(kind, attributes, children) {
  const made = document.createElement(kind);
  return furnish(made, attributes, children);
}

function shape(kind, attributes, children) {
  return furnish(document.createElementNS(SVG, kind), attributes, children);
}

function furnish(made, attributes = {}, children = []) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  for (const child of [].concat(children)) if (child !== null) made.append(child);
  return made;
}

const minus = (text) => text.replace("-", "−");
const fixed = (value, digits = 1) => (value === null || value === undefined ? "–" : minus((Math.round(value * 10 ** digits) / 10 ** digits + 0).toFixed(digits)));
const signed = (value, digits = 1) => (value > 0 && fixed(value, digits) !== fixed(0, digits) ? "+" : "") + fixed(value, digits);
const plain = (value) => minus(String(value));
const range = (point, digits = 1) => (point[1] === point[2] ? "" : ` [${fixed(point[1], digits)}, ${fixed(point[2], digits)}]`);

function say(event, text) {
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = event.clientX + 14 + box.width > innerWidth ? event.clientX - 14 - box.width : event.clientX + 14;
  tip.style.left = `${Math.max(6, left)}px`;
  tip.style.top = `${Math.max(6, Math.min(event.clientY + 14, innerHeight - box.height - 6))}px`;
}
const hush = () => { tip.hidden = true; };
addEventListener("scroll", hush, { passive: true });

/* A drawing is a function of its width; it is drawn again when the width changes. */
function chart(host, draw) {
  if (!host) return;
  let width = 0;
  const paint = () => {
    const now = Math.round(host.clientWidth);
    if (!now || now === width) return;
    width = now;
    host.replaceChildren(...[].concat(draw(width)));
  };
  paint();
  new ResizeObserver(paint).observe(host);
}

function ticks(low, high, count) {
  const rough = (high - low) / count || 1;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * unit).find((n) => n >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1) found.push(Number((i * step).toPrecision(10)));
  return found;
}

function extent(values, pad = 0.06) {
  const known = values.filter((value) => Number.isFinite(value));
  if (!known.length) return [0, 1];
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const room = (high - low || Math.abs(high) || 1) * pad;
  return [low - room, high + room];
}

/* The plot's frame: scales, grid, tick labels and axis titles. */
function frame(width, height, x, y, options = {}) {
  const left = options.left ?? 40;
  const [top, right, bottom] = [options.yTitle ? 24 : 10, 12, options.xTitle === "" ? 22 : 38];
  const sx = (value) => left + ((value - x[0]) / (x[1] - x[0] || 1)) * (width - left - right);
  const sy = (value) => height - bottom - ((value - y[0]) / (y[1] - y[0] || 1)) * (height - top - bottom);
  const svg = shape("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": options.label ?? "" });
  for (const value of options.yTicks ?? ticks(y[0], y[1], height > 200 ? 5 : 4)) {
    svg.append(shape("line", { class: value === 0 && options.zero ? "zero" : "grid", x1: left, x2: width - right, y1: sy(value), y2: sy(value) }));
    svg.append(shape("text", { x: left - 8, y: sy(value) + 4, "text-anchor": "end" }, (options.yText ?? plain)(value)));
  }
  for (const value of options.xTicks ?? ticks(x[0], x[1], width > 420 ? 6 : 4)) {
    svg.append(shape("text", { x: sx(value), y: height - bottom + 17, "text-anchor": "middle" }, (options.xText ?? plain)(value)));
  }
  if (options.yTitle) svg.append(shape("text", { x: 0, y: 10 }, options.yTitle));
  if (options.xTitle) svg.append(shape("text", { x: (left + width - right) / 2, y: height - 3, "text-anchor": "middle" }, options.xTitle));
  return { svg, sx, sy, left, top, right: width - right, bottom: height - bottom };
}

const OUTLINES = [
  (r) => `M${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`,
  (r) => `M0 ${-1.2 * r}L${1.15 * r} ${0.85 * r}H${-1.15 * r}z`,
  (r) => `M${-0.9 * r} ${-0.9 * r}h${1.8 * r}v${1.8 * r}h${-1.8 * r}z`,
  (r) => `M0 ${-1.3 * r}L${1.3 * r} 0L0 ${1.3 * r}L${-1.3 * r} 0z`,
];
const ARM_OUTLINE = { role: 0, axis: 1, random: 2, shuffled: 3 };
const mark = (x, y, style, outline = 0, radius = 4) =>
  shape("path", { class: `mark ${style}`, d: OUTLINES[outline % OUTLINES.length](radius), transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})` });

/* Arms by strength. series: {arm, label, points: ([mean, low, high] | null)[]}; refs: {arm or limit, label, value}. */
function lines(width, height, spec) {
  const xs = spec.strengths;
  const x = xs.length > 1 ? [Math.min(...xs), Math.max(...xs)] : [xs[0] - 0.5, xs[0] + 0.5];
  const room = (x[1] - x[0]) * 0.05;
  const y = spec.y ?? extent([...spec.series.flatMap((s) => s.points.flatMap((p) => p ?? [])), ...spec.refs.map((r) => r.value), ...(spec.zero ? [0] : [])]);
  const plot = frame(width, height, [x[0] - room, x[1] + room], y, { ...spec, xTicks: xs, xTitle: spec.xTitle ?? "strength" });
  if (spec.here !== null && spec.here !== undefined) plot.svg.append(shape("line", { class: "here", x1: plot.sx(spec.here), x2: plot.sx(spec.here), y1: plot.top, y2: plot.bottom }));
  for (const ref of spec.refs) {
    plot.svg.append(shape("line", { class: ref.limit ? "limit" : `ref a-${ref.arm}`, x1: plot.left, x2: plot.right, y1: plot.sy(ref.value), y2: plot.sy(ref.value) }));
  }
  const order = [...spec.series].sort((a, b) => (a.arm === "role") - (b.arm === "role"));
  order.forEach((series, place) => {
    const known = series.points.map((point, i) => (point ? [xs[i], ...point] : null)).filter(Boolean).sort((a, b) => a[0] - b[0]);
    if (!known.length) return;
    const style = `a-${series.arm}`;
    const at = (value, column) => `${plot.sx(value[0]).toFixed(1)} ${plot.sy(value[column]).toFixed(1)}`;
    if (series.arm === "role" && !spec.loose && known.length > 1) {
      const outline = [...known.map((v) => at(v, 3)), ...[...known].reverse().map((v) => at(v, 2))];
      plot.svg.append(shape("path", { class: `band ${style}`, d: `M${outline.join("L")}z` }));
    }
    const shift = spec.loose || series.arm !== "role" || known.length === 1 ? (place - (order.length - 1) / 2) * (spec.loose ? 7 : 2.5) : 0;
    for (const value of spec.loose || series.arm !== "role" || known.length === 1 ? known : []) {
      plot.svg.append(shape("line", { class: `whisker ${style}`, x1: plot.sx(value[0]) + shift, x2: plot.sx(value[0]) + shift, y1: plot.sy(value[2]), y2: plot.sy(value[3]) }));
    }
    if (!spec.loose) plot.svg.append(shape("path", { class: `line ${style}${series.arm === "role" ? " main" : ""}`, d: `M${known.map((v) => at(v, 1)).join("L")}` }));
    for (const value of known) plot.svg.append(mark(plot.sx(value[0]) + (spec.loose ? shift : 0), plot.sy(value[1]), style, ARM_OUTLINE[series.arm], series.arm === "role" ? 4.5 : 3.5));
  });
  const digits = spec.digits ?? 1;
  xs.forEach((value, i) => {
    const wide = (plot.right - plot.left) / Math.max(1, xs.length);
    const told = [`strength ${plain(value)}`, ...spec.series.filter((s) => s.points[i]).map((s) => `${s.label}: ${fixed(s.points[i][0], digits)}${range(s.points[i], digits)}`), ...spec.refs.map((r) => `${r.label}: ${fixed(r.value, digits)}`)].join("\n");
    plot.svg.append(shape("rect", { class: "column", x: plot.sx(value) - wide / 2, y: plot.top, width: wide, height: plot.bottom - plot.top, onpointermove: (event) => say(event, told), onpointerleave: hush }));
  });
  return plot.svg;
}

function armLegend(series, refs) {
  const sample = (arm, dashed) => shape("svg", { width: 22, height: 12, "aria-hidden": "true" }, [
    shape("line", { class: dashed ?? `line a-${arm}`, x1: 0, x2: 22, y1: 6, y2: 6 }),
    dashed ? null : mark(11, 6, `a-${arm}`, ARM_OUTLINE[arm], 3.5),
  ]);
  return node("div", { class: "legend" }, [
    ...series.map((s) => node("span", {}, [sample(s.arm), s.label])),
    ...refs.map((r) => node("span", {}, [sample(r.arm, r.limit ? "limit" : `ref a-${r.arm}`), r.label])),
  ]);
}

/* Points with labels. points: {id, name, told, x, y, style, outline, group}. */
function scatter(width, height, points, options) {
  const plot = frame(width, height, extent(points.map((p) => p.x)), options.y ?? extent(points.map((p) => p.y)), options);
  const taken = points.map((p) => [plot.sx(p.x) - 5, plot.sy(p.y) - 5, 10, 10]);
  const clash = (a) => a[0] < plot.left || a[0] + a[2] > width || taken.some((b) => a[0] < b[0] + b[2] && b[0] < a[0] + a[2] && a[1] < b[1] + b[3] && b[1] < a[1] + a[3]);
  for (const point of points) {
    const made = mark(plot.sx(point.x), plot.sy(point.y), `point ${point.style}`, point.outline, points.length > 120 ? 4.2 : 5.2);
    made.dataset.group = point.group ?? "";
    furnish(made, { onpointermove: (event) => say(event, point.told), onpointerleave: hush, onclick: () => { hush(); openRole(point.id); } });
    plot.svg.append(made);
  }
  for (const point of options.named ? points : []) {
    const [px, py, long] = [plot.sx(point.x), plot.sy(point.y), point.name.length * 6.1 + 2];
    const spots = [[px + 9, py - 7, "start", px + 9, py + 4], [px - 9 - long, py - 7, "end", px - 9, py + 4], [px - long / 2, py - 22, "middle", px, py - 10], [px - long / 2, py + 8, "middle", px, py + 19]];
    const free = spots.find((spot) => !clash([spot[0], spot[1], long, 14]));
    if (!free) continue;
    taken.push([free[0], free[1], long, 14]);
    const label = shape("text", { class: "label", x: free[3], y: free[4], "text-anchor": free[2], "pointer-events": "none" }, point.name);
    label.dataset.group = point.group ?? "";
    plot.svg.append(label);
  }
  return plot.svg;
}
