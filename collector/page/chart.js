// Stacked bars per day with uPlot. A day whose cost is not wholly known is hatched: the bar is a lower bound.

import uPlot from "./vendor/uplot/uPlot.esm.js";
import { TOKEN_CLASSES, usd, shortTokens } from "./format.js";

const SERIES = 8;
const OTHER = "other";
const bars = uPlot.paths.bars({ size: [0.7, 60], align: 0 });

/** Rows of /aggregates to {days, names, values[name][day], complete[day]}; the smallest series are gathered as "other". */
export function stack(rows, by, measure) {
  const days = [...new Set(rows.map((row) => row.day).filter(Boolean))].sort();
  const at = new Map(days.map((day, index) => [day, index]));
  const found = new Map();
  const complete = days.map(() => true);
  const add = (name, day, value) => {
    if (!found.has(name)) found.set(name, new Array(days.length).fill(0));
    found.get(name)[day] += value ?? 0;
  };
  for (const row of rows) {
    if (!row.day) continue;
    const day = at.get(row.day);
    const missing = measure === "cost" ? row.unknown_calls : row.calls_without_tokens;
    if (missing) complete[day] = false;
    if (by === "class") for (const [key, title] of TOKEN_CLASSES) add(title, day, row[key]);
    else add(row[by] ?? "unknown", day, measure === "cost" ? row.cost_usd : row.total_tokens);
  }
  return { days, complete, ...largest(found, days.length) };
}

function largest(found, length) {
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const names = [...found.keys()].sort((a, b) => sum(found.get(b)) - sum(found.get(a)));
  if (names.length <= SERIES) return { names, values: found };
  const rest = new Array(length).fill(0);
  for (const name of names.splice(SERIES - 1)) found.get(name).forEach((value, index) => (rest[index] += value));
  found.set(OTHER, rest);
  return { names: [...names, OTHER], values: found };
}

/** Draws into `place`; gives a function that redraws with other data or another width. */
export class Chart {
  constructor(place) {
    this.place = place;
    this.plot = null;
    this.last = null;
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe(place);
  }

  size() {
    return { width: Math.max(240, this.place.clientWidth), height: 260 };
  }

  redraw() {
    if (this.last) this.draw(...this.last);
  }

  draw(data, measure) {
    this.last = [data, measure];
    this.plot?.destroy();
    this.plot = null;
    this.place.replaceChildren();
    if (!data.days.length) return;
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--ink").trim();
    const line = style.getPropertyValue("--line").trim();
    const colours = data.names.map((_, index) => style.getPropertyValue(`--series-${index + 1}`).trim());
    const show = measure === "cost" ? usd : shortTokens;
    const sums = cumulated(data);
    const series = data.names.map((name, index) => ({
      label: name,
      fill: colours[index],
      stroke: colours[index],
      width: 0,
      paths: bars,
      points: { show: false },
      value: (_, __, ___, place) => (place === null ? "–" : show(data.values.get(name)[place])),
    }));
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    const options = {
      ...this.size(),
      scales: { x: { range: padded }, y: { range: (_, __, top) => [0, top || 1] } },
      axes: [
        { ...axis, values: (_, marks) => marks.map(dayLabel), incrs: [1, 2, 7, 14, 30, 60, 90, 180, 365].map((n) => n * 86400) },
        { ...axis, size: 70, values: (_, marks) => marks.map(show) },
      ],
      series: [{ label: "day", value: (_, seconds) => (seconds === null ? "–" : dayLabel(seconds)) }, ...series.reverse()],
      cursor: { drag: { x: false, y: false } },
    };
    const x = data.days.map((day) => Date.parse(`${day}T12:00:00Z`) / 1000);
    this.plot = new uPlot(options, [x, ...sums.reverse()], this.place);
  }
}

/** The bars are drawn from the highest sum down, each over the one before: the visible part is its own share. */
function cumulated(data) {
  const below = new Array(data.days.length).fill(0);
  return data.names.map((name) => {
    data.values.get(name).forEach((value, index) => (below[index] += value));
    return [...below];
  });
}

const padded = (_, first, last) => [first - 43200, last + 43200];
const dayLabel = (seconds) => new Date(seconds * 1000).toLocaleDateString(undefined, { month: "short", day: "numeric", timeZone: "UTC" });
