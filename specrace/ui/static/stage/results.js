// The results table of a race, and a sentence on why the fastest lane is fastest.
/** @import { RaceHead, ResultRow } from "../lib/wire.d.ts" */
import { make } from "../lib/dom.js";
import { formatTime, rankingSpeedup, formatSpeedup } from "../lib/format.js";
import { TOOLTIPS } from "../lib/tooltips.js";

// [heading, a row's text, tooltip]. `maxDraft`: the largest number of draft tokens in a step of the lane.
/** @type {[string, (row: ResultRow & { maxDraft?: number }) => string, string][]} */
const COLUMNS = [
  ["Lane", (row) => row.title, ""],
  ["Speedup", (row) => (row.measured ? "–" : formatSpeedup(row.speedup)), TOOLTIPS.speedup],
  ["Tok/s", (row) => known(row, row.tokens_per_s, row.tokens_per_s.toFixed(1)), TOOLTIPS.rate],
  ["Tok/step", (row) => known(row, row.tau, row.tau.toFixed(2)), TOOLTIPS.tau],
  ["Accepted/drafted", (row) => known(row, row.drafted, `${row.accepted}/${row.drafted}`), TOOLTIPS.counts],
  [
    "Drafted a step",
    (row) =>
      known(
        row,
        row.drafted && row.steps,
        `${row.drafted_per_step.toFixed(1)}${row.maxDraft ? ` of ${row.maxDraft}` : ""}`,
      ),
    "Draft tokens per step, on average, of the most that a draft may have.",
  ],
  ["Steps", (row) => known(row, row.steps, String(row.steps)), "Forward passes of the model."],
  [
    "Tokens",
    (row) => `${known(row, row.tokens, String(row.tokens))}${row.end === "length" ? " (limit)" : ""}`,
    "Tokens written; (limit): cut there.",
  ],
  ["Time", (row) => formatTime(row.ms), "On the lane's own clock; the prompt is not counted."],
  ["Same text?", (row) => row.badge[1] + (row.loops ? " · repeats itself" : ""), TOOLTIPS.badge],
];

// `words`, or "–" for a server's figure that it did not report, which is 0.
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

// The lanes that are as fast as `best`, by their shown speedups, in words: "Trie is fastest".
/**
 * @param {ResultRow[]} rows
 * @param {ResultRow} best
 */
export function nameLeaders(rows, best) {
  const tied = rows.filter((row) => !row.measured && rankingSpeedup(row) === rankingSpeedup(best));
  const others = tied.filter((row) => row !== best).map((row) => row.title);
  return others.length ? `${best.title} is as fast as ${others.join(" and ")}` : `${best.title} is fastest`;
}

// A sentence on which lane is fastest, and why.
/** @param {ResultRow[]} rows */
export function describeFastest(rows) {
  const best = findBest(rows);
  if (!best) return "";
  const share = Math.round((100 * best.accepted) / best.drafted);
  return `Why ${nameLeaders(rows, best)}: it prints ${best.tau.toFixed(1)} tokens per step, vanilla 1. The model accepted ${share} % of its drafts, and a step took ${(best.tau / best.speedup).toFixed(2)} times as long as one of vanilla's.`;
}

/**
 * A sentence on draft sizes that auto chose differently from those of the race before; "" if there is nothing to say.
 * @param {Pick<RaceHead, "question" | "model" | "settings" | "lanes">} head
 * @param {Pick<RaceHead, "question" | "model" | "settings" | "lanes"> | undefined} before
 */
export function describeSizes(head, before) {
  const isAuto = (race) => race?.settings && race.settings.num_draft === null;
  if (!isAuto(head) || !isAuto(before) || head.question !== before.question || head.model !== before.model) return "";
  const changes = head.lanes.flatMap(({ lane, title, num_draft: size }) => {
    const old = before.lanes.find((other) => other.lane === lane)?.num_draft;
    return old && size && old !== size ? [`${title} ${size} instead of ${old}`] : [];
  });
  return changes.length
    ? `Draft tokens on auto follow the machine's speed; since the race before: ${changes.join(", ")}.`
    : "";
}

// The race that a table shows, and the one before it.
/** @type {WeakMap<HTMLElement, { head: RaceHead, before?: RaceHead }>} */
const shown = new WeakMap();

/**
 * @param {HTMLElement} host
 * @param {ResultRow[]} rows
 * @param {string} why a sentence on which lane is fastest; "" if none is faster than vanilla
 * @param {RaceHead} race
 */
export function showResults(host, rows, why, race) {
  if (shown.get(host)?.head !== race) shown.set(host, { head: race, before: shown.get(host)?.head });
  const table = make("table");
  const head = make("tr");
  const body = make("tbody");
  for (const [name, , title] of COLUMNS) {
    const cell = make("th", "", "", title);
    // On a phone a long name continues below its slash.
    cell.append(...name.split(/(?<=\/)(?=\w{2})/).flatMap((part) => [part, make("wbr")]));
    head.append(cell);
  }
  // Without that sentence no row is marked as the best.
  const best = why && Math.max(...rows.map(rankingSpeedup));
  rows.forEach((row, index) => {
    const line = make("tr", rankingSpeedup(row) === best ? "best" : "");
    line.dataset.lane = row.lane;
    line.dataset.badge = row.badge[0];
    for (const [, text] of COLUMNS)
      line.append(make("td", "", text({ ...row, maxDraft: race.lanes[index].num_draft })));
    body.append(line);
  });
  const section = make("thead");
  section.append(head);
  table.append(section, body);
  host.querySelector(".scroller").replaceChildren(table);
  host.querySelector("h2 small").textContent = why;
  const measured = rows.map((row) => row.measured).filter(Boolean);
  const leftOut = (race.servers_left_out ?? []).map((reason) => `Left out: ${reason}`);
  host.querySelector(".servers").textContent = [...measured, ...leftOut].join(" ");
  host.querySelector(".sizes").textContent = describeSizes(race, shown.get(host).before);
  host.hidden = false;
}
