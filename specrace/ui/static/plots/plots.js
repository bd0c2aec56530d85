// Plots of a finished race, computed from its steps. Lanes are labelled by name, so that no plot depends on colours.
/** @import { RaceHead, ShownLane, Timing } from "../lib/wire.d.ts" */
/** @import { PlayedReel } from "../stage/reel.js" */
import { drawAxes, drawRows, PLOT, ticks, wholeTicks } from "./axes.js";
import { make, svg } from "../lib/dom.js";
import { countOf, describeRecording, formatPercent } from "../lib/format.js";
import { hueOf, isServed, labelOf } from "../lib/lanes.js";
import { listen, send } from "../lib/stage_events.js";
import { TIME_PARTS } from "../lib/tooltips.js";
import { Plot } from "./plot.js";

// For lines: the lanes' dashes, and the width of the legend in pixels.
const DASHES = ["", "7 4", "2 4", "12 4", "9 3 2 3", "4 2"];
const LEGEND_PX = 142;

/**
 * A lane and its steps: each step's number, the race time at its end (ms), how many tokens the lane had before it, how
 * many it emitted, and its timing.
 * @typedef {ShownLane & {
 *   number: number, tokens: number,
 *   steps: { step: number, at: number, from: number, emitted: number, timing: Timing }[],
 * }} PlotLane
 */

/**
 * The steps of a race by lane.
 * @param {PlayedReel} reel
 * @returns {PlotLane[]}
 */
export function readLanes(reel) {
  const lanes = reel.head.lanes.map((lane, number) => ({ ...lane, number, steps: [], tokens: 0 }));
  for (const { lane, index, at, event } of reel.steps) {
    const row = lanes[lane];
    const { timing } = event;
    row.steps.push({ step: index, at, from: row.tokens, emitted: event.emitted.length, timing });
    row.tokens += event.emitted.length;
  }
  return lanes;
}

/**
 * The lanes that a plot can show, numbered, and a sentence about those that it leaves out; "" if there are none.
 * @param {PlotLane[]} lanes
 * @param {(lane: PlotLane) => boolean} isShown
 * @param {string} why
 * @returns {[PlotLane[], string]}
 */
function choose(lanes, isShown, why) {
  const names = lanes.filter((lane) => !isShown(lane)).map(({ title }) => title);
  const shown = lanes.filter(isShown).map((lane, number) => ({ ...lane, number }));
  return [shown, names.length ? ` Without ${names.join(", ")}: ${why}.` : ""];
}

/**
 * The question and the machine of a race.
 * @param {RaceHead} head
 */
export function describeSource(head) {
  const question = head.question ? `“${head.question}”` : "";
  return [question, describeRecording(head), "specrace"].filter(Boolean).join(" · ");
}

/** @param {PlotLane[]} all */
function plotProgress(all) {
  const [lanes, omission] = choose(all, (lane) => !isServed(lane), "a server's time is not race time");
  const rows = lanes.flatMap((lane) =>
    lane.steps.map((step) => [lane.title, step.step, step.at / 1000, step.from + step.emitted]),
  );
  return new Plot({
    name: "progress",
    title: "Tokens against race time",
    columns: ["lane", "step", "race_time_s", "tokens"],
    rows,
    words: `Every step is a stair, as high as what it wrote. Steeper is faster; at the right, the order in which they finished.${omission}`,
    /** @this {Plot} */
    draw(picture, width) {
      const marks = ticks(Math.max(...lanes.map((lane) => (lane.steps.at(-1)?.at ?? 0) / 1000)), width < 420 ? 3 : 6);
      const [toX, toY] = drawAxes(
        picture,
        width - LEGEND_PX + 4,
        { marks, words: "race time (s)" },
        { marks: ticks(Math.max(...lanes.map((lane) => lane.tokens))), words: "tokens" },
      );
      const order = [...lanes].sort(
        (a, b) => b.tokens - a.tokens || (a.steps.at(-1)?.at ?? 0) - (b.steps.at(-1)?.at ?? 0),
      );
      lanes.forEach((lane, index) => {
        const last = lane.steps.at(-1);
        if (!last) return;
        const group = svg("g", { class: "line", "data-hue": hueOf(lane), "data-lane": lane.lane });
        const stairs = lane.steps
          .map((step) => `H${toX(step.at / 1000).toFixed(1)}V${toY(step.from + step.emitted).toFixed(1)}`)
          .join("");
        const dash = DASHES[index % DASHES.length];
        const row = PLOT.top + 12 + 22 * order.indexOf(lane);
        const right = width - LEGEND_PX;
        group.append(svg("path", { class: "stairs", d: `M${toX(0)} ${toY(0)}${stairs}`, "stroke-dasharray": dash }));
        group.append(svg("circle", { cx: toX(last.at / 1000), cy: toY(lane.tokens), r: 4 }));
        group.append(svg("path", { class: "stairs", d: `M${right} ${row}h28`, "stroke-dasharray": dash }));
        group.append(svg("text", { class: "label", x: right + 34, y: row + 5 }, labelOf(lane)));
        picture.append(group);
      });
      const cursor = svg("line", { class: "now", y1: PLOT.top, y2: PLOT.height - PLOT.bottom, x1: -9, x2: -9 });
      picture.append(cursor);
      this.point = (at) => [1, 2].forEach((end) => cursor.setAttribute(`x${end}`, toX(at / 1000)));
    },
  });
}

