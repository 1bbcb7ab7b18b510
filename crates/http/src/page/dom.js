// Elements, and how figures are written.

/** Makes an element: `make("td", {class: "number"}, "7")`. Properties that begin with `on` are listeners. */
export function make(tag, properties = {}, ...children) {
  const svg = ["svg", "path", "rect", "title"].includes(tag);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

export function bytes(count) {
  if (count === null || count === undefined || count === "-" || Number.isNaN(Number(count))) return "–";
  let value = Number(count), unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) { value /= 1024; unit += 1; }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(value >= 10 ? 1 : 2)} ${UNITS[unit]}`;
}

export function time(nanoseconds) {
  if (nanoseconds === null || nanoseconds === undefined) return "–";
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
    if (nanoseconds >= size) return `${(nanoseconds / size).toPrecision(3)} ${unit}`;
  }
  return `${Math.round(nanoseconds)} ns`;
}

export function span(seconds) {
  if (!Number.isFinite(seconds)) return "unknown";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${(seconds / 3600).toFixed(1)} h` : `${(seconds / 86400).toFixed(1)} days`;
}

const DATE = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

export const date = (seconds) => DATE.format(new Date(Number(seconds) * 1000));

export const count = (number) => Number(number ?? 0).toLocaleString();

/** A bar that is filled to a part between 0 and 1. */
export function bar(part, label) {
  const filled = make("span", { class: part > 0.9 ? "full" : null });
  filled.style.width = `${Math.min(100, Math.max(0, part * 100))}%`;
  const now = Math.round(part * 100);
  const meter = { role: "meter", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": now };
  return make("div", { class: "bar", ...meter }, filled);
}

export function state(name) {
  const kind = name === "ONLINE" || name === "AVAIL" ? "good" : name === "DEGRADED" || name === "OFFLINE" ? "warn" : "bad";
  return make("span", { class: `state ${kind}` }, name);
}

export const facts = (pairs) =>
  make("dl", { class: "facts" }, pairs.map(([term, value]) => make("div", {}, make("dt", {}, term), make("dd", {}, value))));

/** A ratio, which comes in hundredths. */
export const ratio = (hundredths) => (hundredths === undefined ? "–" : `${(hundredths / 100).toFixed(2)} ×`);

/** Properties by name: their numbers, texts, or the names of their numbers. */
export const values = (properties) =>
  Object.fromEntries(properties.map(({ name, value, word }) => [name, word ?? value.text ?? value.number]));

const ROW_PIXELS = 34;

/** A table of many rows, of which only those in sight exist. `row(item)` makes the cells of one. */
export function longTable(label, heads, items, row) {
  const body = make("tbody");
  const head = make("tr", {}, heads.map(([text, kind]) => make("th", { scope: "col", class: kind }, text)));
  const table = make("table", { "aria-label": label, "aria-rowcount": items.length + 1 }, make("thead", {}, head), body);
  const window = make("div", { class: "window", tabindex: 0, role: "region", "aria-label": label }, table);
  const gap = (rows) => {
    const cell = make("td", { colspan: heads.length });
    cell.style.height = `${rows * ROW_PIXELS}px`;
    return make("tr", { class: "gap", "aria-hidden": true }, cell);
  };
  let shown = "";
  const show = () => {
    const first = Math.max(0, Math.floor(window.scrollTop / ROW_PIXELS) - 20);
    const last = Math.min(items.length, first + Math.ceil((window.clientHeight || 700) / ROW_PIXELS) + 40);
    if (shown === `${first}-${last}`) return;
    shown = `${first}-${last}`;
    const rows = items.slice(first, last).map((item, at) => {
      const line = make("tr", { "aria-rowindex": first + at + 2 }, row(item));
      line.style.height = `${ROW_PIXELS}px`;
      return line;
    });
    body.replaceChildren(...(first ? [gap(first)] : []), ...rows, ...(last < items.length ? [gap(items.length - last)] : []));
  };
  window.addEventListener("scroll", show, { passive: true });
  show();
  return window;
}

/** Says something for some seconds. */
export function note(text, isBad = false) {
  const said = make("p", { class: isBad ? "bad" : null }, text);
  document.getElementById("notes").append(said);
  setTimeout(() => said.remove(), isBad ? 12000 : 5000);
}
