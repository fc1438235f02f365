// A cost with its badge. On hover or focus the badge says why the figure is what it is, in the ledger's own words.

import { usd, plural, UNKNOWN } from "./format.js";

let words = { states: {}, bases: {}, sources: {}, caveats: {} };

/** The texts of /api/local/states, by code. */
export function learn(texts) {
  words = texts;
}

/** The sentences that explain one row's cost. */
export function reasons(row) {
  const state = words.states[row.cost_status];
  const said = state ? [`${state.when} ${state.promise}`] : [];
  if (row.unknown_calls) said.push(`${plural(row.unknown_calls, "call is", "calls are")} missing from this figure.`);
  if (row.cost_basis && words.bases[row.cost_basis]) said.push(words.bases[row.cost_basis]);
  for (const code of (row.cost_caveat ?? "").split(",").filter(Boolean)) said.push(words.caveats[code] ?? code);
  if (row.second_estimate_calls) said.push(secondEstimate(row));
  return said;
}

/** What a later price list made of a session's calls: beside the first price, in no sum. */
function secondEstimate(row) {
  const [second, first] = [row.second_estimate_usd, row.second_estimate_first_usd].map((value) => (value === null ? UNKNOWN : usd(value)));
  const calls = plural(row.second_estimate_calls, "call", "calls");
  return `Second estimate of ${row.second_estimate_at.slice(0, 10)}, in no sum: ${second} for ${calls}, priced ${first} first.`;
}

/** An element with the figure and its badge. */
export function cost(row) {
  const box = document.createElement("span");
  box.className = "money";
  const figure = document.createElement("span");
  figure.className = row.cost_usd === null ? "figure unknown" : "figure";
  figure.textContent = row.cost_usd === null ? UNKNOWN : (row.cost_status === "partial" ? "≥ " : "") + usd(row.cost_usd);
  box.append(figure, " ", badge(row));
  return box;
}

function badge(row) {
  const state = words.states[row.cost_status];
  const mark = document.createElement("button");
  mark.type = "button";
  mark.className = `badge ${row.cost_status}`;
  mark.textContent = state?.badge ?? row.cost_status;
  mark.dataset.why = reasons(row).join("\n");
  return mark;
}

/** One tooltip for all badges: shown on hover and focus, closed by Escape. */
export function explainBadges(box) {
  let shown = null;
  const show = (mark) => {
    shown?.removeAttribute("aria-describedby");
    shown = mark;
    box.replaceChildren(...mark.dataset.why.split("\n").map((text) => Object.assign(document.createElement("p"), { textContent: text })));
    box.hidden = false;
    mark.setAttribute("aria-describedby", box.id);
    const place = mark.getBoundingClientRect();
    const left = Math.max(8, Math.min(place.left, window.innerWidth - box.offsetWidth - 8));
    const below = place.bottom + box.offsetHeight + 12 < window.innerHeight;
    box.style.left = `${left + window.scrollX}px`;
    box.style.top = `${(below ? place.bottom + 6 : place.top - box.offsetHeight - 6) + window.scrollY}px`;
  };
  const hide = () => {
    shown?.removeAttribute("aria-describedby");
    shown = null;
    box.hidden = true;
  };
  new MutationObserver(() => shown && !shown.isConnected && hide()).observe(document.body, { childList: true, subtree: true });
  const over = (event) => event.target.closest?.(".badge");
  document.addEventListener("pointerover", (event) => (over(event) ? show(over(event)) : event.target.closest?.("#why") || hide()));
  document.addEventListener("focusin", (event) => (over(event) ? show(over(event)) : hide()));
  document.addEventListener("click", (event) => over(event) && show(over(event)));
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
}
