// The table of a list: a row for each question, a column for each lane, and each lane's median and range.
/** @import { LaneFigures, LaneSummary, QuestionRow } from "./question_figures.js" */
import { make } from "../lib/dom.js";
import { formatSeconds, formatSpeedup } from "../lib/format.js";
import { counts, findFastestLane, summarise } from "./question_figures.js";

const EQUALS = { true: "= identical", false: "≠ differs", null: "not compared" };
export const LEGEND =
  "In each cell: the speedup over vanilla in one run, tokens per step, whether the text is vanilla's, and the time to the first token (reading the prompt and the first step). Vanilla and servers have tokens per second instead of a speedup. Disturbed races do not count.";

/** @param {{ lane: string, measured: boolean }} lane */
const hasSpeedup = ({ lane, measured }) => lane !== "vanilla" && !measured;

// A server may not tell how many tokens it wrote.
function formatRate(rate) {
  return rate ? `${rate.toFixed(0)} tokens/s` : "rate not known";
}

/**
 * @param {LaneFigures} figures
 * @param {string} mark
 */
function drawCell(figures, mark) {
  const cell = make("td", mark && `is-${mark}`);
  const main = hasSpeedup(figures) ? formatSpeedup(figures.speedup) : formatRate(figures.tokens_per_s);
  cell.append(make("b", "", main));
  if (mark) cell.append(make("i", "", mark === "best" ? "▲ best" : "▼ worst"));
  const details = [figures.tau ? `${figures.tau.toFixed(2)} a step` : "", formatSeconds(figures.first_token_ms)];
  cell.append(make("small", "", details.filter(Boolean).join(" · ")));
  if (figures.lane !== "vanilla") {
    const text = EQUALS[String(figures.identical)] + (figures.loops ? ", repeats itself" : "");
    cell.append(make("small", figures.identical === false ? "differs" : "", text, figures.compared));
  }
  return cell;
}

// A range in words; "" if both ends read alike.
function joinRange({ low, high }, format) {
  const [from, to] = [low, high].map((end) => format(end));
  return from === to ? "" : `${from} to ${to}`;
}

function inBrackets(words) {
  return words && ` (${words})`;
}

/** @param {LaneSummary} lane */
export function describeSummary(lane) {
  const { speedup, tau, first_token_ms: first, tokens_per_s: rate } = lane;
  const fixed = (digits) => (value) => value.toFixed(digits);
  const main = hasSpeedup(lane) ? formatSpeedup(speedup.median) : formatRate(rate.median);
  const lines = [
    hasSpeedup(lane) ? joinRange(speedup, formatSpeedup) : rate.high && joinRange(rate, fixed(0)),
    tau.high && `${tau.median.toFixed(2)} a step${inBrackets(joinRange(tau, fixed(2)))}`,
    `${formatSeconds(first.median)}${inBrackets(joinRange(first, (ms) => (ms / 1000).toFixed(2)))}`,
  ];
  if (lane.lane !== "vanilla")
    lines.push(lane.compared ? `identical in ${lane.identical} of ${lane.compared}` : "not compared");
  return { main, lines: lines.filter(Boolean) };
}

// What the table says, in a sentence or two; "" if no question counts.
/** @param {(QuestionRow | undefined)[]} rows */
export function describeTotal(rows) {
  const summary = summarise(rows);
  if (!summary.length) return "";
  const { questions } = summary[0];
  const over = `over ${questions === 1 ? "1 question" : `${questions} questions`}`;
  const best = findFastestLane(summary);
  const differing = summary.filter(({ compared, identical }) => identical < compared);
  const proof = differing.length
    ? ` ${differing.map(({ title }) => title).join(", ")} differed from vanilla's text.`
    : " Every text that was compared is vanilla's.";
  if (!best) return `No lane is faster than vanilla ${over}.${proof}`;
  const { low, high, median } = best.speedup;
  const range = inBrackets(joinRange({ low, high }, formatSpeedup));
  return `${best.title} is fastest: ${formatSpeedup(median)} vanilla, the median ${over}${range}.${proof}`;
}

/**
 * @param {QuestionRow | undefined} row
 * @param {boolean} current
 */
function describeState(row, current) {
  if (current) return "racing …";
  if (row?.error) return row.error;
  return row?.disturbed ? "disturbed, does not count" : "";
}

/**
 * `current` is the index of the question that is being raced; `open` opens the race of a question.
 * @param {string[]} questions
 * @param {(QuestionRow | undefined)[]} rows
 * @param {number | undefined} current
 * @param {((index: number) => void) | undefined} open
 */
export function drawTable(questions, rows, current, open) {
  const summary = summarise(rows);
  const lanes = rows.find((row) => row?.lanes)?.lanes ?? [];
  const node = make("table", "questions-table");
  const head = node.createTHead().insertRow();
  for (const text of ["Question", ...lanes.map(({ title }) => title)])
    head.append(heading("col", make("span", "", text)));
  const body = node.createTBody();
  questions.forEach((question, index) => {
    const row = rows[index];
    const line = body.insertRow();
    line.dataset.state = current === index ? "racing" : rowState(row);
    const name = row?.lanes && open ? opener(question, () => open(index)) : make("span", "", question);
    name.dir = "auto";
    const first = heading("row", make("small", "", String(index + 1)), name);
    const state = describeState(row, current === index);
    if (state) first.append(make("small", row?.error ? "differs" : "", state, row?.note));
    line.append(first);
    row?.lanes?.forEach((figures, number) => line.append(drawCell(figures, markOf(summary[number], index))));
    if (!row?.lanes) for (const lane of lanes) line.append(make("td", "", "", lane.title));
  });
  if (summary.length) node.createTFoot().append(drawTotal(summary));
  return node;
}

/** @param {QuestionRow | undefined} row */
function rowState(row) {
  if (row?.error) return "failed";
  if (!row) return "due";
  return counts(row) ? "raced" : "disturbed";
}

/**
 * @param {LaneSummary | undefined} lane
 * @param {number} index
 */
function markOf(lane, index) {
  if (!lane || lane.best === lane.worst) return "";
  if (lane.best === index) return "best";
  return lane.worst === index ? "worst" : "";
}

function heading(scope, ...children) {
  const node = make("th");
  node.scope = scope;
  node.append(...children);
  return node;
}

function opener(question, act) {
  const node = make("button", "open-race", question, "Open this race");
  node.type = "button";
  node.addEventListener("click", act);
  return node;
}

/** @param {LaneSummary[]} summary */
function drawTotal(summary) {
  const line = make("tr");
  const { questions } = summary[0];
  line.append(heading("row", make("span", "", "Median and range"), make("small", "", `${questions} that count`)));
  for (const lane of summary) {
    const { main, lines } = describeSummary(lane);
    const cell = make("td");
    cell.append(make("b", "", main), ...lines.map((text) => make("small", "", text)));
    line.append(cell);
  }
  return line;
}
