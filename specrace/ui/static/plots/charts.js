// The plots of a scored log: tokens per step with intervals, accepted lengths, acceptance by position, failures.
/** @import { LogLane, ScoredLog } from "../lib/wire.d.ts" */
import { drawAxes, drawRows, PLOT, ticks, wholeTicks } from "./axes.js";
import { make, svg } from "../lib/dom.js";
import { countOf, formatPercent } from "../lib/format.js";
import { hueOf, labelOf } from "../lib/lanes.js";
import { Plot } from "./plot.js";
import { plotLengths } from "./plots.js";

/** @typedef {LogLane & { title?: string, number?: number }} ChartLane */

// In the plot of tokens per step: the height of a row, and the widths of the columns of names and of figures.
const ROW_PX = 42;
const NAME_PX = 116;
const FIGURES_PX = 128;
// The height of a full bar.
const BAR_PX = 30;

/**
 * Tokens per step of each lane over all requests, with their interval; a single request has none.
 * @param {ScoredLog} scores
 * @param {ChartLane[]} lanes
 */
export function readTau({ groups }, lanes) {
  return lanes.map(({ lane, title, tau_low: low, tau_high: high }) => {
    const { tau } = groups.find((row) => row.lane === lane && row.category === "all");
    return { lane, title, tau, low, high };
  });
}

export function describeInterval({ low, high }) {
  return typeof low !== "number" ? "" : `${low.toFixed(2)}–${high.toFixed(2)}`;
}

/**
 * @param {ScoredLog} scores
 * @param {ChartLane[]} lanes
 */
export function plotTau(scores, lanes) {
  const rows = readTau(scores, lanes);
  const max = Math.max(...rows.map(({ tau, high }) => high ?? tau));
  return new Plot({
    name: "log-tau",
    title: "Tokens per step",
    columns: ["lane", "tokens_per_step", "low", "high"],
    rows: rows.map(({ title, tau, low, high }) => [title, tau, low ?? "", high ?? ""]),
    words:
      "Over all requests, with 95 % intervals: what other requests of this kind would yield. The line is vanilla, 1 token a step.",
    draw(picture, width) {
      const height = PLOT.top + rows.length * ROW_PX + PLOT.bottom;
      const right = width - FIGURES_PX + PLOT.right;
      const [toX] = drawAxes(
        picture,
        right,
        { marks: ticks(max, width < 420 ? 3 : 6), words: "tokens per step" },
        { left: NAME_PX },
        height,
      );
      rows.forEach((row, index) => {
        const y = PLOT.top + (index + 0.5) * ROW_PX;
        picture.append(drawTau(row, y, toX, right));
      });
      const [bottom, vanillaX] = [height - PLOT.bottom, toX(1)];
      picture.append(svg("line", { class: "vanilla", x1: vanillaX, x2: vanillaX, y1: PLOT.top, y2: bottom }));
      return height;
    },
  });
}

// Draws a lane's interval as a line, its value as a dot, and both as numbers.
function drawTau(row, y, toX, right) {
  const group = svg("g", { class: "line", "data-hue": hueOf(row), "data-lane": row.lane });
  group.append(svg("line", { class: "grid", x1: NAME_PX, x2: right - PLOT.right, y1: y, y2: y }));
  group.append(svg("text", { class: "label end", x: NAME_PX - 10, y: y + 5 }, labelOf(row)));
  if (typeof row.low === "number")
    group.append(svg("path", { class: "stairs", d: `M${toX(row.low)} ${y}H${toX(row.high)}` }));
  const dot = svg("circle", { cx: toX(row.tau), cy: y, r: 6 });
  dot.append(svg("title", {}, `${row.title}: ${row.tau.toFixed(3)} tokens per step, ${describeInterval(row)}`));
  group.append(dot);
  const figures = svg("text", { class: "figure", x: right - 8, y: y + 5 }, row.tau.toFixed(2));
  figures.append(svg("tspan", { class: "tick", dx: 8 }, describeInterval(row)));
  group.append(figures);
  return group;
}

// How often each position of a draft was accepted; `steps` counts the steps whose draft reaches that position.
/** @param {ChartLane[]} lanes */
export function readPositions(lanes) {
  return lanes.flatMap(({ lane, title, drafted, accepted }) =>
    drafted.map((steps, index) => ({ lane, title, position: index + 1, steps, accepted: accepted[index] })),
  );
}

