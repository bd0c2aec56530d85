// Tooltips of lanes, of the page's figures, and of the parts of a step's time.
/** @import { Timing } from "./wire.d.ts" */
export const TOOLTIPS = {
  speedup: "Speedup: tokens per second over vanilla's, both on their own clocks in this race.",
  range: "The lowest and the highest speedup of several runs; the figure is their median.",
  measured:
    "A server's time, as the client saw it, network included. It is not race time, so there is no speedup and no place.",
  rate: "Decode tokens per second on this lane's own clock: draft + model + cache. The prompt is not counted.",
  tau: "Tokens per step. A step is one forward pass of the model; vanilla has 1.00.",
  rest: "Draft tokens that have no room here, or are on other branches: the step inspector shows them.",
  counts: "Draft tokens accepted / draft tokens verified.",
  badge: "Whether this lane wrote exactly what its reference wrote: vanilla or, if the badge names one, a server.",
  loops: "The text repeats itself, which flatters every drafter that copies.",
};

/** @type {[keyof Timing, string, string][]} */
export const TIME_PARTS = [
  ["draft_ms", "draft", "The drafter's own work: proposing and learning."],
  ["target_ms", "model", "One forward pass over the whole tree."],
  ["keep_ms", "cache", "Keeping the accepted path in the KV cache."],
];

// A lane's tooltip. `summary` is the method's, from the registry in drafters/__init__.py.
export function laneTooltip({ title, summary }) {
  const words = summary ?? title ?? "";
  return `${words.slice(0, 1).toUpperCase()}${words.slice(1)}. Press to see this lane alone.`;
}
