// The page: asks the API, fills cards, chart and tables, and asks again every few seconds. State lives in the address,
// so that a reload or a link shows the same.

import { TokenNeeded, all, get, useToken } from "./api.js";
import { cost, explainBadges, learn } from "./badge.js";
import { Chart, stack } from "./chart.js";
import { Table, element } from "./table.js";
import { TOKEN_CLASSES, UNKNOWN, number, plural, shortTokens, time, tokens, usd } from "./format.js";

const EVERY = 5000;
const PAGE = 50;
const CARDS = [["today", "Today"], ["week", "This week"], ["month", "This month"]];
const REMEMBERED = ["window", "runtime", "model", "vm", "measure", "by", "sort"];

const $ = (id) => document.getElementById(id);
const tokenColumns = TOKEN_CLASSES.map(([key, title]) => ({ title, key, number: true, show: (row) => tokens(row[key]) }));
const sums = [
  { title: "calls", key: "calls", number: true, show: (row) => number(row.calls) },
  ...tokenColumns,
  { title: "cost", key: "cost_usd", number: true, show: cost },
];
const text = (title, key) => ({ title, key, show: (row) => row[key] ?? UNKNOWN });
const when = (title, key) => ({ title, key, show: (row) => time(row[key]) });

const tables = {
  models: new Table($("models"), [text("model", "model"), ...sums], { caption: "By model", empty: "No calls in this window." }),
  runtimes: new Table(
    $("runtimes"),
    [text("runtime", "runtime"), { title: "counted from", key: "source", show: (row) => SOURCES[row.source] ?? "usage lines; lists sessions" }, ...sums],
    { caption: "By runtime", empty: "No calls in this window." },
  ),
  vms: new Table($("vms"), [text("VM", "vm"), when("last seen", "last_seen"), { title: "missing lines", key: "missing_lines", number: true, show: (row) => number(row.missing_lines) }, ...sums], {
    caption: "By VM",
    empty: "No VM has reported yet.",
  }),
  sessions: new Table(
    $("sessions"),
    [{ title: "session", show: sessionName }, text("runtime", "runtime"), text("model", "model"), when("last call", "ended_at"), ...sums].map(({ key, ...column }) => column),
    { caption: "Sessions, a page at a time", empty: "No sessions in this window." },
  ),
  refused: new Table(
    $("refused"),
    [text("refused because", "reason"), text("runtime", "runtime"), text("VM", "vm"), { title: "records", key: "count", number: true, show: (row) => number(row.count) }, when("last", "last_at")],
    { caption: "Refused records", empty: "Nothing was refused." },
  ),
  gaps: new Table(
    $("gaps"),
    [text("VM", "vm"), text("start of the shim", "boot"), { title: "missing lines", key: "lines", number: true, show: (row) => `${number(row.lines)} (${row.first_seq}–${row.last_seq})` }],
    { caption: "Missing lines", empty: "No usage line is missing." },
  ),
  sources: new Table(
    $("sources"),
    [text("source", "path"), text("kind", "kind"), { title: "state", key: "ok", show: (row) => (row.ok ? "read" : `unreadable: ${row.error}`) }, when("last read", "last_read_at"), { title: "bytes behind", key: "lag_bytes", number: true, show: (row) => number(row.lag_bytes) }],
    { caption: "What is read", empty: "Nothing is read yet: set VM_USAGE_LOG or VM_USAGE_HOMES." },
  ),
};
const SOURCES = { log: "usage lines", vendor: "its own record" };
const chart = new Chart($("chart"));
const shown = {};
const pages = { cursors: [null], at: 0 };

function sessionName(row) {
  const name = element("span", { className: "id", textContent: row.session_id, title: row.session_id });
  return name;
}

function choices() {
  const chosen = {};
  for (const form of ["filters", "chart-choices", "session-choices"]) {
    for (const [name, value] of new FormData($(form))) chosen[name] = value;
  }
  return chosen;
}