// How many steps wrote 0, 1, 2, ... tokens.
export function countLengths(steps) {
  const counts = [];
  for (const { emitted } of steps) counts[emitted] = (counts[emitted] ?? 0) + 1;
  return Array.from(counts, (count) => count ?? 0);
}

// `counts`: for each lane, how many steps wrote 0, 1, 2, ... tokens; `omission`: a sentence about lanes left out.
export function plotLengths(lanes, counts, name = "accept-length", omission = "") {
  const longest = Math.max(2, ...counts.map((lane) => lane.length - 1));
  const steps = counts.map((lane) => lane.reduce((sum, count) => sum + count, 0));
  const tokens = counts.map((lane) => lane.reduce((sum, count, length) => sum + length * count, 0));
  const rows = lanes.flatMap((lane, index) =>
    counts[index].map((count, length) => [lane.title, length, count, count / steps[index]]).slice(1),
  );
  return new Plot({
    name,
    title: "Tokens emitted in a step",
    columns: ["lane", "tokens_in_step", "steps", "share_of_steps"],
    rows,
    words: `How often a step printed 1, 2, 3, … tokens, the model's own included. Full height is every step of the lane.${omission}`,
    draw: (picture, width) =>
      drawRows(
        picture,
        width,
        lanes,
        { marks: wholeTicks(longest + 0.5, width < 420 ? 4 : 8), words: "tokens in a step (right: mean)" },
        30,
        {
          figures: ({ number }) => (steps[number] ? (tokens[number] / steps[number]).toFixed(2) : "–"),
          bars: ({ number, title }) =>
            counts[number]
              .map((count, length) => ({
                from: length - 0.42,
                to: length + 0.42,
                share: count / steps[number],
                words: `${title}: ${count} of ${steps[number]} steps wrote ${countOf(length, "token")}`,
              }))
              .filter((bar, length) => length && bar.share),
        },
      ),
  });
}

/** @param {PlotLane[]} all */
function plotTimes(all) {
  const [lanes, omission] = choose(all, (lane) => !isServed(lane), "a server does not tell where its time goes");
  const means = lanes.map((lane) =>
    TIME_PARTS.map(([part]) => lane.steps.reduce((sum, step) => sum + step.timing[part], 0) / (lane.steps.length || 1)),
  );
  const rows = lanes.map((lane, index) => [lane.title, ...means[index], lane.steps.length]);
  const total = means.map((mean) => mean.reduce((sum, part) => sum + part, 0));
  return new Plot({
    name: "time-split",
    title: "Where a step's time goes",
    columns: ["lane", "draft_ms", "model_ms", "cache_ms", "steps"],
    rows,
    words: `Mean of a lane's steps: drafting (dots), the model (plain), updating the KV cache (stripes).${omission}`,
    draw: (picture, width) => {
      addPatterns(picture);
      return drawRows(
        picture,
        width,
        lanes,
        {
          marks: ticks(Math.max(...total), width < 420 ? 3 : 6),
          words: "time of a step (ms), right: drafting's share",
        },
        18,
        {
          figures: (lane) => (total[lane.number] ? formatPercent(means[lane.number][0] / total[lane.number]) : "–"),
          bars: (lane) =>
            TIME_PARTS.map(([part, name], index) => {
              const from = means[lane.number].slice(0, index).reduce((sum, mean) => sum + mean, 0);
              return {
                from,
                to: from + means[lane.number][index],
                share: 1,
                kind: part,
                words: `${lane.title}, ${name}: ${means[lane.number][index].toFixed(3)} ms a step`,
              };
            }),
        },
      );
    },
  });
}

