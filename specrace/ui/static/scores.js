// What drafting would have yielded on a log: the figures by lane and category, plots, and what was left out.
import { drawRows, wholeTicks } from "./axes.js";
import { button, make, table } from "./dom.js";
import { downloadBlob, toCsv } from "./files.js";
import { countOf, percent } from "./format.js";
import { describeLane } from "./lanes.js";
import { Plot } from "./plot.js";
import { plotLengths } from "./plots.js";
import { Requests } from "./requests.js";

const ALL = "all";
const BOUND =
  "Tokens per step are the most that drafting can speed up decoding: a step costs at least one token's time.";

// The lane with the most tokens per step over all requests.
export function findBestLane({ lanes, groups }) {
  const tau = lanes.map(({ lane }) => groups.find((row) => row.lane === lane && row.category === ALL).tau);
  return tau.indexOf(Math.max(...tau));
}

// [category, requests, tokens per step of each lane].
export function readTable({ lanes, groups }) {
  const categories = [...new Set(groups.map((row) => row.category))];
  return categories.map((category) => {
    const rows = lanes.map(({ lane }) => groups.find((row) => row.lane === lane && row.category === category));
    return [category, rows[0].outputs, rows.map((row) => row.tau)];
  });
}

export function tellBest(scores) {
  const { lane } = scores.lanes[findBestLane(scores)];
  const row = scores.groups.find((each) => each.lane === lane && each.category === ALL);
  return `${describeLane({ lane }).title} drafts best: ${row.tau.toFixed(2)} tokens per step over ${countOf(row.outputs, "request")}.`;
}

// What was scored, in sentences.
export function tellFacts(scores, name) {
  const { title, tokenizer, outputs, skipped, looping, left_out: limit, lanes } = scores;
  const facts = [`${name}: ${title}${tokenizer ? `, with the tokenizer of ${tokenizer}` : ""}.`];
  facts.push(`${countOf(outputs, "request")} scored${skipped ? `, ${countOf(skipped, "line")} left out` : ""}.`);
  if (limit) facts.push(`The rest was not: ${limit}. On the command line, python -m specrace score takes all.`);
  if (looping) facts.push(`${countOf(looping, "output")} of them repeat themselves, which flatters copying.`);
  for (const each of lanes.filter(({ scored }) => scored !== "whole"))
    facts.push(`${describeLane(each).title} is scored in part: ${each.scored}.`);
  return facts;
}

function drawTable(scores) {
  const names = scores.lanes.map((lane) => describeLane(lane).title);
  const rows = readTable(scores).map(([category, outputs, tau]) => {
    const most = Math.max(...tau);
    const cells = tau.map((each) => make(each === most ? "b" : "span", "", each.toFixed(3)));
    return [category, String(outputs), ...cells];
  });
  const box = make("div", "scroller");
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", "Tokens per step by category and lane");
  box.append(table(["Category", "Requests", ...names], rows, "logs-table"));
  return box;
}

export function saveCsv({ groups }) {
  const columns = Object.keys(groups[0]);
  const rows = groups.map((row) => columns.map((column) => row[column] ?? ""));
  downloadBlob(new Blob([toCsv([columns, ...rows])], { type: "text/csv" }), "specrace-scores.csv");
}

// How often each position of a draft was accepted, of the steps whose draft was so long.
export function readPositions(lanes) {
  return lanes.flatMap(({ lane, title, drafted, accepted }) =>
    drafted.map((steps, index) => ({ lane, title, position: index + 1, steps, accepted: accepted[index] })),
  );
}

function plotPositions(lanes) {
  const found = readPositions(lanes);
  const longest = Math.max(2, ...lanes.map(({ drafted }) => drafted.length));
  return new Plot({
    name: "log-positions",
    title: "Acceptance by draft position",
    columns: ["lane", "position", "steps", "accepted", "share"],
    rows: found.map((each) => [each.title, each.position, each.steps, each.accepted, each.accepted / each.steps]),
    words: "How often the 1st, 2nd, 3rd, … token of a draft was accepted. Full height is every draft so long.",
    draw: (picture, width) =>
      drawRows(
        picture,
        width,
        lanes,
        { marks: wholeTicks(longest + 0.5, width < 420 ? 4 : 8), words: "position in the draft (right: first)" },
        30,
        {
          figures: ({ drafted, accepted }) => (drafted[0] ? percent(accepted[0] / drafted[0]) : "–"),
          bars: ({ lane }) =>
            found
              .filter((each) => each.lane === lane)
              .map(({ title, position, steps, accepted }) => ({
                from: position - 0.42,
                to: position + 0.42,
                share: accepted / steps,
                words: `${title}: position ${position} accepted in ${accepted} of ${steps} drafts`,
              })),
        },
      ),
  });
}

export class Scores {
  constructor(node) {
    this.node = node;
    this.plots = [];
    this.requests = new Requests();
    this.cards = make("div", "plot-cards");
    new ResizeObserver(() => this.plots.forEach((plot) => plot.draw())).observe(this.cards);
  }

  show(scores, name) {
    const lanes = scores.lanes.map((lane, number) => ({ ...describeLane(lane), number }));
    this.plots = [
      plotLengths(
        lanes,
        lanes.map(({ emitted }) => emitted),
        "log-lengths",
      ),
      plotPositions(lanes),
    ];
    this.cards.replaceChildren(...this.plots.map((plot) => plot.node));
    const plots = make("section", "plots");
    plots.append(this.cards);
    const facts = make("p", "logs-facts", tellFacts(scores, name).join(" "));
    const reasons = make("ul", "logs-reasons");
    for (const [reason, count] of scores.skipped_by_reason)
      reasons.append(make("li", "", `${countOf(count, "line")}: ${reason}.`));
    const head = make("header");
    head.append(
      make("h3", "logs-best", tellBest(scores)),
      button("CSV", "Download all figures as CSV", () => saveCsv(scores)),
    );
    this.node.replaceChildren(
      head,
      facts,
      reasons,
      drawTable(scores),
      make("p", "logs-facts", BOUND),
      plots,
      this.requests.node,
    );
    // What is hidden has no size.
    this.node.hidden = false;
    this.plots.forEach((plot) => plot.draw());
    this.requests.load(scores, findBestLane(scores));
  }
}