function remember(chosen) {
  const kept = new URLSearchParams(REMEMBERED.filter((name) => chosen[name]).map((name) => [name, chosen[name]]));
  history.replaceState(null, "", `#${kept}`);
}

function recall() {
  for (const [name, value] of new URLSearchParams(location.hash.slice(1))) {
    if (!REMEMBERED.includes(name)) continue;
    for (const field of document.getElementsByName(name)) {
      if (field.type === "radio") field.checked = field.value === value;
      else {
        if (value && ![...field.options].some((option) => option.value === value)) field.add(new Option(value, value));
        field.value = value;
      }
    }
  }
}

/** Whether a part of the page must be drawn anew: its rows or what is asked of them changed. */
function stale(part, ...inputs) {
  const same = shown[part]?.every((input, index) => input === inputs[index]);
  shown[part] = inputs;
  return !same;
}

function fillCards(rows) {
  if (!stale("cards", rows)) return;
  const byWindow = new Map(rows.map((row) => [row.window, row]));
  $("summary").replaceChildren(
    ...CARDS.filter(([name]) => byWindow.has(name)).map(([name, title]) => {
      const row = byWindow.get(name);
      const card = $("card").content.firstElementChild.cloneNode(true);
      card.dataset.window = name;
      card.querySelector("h3").textContent = title;
      if (row.calls) card.querySelector(".cost").append(cost(row));
      else card.querySelector(".cost").append(element("span", { className: "figure none", textContent: "no calls" }));
      const list = card.querySelector("dl");
      const facts = row.calls ? [["calls", number(row.calls)], ...TOKEN_CLASSES.map(([key, label]) => [label, shortTokens(row[key])])] : [];
      if (row.unknown_calls) facts.push(["calls without a cost", number(row.unknown_calls)]);
      for (const [term, value] of facts) list.append(element("dt", { textContent: term }), element("dd", { textContent: value }));
      return card;
    }),
  );
}

function fillChart(rows, chosen) {
  if (!stale("chart", rows, chosen.by, chosen.measure)) return;
  const measure = chosen.by === "class" ? "tokens" : chosen.measure;
  const data = stack(rows, chosen.by, measure);
  const open = data.complete.filter((whole) => !whole).length;
  const what = measure === "cost" ? "cost" : "token count";
  $("chart-note").textContent = open ? `${plural(open, "day has", "days have")} calls of unknown ${what}: those bars are lower bounds.` : "";
  chart.draw(data, measure);
  const columns = data.names.map((name) => ({ title: name, number: true, show: (row) => (measure === "cost" ? usd : tokens)(row[name]) }));
  const note = { title: "complete", show: (row) => (row.whole ? "yes" : "no, a lower bound") };
  const table = new Table($("days-table"), [{ title: "day", show: (row) => row.day }, ...columns, note], { caption: `${measure} per day`, empty: "No days.", sortable: false });
  table.fill(data.days.map((day, index) => ({ day, whole: data.complete[index], ...Object.fromEntries(data.names.map((name) => [name, data.values.get(name)[index]])) })));
}

function fillOptions(name, values) {
  const [select] = document.getElementsByName(name);
  const chosen = select.value;
  const wanted = ["", ...new Set([...values.filter(Boolean), ...(chosen ? [chosen] : [])])];
  if (wanted.join("\n") === [...select.options].map((option) => option.value).join("\n")) return;
  select.replaceChildren(...wanted.map((value) => new Option(value || "all", value)));
  select.value = chosen;
}

function fillSessions(answer) {
  tables.sessions.fill(answer.rows);
  pages.cursors[pages.at + 1] = answer.next_cursor;
  $("next-page").disabled = !answer.next_cursor;
  $("previous-page").disabled = $("first-page").disabled = pages.at === 0;
  $("page-number").textContent = answer.rows.length ? `page ${pages.at + 1}` : "";
}

let running = null;
let again = false;