// Patterns are part of the drawing, so that the PNG has them too.
function addPatterns(picture) {
  const dots = svg("pattern", { id: "dots", width: 5, height: 5, patternUnits: "userSpaceOnUse" });
  dots.append(svg("circle", { class: "ink", cx: 2.5, cy: 2.5, r: 1.4 }));
  const stripes = svg("pattern", {
    id: "stripes",
    width: 5,
    height: 5,
    patternUnits: "userSpaceOnUse",
    patternTransform: "rotate(45)",
  });
  stripes.append(svg("rect", { class: "ink", width: 2.2, height: 5 }));
  const defs = svg("defs");
  defs.append(dots, stripes);
  picture.append(defs);
}

/**
 * A bar for each step: where in the answer it wrote, and how many tokens.
 * @param {PlotLane[]} lanes
 * @param {string} omission a sentence about lanes that are left out
 * @param {(lane: number, step: number) => void} seek
 */
function plotAlong(lanes, omission, seek) {
  const rows = lanes.flatMap((lane) => lane.steps.map((step) => [lane.title, step.step, step.from, step.emitted]));
  const maxEmitted = Math.max(1, ...lanes.flatMap((lane) => lane.steps.map((step) => step.emitted)));
  return new Plot({
    name: "along",
    title: "Tokens a step, along the answer",
    columns: ["lane", "step", "first_token", "tokens_in_step"],
    rows,
    words: `One bar for each step, as wide and as high as what it wrote; full height is ${maxEmitted} tokens. Press one to see its step.${omission}`,
    draw: (picture, width) =>
      drawRows(
        picture,
        width,
        lanes,
        {
          marks: ticks(Math.max(...lanes.map((lane) => lane.tokens)), width < 420 ? 3 : 6),
          words: "position in the answer (tokens)",
        },
        30,
        {
          figures: (lane) => `${lane.steps.length} steps`,
          bars: (lane) =>
            lane.steps.map((step) => ({
              from: step.from,
              to: step.from + step.emitted,
              gap: 0.8,
              share: step.emitted / maxEmitted,
              onClick: () => seek(lane.number, step.step),
              words: `${lane.title}, step ${step.step + 1}: ${countOf(step.emitted, "token")}`,
            })),
        },
      ),
  });
}

// The relative cost of a forward over `size` rows, interpolated linearly between the measured sizes.
export function costAt(sizes, ratio, size) {
  const right = Math.max(
    1,
    sizes.findIndex((measured) => measured >= size),
  );
  const [x0, x1] = [sizes[right - 1], sizes[right]];
  return ratio[right - 1] + ((ratio[right] - ratio[right - 1]) * (size - x0)) / (x1 - x0);
}

// The lanes by the size of their drafts.
function groupBySize(lanes) {
  const bySize = new Map();
  for (const lane of lanes) bySize.set(lane.num_draft, [...(bySize.get(lane.num_draft) ?? []), lane]);
  return bySize;
}

