// What the page knows about a lane before a race: its method's title, summary and hue.
/** @import { MethodCard } from "./wire.d.ts" */
import { CONSTANTS } from "./constants.js";

/** @type {Map<string, MethodCard>} */
const methods = new Map();

/** @param {MethodCard[]} list */
export function registerMethods(list) {
  for (const method of list) methods.set(method.lane, method);
}

/**
 * A lane with its method's title, summary and hue, if the method is known.
 * @template {{ lane: string }} Lane
 * @param {Lane} lane
 * @returns {Lane & Partial<MethodCard>}
 */
export function withMethod(lane) {
  return { ...lane, ...methods.get(lane.lane) };
}

// The lanes with these names, in the registry's order.
export function sortLanes(names) {
  return [...methods.keys()].filter((lane) => names.includes(lane)).map((lane) => ({ lane }));
}

// Whether a server decoded the lane: its time is the client's, not race time, so it has no speedup and no place.
/** @param {{ served?: object | null }} lane */
export function isServed({ served }) {
  return Boolean(served);
}

// A lane's name where there is little room: a server's title also names its software.
/** @param {{ lane: string, title?: string, served?: object | null }} lane */
export function shortTitle(lane) {
  return isServed(lane) ? lane.lane : (lane.title ?? lane.lane);
}

/** @param {{ lane: string }} lane */
export function hueOf(lane) {
  return String(methods.get(lane.lane)?.hue ?? CONSTANTS.other_hue);
}