/** Ask everything and show it; a call while one is running asks once more afterwards. */
async function update() {
  if (running) {
    again = true;
    return running;
  }
  running = refresh().finally(() => {
    running = null;
    if (again) {
      again = false;
      update();
    }
  });
  return running;
}

async function refresh() {
  const chosen = choices();
  remember(chosen);
  const where = { window: chosen.window, runtime: chosen.runtime, model: chosen.model, vm: chosen.vm };
  const by = chosen.by === "class" ? undefined : chosen.by;
  try {
    learn(await get("states"));
    const [summary, days, models, runtimes, sessions, vms, refused, gaps, sources, everyModel, everyRuntime] = await Promise.all([
      get("summary", { runtime: chosen.runtime, model: chosen.model, vm: chosen.vm }),
      all("aggregates", { ...where, by }),
      get("models", where),
      get("runtimes", where),
      get("sessions", { ...where, sort: chosen.sort, limit: PAGE, cursor: pages.cursors[pages.at] }),
      get("vms", {}),
      get("refused", {}),
      get("gaps", {}),
      get("sources", {}),
      get("models", {}),
      get("runtimes", {}),
    ]);
    $("problem").hidden = $("token").hidden = true;
    fillOptions("model", everyModel.rows.map((row) => row.model));
    fillOptions("runtime", everyRuntime.rows.map((row) => row.runtime));
    fillOptions("vm", vms.rows.map((row) => row.vm));
    const fleet = vms.rows.length > 1;
    $("vm-filter").hidden = $("vms-section").hidden = !fleet;
    $("scope").textContent = fleet ? plural(vms.rows.length, "VM", "VMs") : (vms.rows[0]?.vm ?? "");
    const nothing = !everyRuntime.rows.length;
    $("empty").hidden = !nothing;
    fillCards(summary.rows);
    fillChart(days, chosen);
    tables.models.fill(models.rows);
    tables.runtimes.fill(runtimes.rows);
    tables.vms.fill(vms.rows);
    tables.refused.fill(refused.rows);
    tables.gaps.fill(gaps.rows);
    tables.sources.fill(sources.rows);
    fillSessions(sessions);
    $("freshness").textContent = `Updated ${new Date().toLocaleTimeString()}`;
  } catch (error) {
    fail(error);
  }
}

function fail(error) {
  $("token").hidden = !(error instanceof TokenNeeded);
  $("problem").hidden = false;
  $("problem").textContent = error.message;
  $("freshness").textContent = "Not up to date";
}

function turnPage(to) {
  pages.at = to;
  update();
}

function firstPage() {
  pages.cursors = [null];
  pages.at = 0;
}

function listen() {
  for (const form of ["filters", "chart-choices", "session-choices"]) {
    $(form).addEventListener("change", () => {
      if (form !== "chart-choices") firstPage();
      update();
    });
    $(form).addEventListener("submit", (event) => event.preventDefault());
  }
  $("token").addEventListener("submit", (event) => {
    event.preventDefault();
    useToken($("token").elements.token.value);
    update();
  });
  $("first-page").addEventListener("click", () => turnPage(0));
  $("previous-page").addEventListener("click", () => turnPage(pages.at - 1));
  $("next-page").addEventListener("click", () => turnPage(pages.at + 1));
  $("theme").addEventListener("click", () => paint($("theme").getAttribute("aria-pressed") !== "true"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => paint(event.matches));
  document.addEventListener("visibilitychange", () => document.hidden || update());
}

/** Dark or light; the chart takes its colours from the page. */
function paint(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  $("theme").setAttribute("aria-pressed", String(dark));
  chart.redraw();
}

async function start() {
  paint(matchMedia("(prefers-color-scheme: dark)").matches);
  recall();
  listen();
  explainBadges($("why"));
  await update();
  document.body.dataset.ready = "yes";
  setInterval(() => document.hidden || update(), EVERY);
}

start();
