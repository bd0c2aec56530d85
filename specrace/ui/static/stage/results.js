// The results table of a race, and a sentence on why the fastest lane is fastest.
/** @import { ResultRow } from "../lib/wire.d.ts" */
import { make } from "../lib/dom.js";
import { formatSeconds, rankingSpeedup, formatSpeedup } from "../lib/format.js";
import { TOOLTIPS } from "../lib/tooltips.js";

/** @type {[string, (row: ResultRow) => string, string][]} */
const COLUMNS = [
  ["Lane", (row) => row.title, ""],
  ["Speedup", (row) => (row.measured ? "–" : formatSpeedup(row.speedup)), TOOLTIPS.speedup],
  ["Tokens/s", (row) => row.tokens_per_s.toFixed(1), TOOLTIPS.rate],
  ["Tokens/step", (row) => known(row, row.tau, row.tau.toFixed(2)), TOOLTIPS.tau],
  ["Accepted/drafted", (row) => known(row, row.drafted, `${row.accepted}/${row.drafted}`), TOOLTIPS.counts],
  [
    "Drafted a step",
    (row) => known(row, row.drafted && row.steps, row.drafted_per_step.toFixed(1)),
    "Draft tokens per step, on average.",
  ],
  ["Steps", (row) => known(row, row.steps, String(row.steps)), "Forward passes of the model."],
  ["Tokens", (row) => `${row.tokens}${row.end === "length" ? " (limit)" : ""}`, "Tokens written; (limit): cut there."],
  ["Time", (row) => formatSeconds(row.ms), "On the lane's own clock; the prompt is not counted."],
  ["Compared with vanilla", (row) => row.badge[1] + (row.loops ? " · repeats itself" : ""), TOOLTIPS.badge],
];

// A server's figure of 0 is one that it did not report.
/**
 * @param {ResultRow} row
 * @param {number} value
 * @param {string} words
 */
function known({ measured }, value, words) {
  return measured && !value ? "–" : words;
}

// The fastest lane; undefined if that is vanilla, which drafts nothing.
/** @param {ResultRow[]} rows */
export function findBest(rows) {
  if (rows.length < 2) return undefined;
  const best = rows.reduce((fastest, row) => (rankingSpeedup(row) > rankingSpeedup(fastest) ? row : fastest));
  return best.drafted ? best : undefined;
}

// A sentence on which lane is fastest, and why.
/** @param {ResultRow[]} rows */
export function describeFastest(rows) {
  const best = findBest(rows);
  if (!best) return "";
  const share = Math.round((100 * best.accepted) / best.drafted);
  return `Why ${best.title} is fastest: it prints ${best.tau.toFixed(1)} tokens per step, vanilla 1. The model accepted ${share} % of its drafts, and a step took ${(best.tau / best.speedup).toFixed(2)} times as long as one of vanilla's.`;
}

/**
 * @param {HTMLElement} host
 * @param {ResultRow[]} rows
 * @param {string} why
 * @param {string[]} leftOut sentences on servers that took no part
 */
export function showResults(host, rows, why, leftOut = []) {
  const table = make("table");
  const head = make("tr");
  const body = make("tbody");
  for (const [name, , title] of COLUMNS) head.append(make("th", "", name, title));
  const best = why && Math.max(...rows.map((row) => row.speedup));
  for (const row of rows) {
    const line = make("tr", row.speedup === best ? "best" : "");
    line.dataset.lane = row.lane;
    line.dataset.badge = row.badge[0];
    for (const [, text] of COLUMNS) line.append(make("td", "", text(row)));
    body.append(line);
  }
  const section = make("thead");
  section.append(head);
  table.append(section, body);
  host.querySelector(".scroller").replaceChildren(table);
  host.querySelector("h2 small").textContent = why;
  const measured = rows.map((row) => row.measured).filter(Boolean);
  host.querySelector(".servers").textContent = [...measured, ...leftOut.map((reason) => `Left out: ${reason}`)].join(
    " ",
  );
  host.hidden = false;
}
