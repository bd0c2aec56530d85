// The pictures of a scored log: tokens per step with their intervals, accepted lengths, acceptance by position.
import { drawAxes, drawRows, PLOT, ticks, wholeTicks } from "./axes.js";
import { make, svg } from "./dom.js";
import { percent, shorten } from "./format.js";
import { hueOf } from "./lanes.js";
import { Plot } from "./plot.js";
import { plotLengths } from "./plots.js";

const ROW_PX = 42;
const NAME_PX = 116;
const FIGURES_PX = 128;

// Tokens per step of each lane over all requests, with the interval, which a single request does not have.
export function readTau({ groups }, lanes) {
  return lanes.map(({ lane, title, tau_low: low, tau_high: high }) => {
    const { tau } = groups.find((row) => row.lane === lane && row.category === "all");
    return { lane, title, tau, low, high };
  });
}

export function tellInterval({ low, high }) {
  return typeof low !== "number" ? "" : `${low.toFixed(2)}–${high.toFixed(2)}`;
}

export function plotTau(scores, lanes) {
  const found = readTau(scores, lanes);
  const most = Math.max(...found.map(({ tau, high }) => high ?? tau));
  return new Plot({
    name: "log-tau",
    title: "Tokens per step",
    columns: ["lane", "tokens_per_step", "low", "high"],
    rows: found.map(({ title, tau, low, high }) => [title, tau, low ?? "", high ?? ""]),
    words:
      "Over all requests, with 95 % intervals: what other requests of this kind would yield. The line is vanilla, 1 token a step.",
    draw(picture, width) {
      const height = PLOT.top + found.length * ROW_PX + PLOT.bottom;
      const right = width - FIGURES_PX + PLOT.right;
      const [toX] = drawAxes(
        picture,
        right,
        { marks: ticks(most, width < 420 ? 3 : 6), words: "tokens per step" },
        { left: NAME_PX },
        height,
      );
      found.forEach((each, index) => {
        const y = PLOT.top + (index + 0.5) * ROW_PX;
        picture.append(drawTau(each, y, toX, right));
      });
      const [bottom, vanilla] = [height - PLOT.bottom, toX(1)];
      picture.append(svg("line", { class: "vanilla", x1: vanilla, x2: vanilla, y1: PLOT.top, y2: bottom }));
      return height;
    },
  });
}

function drawTau(each, y, toX, right) {
  const group = svg("g", { class: "line", "data-hue": hueOf(each), "data-lane": each.lane });
  group.append(svg("line", { class: "grid", x1: NAME_PX, x2: right - PLOT.right, y1: y, y2: y }));
  group.append(svg("text", { class: "label end", x: NAME_PX - 10, y: y + 5 }, shorten(each.title, 15)));
  if (typeof each.low === "number")
    group.append(svg("path", { class: "stairs", d: `M${toX(each.low)} ${y}H${toX(each.high)}` }));
  const dot = svg("circle", { cx: toX(each.tau), cy: y, r: 6 });
  dot.append(svg("title", {}, `${each.title}: ${each.tau.toFixed(3)} tokens per step, ${tellInterval(each)}`));
  group.append(dot);
  const figures = svg("text", { class: "figure", x: right - 8, y: y + 5 }, each.tau.toFixed(2));
  figures.append(svg("tspan", { class: "tick", dx: 8 }, tellInterval(each)));
  group.append(figures);
  return group;
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

// Of each tenth of the answers that has steps: the share of them that accepted nothing, and of those with a draft.
export function readFailures({ tenths }) {
  return tenths
    .map(([steps, rejected, none], index) => ({ tenth: index + 1, steps, rejected, none }))
    .filter(({ steps }) => steps);
}

function plotFailures(lanes) {
  const rows = lanes.flatMap((lane) =>
    readFailures(lane).map(({ tenth, steps, rejected, none }) => [lane.title, tenth, steps, rejected, none]),
  );
  const sum = (lane, name) => readFailures(lane).reduce((total, each) => total + each[name], 0);
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
        { marks: wholeTicks(10, 5).map((each) => 10 * each), words: "place in the answer, % (right: all of it)" },
        30,
        {
          figures: (lane) => percent((sum(lane, "rejected") + sum(lane, "none")) / sum(lane, "steps")),
          bars: (lane) =>
            readFailures(lane).flatMap(({ tenth, steps, rejected, none }) => {
              const place = { from: 10 * tenth - 9.2, to: 10 * tenth - 0.8 };
              const words = `${lane.title}, tenth ${tenth}: of ${steps} steps ${rejected} rejected at once, ${none} without a draft`;
              return [
                { ...place, words, share: (rejected + none) / steps, kind: "hollow" },
                { ...place, words, share: rejected / steps },
              ];
            }),
        },
      ),
  });
}

// The section of a scored log that has its pictures.
export class Charts {
  constructor() {
    this.node = make("section", "plots");
    this.cards = make("div", "plot-cards");
    this.node.append(make("h3", "logs-lab", "Lab"), this.cards);
    this.plots = [];
    new ResizeObserver(() => this.draw()).observe(this.cards);
  }

  load(scores, lanes) {
    const emitted = lanes.map((lane) => lane.emitted);
    this.plots = [
      plotTau(scores, lanes),
      plotLengths(lanes, emitted, "log-lengths"),
      plotPositions(lanes),
      plotFailures(lanes),
    ];
    this.cards.replaceChildren(...this.plots.map((plot) => plot.node));
  }

  draw() {
    this.plots.forEach((plot) => plot.draw());
  }
}