/** @param {RaceHead} head */
function plotCost(head) {
  const { rows: sizes, ratio, context } = head.cost_curve;
  const longest = sizes.at(-1);
  const lanes = head.lanes.filter((lane) => lane.num_draft && lane.num_draft + 1 <= longest);
  const draftSizes = head.lanes
    .filter((lane) => lane.num_draft)
    .map((lane) => `${lane.title} ${lane.num_draft}`)
    .join(", ");
  return new Plot({
    name: "cost-curve",
    title: "What a larger draft costs on this machine",
    columns: ["rows", "cost_ratio"],
    rows: sizes.map((size, index) => [size, ratio[index]]),
    words: `Latency of a k-token forward pass over that of one token${context ? ` (${context} tokens of text before them)` : ""}. Most draft tokens a step: ${draftSizes || "none"}.`,
    draw(picture, width) {
      const [toX, toY] = drawAxes(
        picture,
        width,
        { marks: wholeTicks(longest, width < 420 ? 4 : 8), words: "tokens in one forward pass" },
        { marks: ticks(Math.max(...ratio)), words: "time, one token: 1" },
      );
      picture.append(
        svg("path", {
          class: "stairs curve",
          d: sizes.map((size, index) => `${index ? "L" : "M"}${toX(size)} ${toY(ratio[index])}`).join(""),
        }),
      );
      // Lanes with drafts of one size share a point and its label.
      for (const [size, sharing] of groupBySize(lanes)) {
        const x = toX(size + 1);
        const y = toY(costAt(sizes, ratio, size + 1));
        const group = svg("g", { class: "line", "data-hue": hueOf(sharing[0]) });
        const names = sharing.map(labelOf).join(", ");
        const side =
          x > width / 2 ? { class: "label end", x: x - 10, y: y - 6 } : { class: "label", x: x + 10, y: y + 16 };
        group.append(
          svg("circle", { cx: x, cy: y, r: 5 }),
          svg("text", side, names),
          svg("title", {}, `${names}: ${size} draft tokens and the pending one`),
        );
        picture.append(group);
      }
    },
  });
}

export class Plots {
  constructor(stage) {
    this.node = make("section", "plots");
    this.node.setAttribute("aria-label", "Plots of the race");
    this.node.hidden = true;
    this.cards = make("div", "plot-cards");
    this.node.append(make("h2", "", "Plots"), this.cards);
    this.list = [];
    const seek = (lane, step) => send(stage, "seek", { lane, step });
    listen(stage, "opened", () => this.close());
    listen(stage, "reel", (reel) => this.load(reel, seek));
    listen(stage, "cursor", ({ lane, step }) => this.point(lane, step));
    new ResizeObserver(() => this.list.forEach((plot) => plot.draw())).observe(this.cards);
  }

  // Hides the plots when another race begins. The plots of that race are drawn when it is complete.
  close() {
    this.node.hidden = true;
    this.list = [];
    this.lanes = [];
  }

  /**
   * @param {PlayedReel} reel
   * @param {(lane: number, step: number) => void} seek
   */
  load(reel, seek) {
    this.lanes = readLanes(reel);
    /** @param {PlotLane} lane */
    const hasSteps = ({ served }) => !served || served.chunks_are_steps;
    const [stepped, omission] = choose(this.lanes, hasSteps, "what its server streams are not steps");
    const lengths = stepped.map((lane) => countLengths(lane.steps));
    this.list = [
      plotProgress(this.lanes),
      plotLengths(stepped, lengths, undefined, omission),
      plotTimes(this.lanes),
      plotAlong(this.lanes.filter(hasSteps), omission, seek),
    ];
    if (reel.head.cost_curve) this.list.push(plotCost(reel.head));
    for (const plot of this.list) plot.source = describeSource(reel.head);
    this.cards.replaceChildren(...this.list.map((plot) => plot.node));
    if (!reel.head.cost_curve) this.cards.append(this.noteMissingCurve(reel.head));
    this.node.hidden = false;
    this.list.forEach((plot) => plot.draw());
  }

  // A note in place of the cost curve if it was not measured. The lanes then have their methods' default draft sizes.
  /** @param {RaceHead} head */
  noteMissingCurve(head) {
    const node = make("div", "plot no-curve");
    const sizes = head.lanes.filter((lane) => lane.num_draft);
    node.append(make("h3", "", "What a larger draft costs on this machine"));
    node.append(
      make(
        "p",
        "",
        "It was not measured on the machine of this race. There, “python -m specrace calibrate” measures it, and draft sizes left on auto then use it.",
      ),
    );
    node.append(
      make(
        "p",
        "",
        `Most draft tokens a step in this race: ${sizes.map((lane) => `${lane.title} ${lane.num_draft}`).join(", ") || "none"}.`,
      ),
    );
    return node;
  }

  point(lane, step) {
    const shown = this.lanes?.[lane];
    const at = shown?.steps[step]?.at;
    // The axis is race time, which a server's lane does not have.
    if (at !== undefined && !isServed(shown)) this.list[0].point?.(at);
  }
}