/** @param {ChartLane[]} lanes */
function plotPositions(lanes) {
  const rows = readPositions(lanes);
  const maxPosition = Math.max(2, ...lanes.map(({ drafted }) => drafted.length));
  return new Plot({
    name: "log-positions",
    title: "Acceptance by draft position",
    columns: ["lane", "position", "steps", "accepted", "share"],
    rows: rows.map((row) => [row.title, row.position, row.steps, row.accepted, row.accepted / row.steps]),
    words:
      "How often the 1st, 2nd, 3rd, … token of a draft was accepted. Full height: in all drafts that have this token.",
    draw: (picture, width) =>
      drawRows(
        picture,
        width,
        lanes,
        { marks: wholeTicks(maxPosition + 0.5, width < 420 ? 4 : 8), words: "position in the draft (right: first)" },
        BAR_PX,
        {
          figures: ({ drafted, accepted }) => (drafted[0] ? formatPercent(accepted[0] / drafted[0]) : "–"),
          bars: ({ lane }) =>
            rows
              .filter((row) => row.lane === lane)
              // A bar leaves a gap to its neighbours.
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

// For each tenth of the answers that has steps: the number of steps, of steps whose whole draft was rejected, and of
// steps without a draft.
/** @param {ChartLane} lane */
export function readFailures({ tenths }) {
  return tenths
    .map(([steps, rejected, none], index) => ({ tenth: index + 1, steps, rejected, none }))
    .filter(({ steps }) => steps);
}

/** @param {ChartLane[]} lanes */
function plotFailures(lanes) {
  const rows = lanes.flatMap((lane) =>
    readFailures(lane).map(({ tenth, steps, rejected, none }) => [lane.title, tenth, steps, rejected, none]),
  );
  const sum = (lane, name) => readFailures(lane).reduce((total, row) => total + row[name], 0);
  return new Plot({
    name: "log-failures",
    title: "Where drafts fail",
    columns: ["lane", "tenth_of_answer", "steps", "rejected_at_once", "no_draft"],
    rows,
    words:
      "The share of steps that accepted nothing, by tenths of the answer. Filled: the draft was rejected at once; hollow: there was none.",
    draw: (picture, width) =>
      drawRows(
        picture,
        width,
        lanes,
        {
          marks: wholeTicks(10, 5).map((tenths) => 10 * tenths),
          words: "position in the answer, % (right: all of it)",
        },
        BAR_PX,
        {
          figures: (lane) => formatPercent((sum(lane, "rejected") + sum(lane, "none")) / sum(lane, "steps")),
          bars: (lane) =>
            readFailures(lane).flatMap(({ tenth, steps, rejected, none }) => {
              // In percent of the answer: the tenth, but for a gap at both ends.
              const extent = { from: 10 * tenth - 9.2, to: 10 * tenth - 0.8 };
              const words = `${lane.title}, tenth ${tenth}: of ${steps} steps ${rejected} rejected at once, ${none} without a draft`;
              return [
                { ...extent, words, share: (rejected + none) / steps, kind: "hollow" },
                { ...extent, words, share: rejected / steps },
              ];
            }),
        },
      ),
  });
}

// The section with the plots of a scored log.
export class Charts {
  constructor() {
    this.node = make("section", "plots");
    this.cards = make("div", "plot-cards");
    this.node.append(make("h3", "logs-lab", "Lab"), this.cards);
    this.plots = [];
    new ResizeObserver(() => this.draw()).observe(this.cards);
  }

  /**
   * @param {ScoredLog} scores
   * @param {ChartLane[]} lanes
   * @param {string} name the log's
   */
  load(scores, lanes, name) {
    const emitted = lanes.map((lane) => lane.emitted);
    this.plots = [
      plotTau(scores, lanes),
      plotLengths(lanes, emitted, "log-lengths"),
      plotPositions(lanes),
      plotFailures(lanes),
    ];
    const source = `${name}: ${scores.title}, ${countOf(scores.outputs, "request")} · specrace`;
    for (const plot of this.plots) plot.source = source;
    this.cards.replaceChildren(...this.plots.map((plot) => plot.node));
  }

  draw() {
    this.plots.forEach((plot) => plot.draw());
  }
}
