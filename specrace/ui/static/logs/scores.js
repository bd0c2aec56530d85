// Shows what drafting would have yielded on a log: figures by lane and category, charts, and what was left out.
/** @import { ScoredLog } from "../lib/wire.d.ts" */
import { Charts } from "../plots/charts.js";
import { button, make, table } from "../lib/dom.js";
import { toCsv } from "../lib/csv.js";
import { downloadBlob } from "../lib/files.js";
import { countOf } from "../lib/format.js";
import { withMethod } from "../lib/lanes.js";
import { explainColumns } from "../lib/scoring.js";
import { Requests } from "./requests.js";

const ALL = "all";
const NONE = "none";
const BOUND =
  "Tokens per step are the most that drafting can speed up decoding: a step costs at least one token's time.";

// The index of the lane with the most tokens per step over all requests.
/** @param {Pick<ScoredLog, "lanes" | "groups">} scores */
export function findBestLane({ lanes, groups }) {
  const tau = lanes.map(({ lane }) => groups.find((row) => row.lane === lane && row.category === ALL).tau);
  return tau.indexOf(Math.max(...tau));
}

/**
 * The rows of the table: a category, its requests, the tokens per step of each lane.
 * @param {Pick<ScoredLog, "lanes" | "groups">} scores
 * @returns {[string, number, number[]][]}
 */
export function readTable({ lanes, groups }) {
  const named = [...new Set(groups.map((row) => row.category))];
  // In a log without categories, the row “none” would repeat the row “all”.
  const categories = named.length === 2 && named.includes(NONE) ? [ALL] : named;
  return categories.map((category) => {
    const rows = lanes.map(({ lane }) => groups.find((row) => row.lane === lane && row.category === category));
    return [category, rows[0].outputs, rows.map((row) => row.tau)];
  });
}

/** @param {ScoredLog} scores */
export function describeBestLane(scores) {
  const { lane } = scores.lanes[findBestLane(scores)];
  const row = scores.groups.find((group) => group.lane === lane && group.category === ALL);
  return `${withMethod({ lane }).title} drafts best: ${row.tau.toFixed(2)} tokens per step over ${countOf(row.outputs, "request")}.`;
}

/**
 * Sentences on what was scored.
 * @param {ScoredLog} scores
 * @param {string} name
 */
export function describeFacts(scores, name) {
  const { title, tokenizer, outputs, skipped, looping, left_out: limit, lanes } = scores;
  const facts = [`${name}: ${title}${tokenizer ? `, with the tokenizer of ${tokenizer}` : ""}.`];
  facts.push(`${countOf(outputs, "request")} scored${skipped ? `, ${countOf(skipped, "line")} left out` : ""}.`);
  if (limit) facts.push(`The rest was not: ${limit}. On the command line, python -m specrace score reads all.`);
  const repeats = looping === 1 ? "repeats itself" : "repeat themselves";
  if (looping) facts.push(`${countOf(looping, "output")} of them ${repeats}, which flatters copying.`);
  for (const lane of lanes.filter(({ scored }) => scored !== "whole"))
    facts.push(`${withMethod(lane).title} is scored in part: ${lane.scored}.`);
  return facts;
}

/**
 * The tokens per step that an engine measured on a category, and on how many of the `outputs` requests if not on all;
 * "–" if on none. If the log lacks the sizes of the engine's steps, the figure is a range.
 * @param {Pick<ScoredLog, "measured">} scores
 * @param {string} category
 * @param {number} outputs
 */
export function describeMeasured({ measured }, category, outputs) {
  const row = measured.find((group) => group.category === category);
  if (!row) return "–";
  const [low, high] = [row.tau.toFixed(3), row.tau_high.toFixed(3)];
  const some = row.outputs < outputs ? ` (${countOf(row.outputs, "request")})` : "";
  return `${low === high ? low : `${low} to ${high}`}${some}`;
}

/** @param {ScoredLog} scores */
function drawTable(scores) {
  const hasMeasured = scores.measured.length > 0;
  const names = [...scores.lanes.map((lane) => withMethod(lane).title), ...(hasMeasured ? ["Measured"] : [])];
  const rows = readTable(scores).map(([category, outputs, tau]) => {
    const highest = Math.max(...tau);
    const cells = tau.map((value) => make(value === highest ? "b" : "span", "", value.toFixed(3)));
    const measured = hasMeasured ? [describeMeasured(scores, category, outputs)] : [];
    return [category, String(outputs), ...cells, ...measured];
  });
  const box = make("div", "scroller");
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", "Tokens per step by category and lane");
  box.append(table(["Category", "Requests", ...names], rows, "logs-table"));
  return box;
}

/** @param {ScoredLog} scores */
export function saveCsv({ groups, measured }) {
  const columns = [...Object.keys(groups[0]), ...(measured.length > 0 ? ["tau_high"] : [])];
  const all = [...groups, ...measured.map((row) => ({ lane: "measured", ...row }))];
  const rows = all.map((row) => columns.map((column) => row[column] ?? ""));
  downloadBlob(new Blob([toCsv([columns, ...rows])], { type: "text/csv" }), "specrace-scores.csv");
}

export class Scores {
  constructor(node) {
    this.node = node;
    this.charts = new Charts();
    this.requests = new Requests();
  }

  /**
   * @param {ScoredLog} scores
   * @param {string} name
   */
  show(scores, name) {
    const lanes = scores.lanes.map((lane, number) => ({ ...withMethod(lane), number }));
    this.charts.load(scores, lanes, name);
    const facts = make("p", "logs-facts", describeFacts(scores, name).join(" "));
    const reasons = make("ul", "logs-reasons");
    for (const [reason, count] of scores.skipped_by_reason)
      reasons.append(make("li", "", `${countOf(count, "line")}: ${reason}.`));
    for (const remark of [...scores.measured_text, ...scores.remarks])
      reasons.append(make("li", "", explainColumns(remark).sentence));
    const head = make("header");
    head.append(
      make("h3", "logs-best", describeBestLane(scores)),
      button("CSV", "Download all figures as CSV", () => saveCsv(scores)),
    );
    this.node.replaceChildren(
      head,
      facts,
      reasons,
      drawTable(scores),
      make("p", "logs-facts", BOUND),
      this.charts.node,
      this.requests.node,
    );
    // Shown before it is drawn, because a hidden element has no size.
    this.node.hidden = false;
    this.charts.draw();
    this.requests.load(scores, findBestLane(scores));
  }
}
