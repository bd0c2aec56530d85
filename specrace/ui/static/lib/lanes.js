// What the page knows about a lane before a race: its method's title, summary and hue, the number of its colour.
/** @import { MethodCard } from "./wire.d.ts" */
import { CONSTANTS } from "./constants.js";
import { shorten } from "./format.js";

// The largest number of characters of a lane's label in a plot.
const MAX_LABEL = 15;

/** @type {Map<string, MethodCard>} */
const methods = new Map();

/** @param {MethodCard[]} list */
export function registerMethods(list) {
  for (const method of list) methods.set(method.lane, method);
}

// A lane's name is its method's, or one with options of its own: "trie:n=3" (engine/lane_name.py).
/** @param {string} name */
function methodOf(name) {
  return methods.get(String(name).split(":", 1)[0]);
}

/**
 * A lane with its method's summary and hue, if the method is known. In a race the lane has its own title; before a
 * race, the title is the method's, with the options from the lane's name.
 * @template {{ lane: string }} Lane
 * @param {Lane} lane
 * @returns {Lane & Partial<MethodCard>}
 */
export function withMethod(lane) {
  const method = methodOf(lane.lane);
  if (!method) return lane;
  const [, ...options] = lane.lane.split(":");
  const title = options.length ? `${method.title} (${options.join(", ")})` : method.title;
  return { ...method, title, ...lane };
}

// The lanes with these names, in the registry's order.
/** @param {string[]} names */
export function sortLanes(names) {
  const known = names.filter((name) => methodOf(name)).map((lane) => ({ lane }));
  const order = [...methods.values()];
  return known.toSorted((one, other) => order.indexOf(methodOf(one.lane)) - order.indexOf(methodOf(other.lane)));
}

/** @type {Map<string, number>} */
let raceHues = new Map();

// Gives each lane of a race its method's hue. If an earlier lane has that hue, the lane gets one that no lane has,
// if any is left. The terminal does the same (race_hues in views/colours.py).
/** @param {{ lane: string }[]} lanes */
function assignHues(lanes) {
  raceHues = new Map();
  const ownHues = lanes.map((lane) => Number(hueOf(lane)));
  const taken = new Set(ownHues);
  const used = new Set();
  // Not hue 0, which is vanilla's. The last one, `other_hue`, is also that of lanes without a method.
  const choices = Array.from({ length: CONSTANTS.other_hue }, (_, index) => index + 1);
  for (const [index, { lane }] of lanes.entries()) {
    const own = ownHues[index];
    const hue = used.has(own) ? (choices.find((free) => !taken.has(free)) ?? own) : own;
    raceHues.set(lane, hue);
    taken.add(hue);
    used.add(hue);
  }
}

// Whether a server decoded the lane: its time is the client's, not race time, so it has no speedup and no place.
/** @param {{ served?: object | null }} lane */
export function isServed({ served }) {
  return Boolean(served);
}

// Whether a lane has token ids. It lacks them if a server decoded it that streams text only.
/** @param {{ served?: { sends_ids?: boolean } | null }} lane */
export function hasTokens({ served }) {
  return !served || served.sends_ids !== false;
}

// A lane's name where there is little room: a server's title also names its software.
/** @param {{ lane: string, title?: string, served?: object | null }} lane */
export function shortTitle(lane) {
  return isServed(lane) ? lane.lane : (lane.title ?? lane.lane);
}

// What a plot calls a lane: its title, or, if that is too long and has options, its name, "trie:n=3".
/** @param {{ lane: string, title: string }} lane */
export function labelOf({ lane, title }) {
  return shorten(title.length > MAX_LABEL && String(lane).includes(":") ? lane : title, MAX_LABEL);
}

/**
 * The lanes of a race, each with its method, and with a hue for as long as this race is shown.
 * @template {{ lane: string }} Lane
 * @param {Lane[]} lanes
 */
export function describeLanes(lanes) {
  assignHues(lanes);
  return lanes.map(withMethod);
}

/** @param {{ lane: string }} lane */
export function hueOf(lane) {
  return String(raceHues.get(lane.lane) ?? methodOf(lane.lane)?.hue ?? CONSTANTS.other_hue);
}
