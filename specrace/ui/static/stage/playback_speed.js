// How fast a race is shown: slowed down or sped up, so that people can follow it.
/** @import { ReadStep } from "./reel.js" */
import { isServed } from "../lib/lanes.js";

// The shortest and the longest time that the playback of a race takes.
const MIN_PLAYBACK_MS = 12_000;
const MAX_PLAYBACK_MS = 20_000;
// The shortest time for the rest of a race that ends earlier than its forecast.
const MIN_REST_MS = 2000;
// The expected length of an answer at first, in tokens.
const FIRST_TOKENS = 64;

// How many ms the playback of a race of `length` ms takes.
export function playbackMs(length) {
  return Math.min(Math.max(length, MIN_PLAYBACK_MS), MAX_PLAYBACK_MS);
}

// The speed for the rest of a race of `length` ms, of which `shown` ms of playback have shown `time` ms: race time over
// playing time.
export function playbackSpeed(length, shown = 0, time = 0) {
  return (length - time) / Math.max(playbackMs(length) - shown, MIN_REST_MS);
}

// A speed in words with at most two digits: "slowed 40×", "slowed 2.4×", "sped up 3×", or "" for real time.
export function describeSpeed(speed) {
  const factor = speed < 1 ? 1 / speed : speed;
  const words = factor < 10 ? String(Number(factor.toFixed(1))) : String(Number(factor.toPrecision(2)));
  return words === "1" || !Number.isFinite(factor) ? "" : `${speed < 1 ? "slowed" : "sped up"} ${words}×`;
}

// A speed as a multiple of real time: "0.16×", "0.003×", "2.5×".
export function formatPlaybackSpeed(speed) {
  return `${Number(speed.toPrecision(speed < 0.1 ? 1 : 2))}×`;
}

// Estimates the end of a live race from its steps so far: the tokens of its longest lane, and its race time in ms.
export class Forecast {
  /**
   * @param {{ served?: object | null }[]} lanes
   * @param {number} maxTokens
   */
  constructor(lanes, maxTokens) {
    this.lanes = lanes.map((lane) => ({ isServed: isServed(lane), tokens: 0, ms: 0, end: "" }));
    this.maxTokens = maxTokens;
  }

  /** @param {ReadStep} step */
  add({ lane, at, frame }) {
    // A server's text may be another one, so it says nothing about the length of the answer.
    if (!this.lanes[lane].isServed)
      Object.assign(this.lanes[lane], { tokens: frame.meters.tokens, ms: at, end: frame.end });
  }

  // Whether the number of tokens is known: all lanes print the same text, so it is known once a lane has ended.
  get known() {
    return this.lanes.some((lane) => lane.end);
  }

  get tokens() {
    const ended = this.lanes.filter((lane) => lane.end).map((lane) => lane.tokens);
    if (ended.length) return Math.max(...ended);
    const furthest = Math.max(...this.lanes.map((lane) => lane.tokens));
    let tokens = FIRST_TOKENS;
    // The finish stays a fifth ahead of the furthest lane.
    while (tokens < 1.2 * furthest) tokens *= 2;
    return Math.min(tokens, this.maxTokens);
  }

  get ms() {
    const { tokens } = this;
    return Math.max(...this.lanes.map((lane) => (lane.tokens ? (lane.ms / lane.tokens) * tokens : 0)));
  }
}
