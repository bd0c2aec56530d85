// How a race is shown: slowed, or sped up, so that it lasts about as long as a person can follow.

const SHOW_MS = 12_000;
const LONGEST_MS = 20_000;
// Where the end is nearer than thought.
const MIN_MS = 2000;
const FIRST_TOKENS = 64;

// How long a race of `length` ms is shown, in ms.
export function showLength(length) {
  return Math.min(Math.max(length, SHOW_MS), LONGEST_MS);
}

// Race time per time of the show. `shown` ms of it are over, and race time stands at `time` of `length`.
export function showSpeed(length, shown = 0, time = 0) {
  return (length - time) / Math.max(showLength(length) - shown, MIN_MS);
}

// Two digits at most: "slowed 40×", "slowed 2.4×", "sped up 3×", or "" for true speed.
export function describeSpeed(speed) {
  const factor = speed < 1 ? 1 / speed : speed;
  const words = factor < 10 ? String(Number(factor.toFixed(1))) : String(Number(factor.toPrecision(2)));
  return words === "1" || !Number.isFinite(factor) ? "" : `${speed < 1 ? "slowed" : "sped up"} ${words}×`;
}

// What a race that still runs will come to, from the steps so far: tokens a lane, and race time in ms.
export class Forecast {
  constructor(count, most) {
    this.lanes = Array.from({ length: count }, () => ({ tokens: 0, ms: 0, end: "" }));
    this.most = most;
  }

  add({ lane, at, frame }) {
    this.lanes[lane] = { tokens: frame.meters.tokens, ms: at, end: frame.end };
  }

  // All lanes print one text: where one has ended, the length is known.
  get known() {
    return this.lanes.some((lane) => lane.end);
  }

  get tokens() {
    const ended = this.lanes.filter((lane) => lane.end).map((lane) => lane.tokens);
    if (ended.length) return Math.max(...ended);
    const far = Math.max(...this.lanes.map((lane) => lane.tokens));
    let tokens = FIRST_TOKENS;
    while (tokens < 1.2 * far) tokens *= 2;
    return Math.min(tokens, this.most);
  }

  get ms() {
    const { tokens } = this;
    return Math.max(...this.lanes.map((lane) => (lane.tokens ? (lane.ms / lane.tokens) * tokens : 0)));
  }
}
