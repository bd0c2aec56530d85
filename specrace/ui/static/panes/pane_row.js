// The panes of a race's or a request's lanes, side by side. A press on a lane's title shows this lane alone.
/** @import { LaneMeters, ResultRow, ShownRepeated } from "../lib/wire.d.ts" */
/** @import { Pane } from "./pane.js" */
import { CONSTANTS } from "../lib/constants.js";
import { describeRange } from "../lib/format.js";
import { isServed } from "../lib/lanes.js";

// A speedup that is computed from fewer tokens means nothing.
const MIN_TOKENS = 8;
// The widths in pixels up to which a pane's head leaves something out, as the style sheets say.
const NARROW_PX = [680, 560, 440, 390, 340];
// The smallest letters of a lane's description, in pixels.
const MIN_HINT = 15;

/**
 * The speedup over vanilla so far; 0 if there are too few tokens, or if it is more than the tokens per step allow.
 * @param {LaneMeters | undefined} meters
 * @param {LaneMeters | undefined} base vanilla's
 */
export function speedupSoFar(meters, base) {
  if (!base || !meters || Math.min(meters.tokens, base.tokens) < MIN_TOKENS) return 0;
  const speedup = meters.tokens_per_s / base.tokens_per_s;
  return speedup <= CONSTANTS.max_speedup_per_tau * meters.tau ? speedup : 0;
}

export class PaneRow {
  /** @type {Pane[]} */
  panes = [];
  /** @type {number | undefined} */
  solo = undefined;

  /**
   * @param {HTMLElement} node holds the panes
   * @param {(lane: number | undefined) => void} [onSolo] called with the lane that is shown alone, if any
   */
  constructor(node, onSolo = () => {}) {
    this.node = node;
    this.onSolo = onSolo;
    this.sizes = new ResizeObserver(() => this.measure());
  }

  // The narrowest pane decides what all panes leave out, so that all lanes of a race show the same figures and words.
  measure() {
    const widths = this.panes.map((pane) => pane.node.clientWidth).filter(Boolean);
    this.node.dataset.narrow = NARROW_PX.filter((width) => Math.min(...widths) <= width).join(" ");
    this.fitHints();
  }

  // Chooses one size of letters in which the longest description fits into its pane.
  fitHints() {
    this.node.style.removeProperty("--hint");
    const panes = this.panes.filter(({ hint, text }) => !hint.hidden && text.clientHeight);
    if (!panes.length) return;
    let size = parseFloat(getComputedStyle(panes[0].hint).fontSize);
    while (size > MIN_HINT && panes.some(({ text }) => text.scrollHeight > text.clientHeight))
      this.node.style.setProperty("--hint", `${--size}px`);
  }

  /** @param {Pane[]} panes one for each lane */
  show(panes) {
    this.panes = panes;
    panes.forEach((pane, lane) => {
      pane.solo.addEventListener("click", () => this.toggleSolo(lane));
      pane.leave.addEventListener("click", () => {
        this.toggleSolo(undefined);
        pane.solo.focus();
      });
    });
    this.node.replaceChildren(...panes.map((pane) => pane.node));
    this.sizes.disconnect();
    for (const node of [this.node, ...panes.map((pane) => pane.text)]) this.sizes.observe(node);
    this.node.dataset.count = String(panes.length);
    this.node.dataset.ranges = "false";
    // By default the last lane is the one that drafts from the most sources.
    this.feature(panes.findLastIndex(({ method }) => !isServed(method)));
    this.toggleSolo(undefined);
  }

  // Empties the panes, for a replay from the start.
  clear() {
    this.node.dataset.ranges = "false";
    for (const pane of this.panes) pane.clear();
  }

  // Chooses the lane whose text a phone shows while no lane is shown alone.
  feature(lane) {
    this.panes.forEach((pane, number) => pane.node.classList.toggle("featured", number === lane));
  }

  // Shows one lane alone, or all lanes again if this lane is alone already.
  toggleSolo(lane) {
    this.solo = lane === this.solo ? undefined : lane;
    this.node.dataset.solo = String(this.solo ?? "");
    this.panes.forEach((pane, number) => {
      pane.node.classList.toggle("away", this.solo !== undefined && number !== this.solo);
      pane.solo.setAttribute("aria-pressed", String(number === this.solo));
      pane.leave.hidden = number !== this.solo || this.panes.length < 2;
    });
    this.measure();
    this.onSolo(this.solo);
  }

  // The lane in whose pane an element is, or -1.
  laneOf(element) {
    return this.panes.findIndex((pane) => pane.node.contains(element));
  }

  // Outlines the words of one lane's step, and no others.
  outline(lane, step) {
    this.panes.forEach((pane, number) => pane.outlineStep(number === lane ? step : -1));
  }

  // Shows the speedups after a step of `lane`. A step of vanilla, lane 0, changes all lanes' speedups.
  showSpeedups(lane) {
    const base = this.panes[0].meters;
    for (const pane of lane ? [this.panes[lane]] : this.panes) pane.setSpeedup(speedupSoFar(pane.meters, base));
  }

  /**
   * Shows each lane's final figures.
   * @param {ResultRow[]} rows
   * @param {ShownRepeated | null} repeated
   * @param {number[]} places one for each lane; empty if the figures do not count
   */
  conclude(rows, repeated, places) {
    // Where the speedups have ranges, all heads leave out the same figures: vanilla's, too, which has no range.
    this.node.dataset.ranges = String(Boolean(repeated));
    rows.forEach((row, lane) => {
      const pane = this.panes[lane];
      pane.settle();
      pane.setBadge(...row.badge);
      pane.setRate(row.tokens_per_s);
      pane.setSpeedup(row.speedup, describeRange(repeated, lane));
      pane.node.dataset.done ||= row.end;
      pane.markCut();
      pane.node.classList.toggle("winner", rows.length > 1 && places[lane] === 1);
    });
    if (places.length) this.feature(places.indexOf(1));
  }
}
