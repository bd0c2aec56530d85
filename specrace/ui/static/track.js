// The race track: one bar a lane, on a shared axis of race time.
import { make, svg, write } from "./dom.js";
import { seconds } from "./format.js";
import { hueOf } from "./lanes.js";

const PLACES = ["1st", "2nd", "3rd", "4th", "5th", "6th"];
// How long the axis of a live race is, in seconds: nobody knows yet when it will end.
const AXES_S = [0.25, 0.5, 1, 2, 3, 5, 8, 12, 20, 30, 45, 60, 90, 120, 180, 300, 450, 600];
const TICKS_S = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200];
const MOST_TICKS = 6;
const FEW_TOKENS = 200;

// How long the axis of a race is that has run for `now`, both in ms: longer than that.
export function axisFor(now) {
  return 1000 * (AXES_S.find((each) => 950 * each > now) ?? now / 900);
}

// When a lane that came from one state to another had written a multiple of `every` tokens.
export function markTimes(from, to, every) {
  const times = [];
  for (let next = from.tokens - (from.tokens % every) + every; next <= to.tokens; next += every) {
    times.push(from.ms + ((next - from.tokens) / (to.tokens - from.tokens)) * (to.ms - from.ms));
  }
  return times;
}

export class Track {
  constructor(host) {
    this.host = host;
  }

  // `length`: of the race, in ms, where it is known; `most`: the most tokens that a lane may write.
  show(methods, length, most) {
    this.length = length;
    this.every = most > FEW_TOKENS ? 50 : 10;
    this.axis = 0;
    this.rows = methods.map((method) => this.lane(method));
    this.ticks = make("span", "ticks");
    const axis = make("div", "track-row axis");
    const words = `one tick = ${this.every} tokens`;
    axis.append(
      make("span", "name", "race time"),
      this.ticks,
      make("b"),
      make("span", "tokens", words, "The closer the ticks of a lane are, the faster it writes."),
    );
    this.host.replaceChildren(...this.rows.map((each) => each.row), axis);
    this.draw();
  }

  lane(method) {
    const row = make("div", "track-row");
    row.dataset.lane = method.lane;
    row.dataset.hue = hueOf(method);
    const bar = make("span", "bar");
    const fill = make("i");
    const notch = make("u", "", undefined, "When the first lane finished.");
    const picture = svg("svg", { preserveAspectRatio: "none", "aria-hidden": "true" });
    const path = svg("path");
    picture.append(path);
    notch.hidden = true;
    bar.append(fill, picture, notch);
    const tokens = make("span", "tokens", "", "Tokens written, and the lane's own time.");
    const place = make("b", "place");
    row.append(make("span", "name", method.title), bar, place, tokens);
    return { row, fill, picture, path, notch, tokens, place, meters: { tokens: 0, ms: 0 }, end: "", marks: [] };
  }

  apply({ lane, meters, end }) {
    const each = this.rows[lane];
    const { tokens, ms } = each.meters;
    each.marks.push(...markTimes({ tokens, ms }, meters, this.every));
    Object.assign(each, { meters, end });
  }

  // All lanes share one axis, race time: a bar grows until its lane is through.
  draw() {
    const ended = this.rows.filter((each) => each.end).sort((a, b) => a.meters.ms - b.meters.ms);
    const first = ended[0]?.meters.ms;
    this.fit(Math.max(0, ...this.rows.map((each) => each.meters.ms)));
    for (const each of this.rows) {
      const { tokens, ms } = each.meters;
      const place = ended.indexOf(each);
      each.fill.style.transform = `scaleX(${ms / this.axis})`;
      each.notch.hidden = !(ms > first);
      each.notch.style.left = `${(100 * first) / this.axis}%`;
      if (each.drawn !== each.marks.length)
        each.path.setAttribute("d", each.marks.map((at) => `M${at.toFixed(1)} 0v1`).join(""));
      each.drawn = each.marks.length;
      write(each.tokens, !tokens ? "" : each.end ? `${tokens} tokens in ${seconds(ms)}` : `${tokens} tokens`);
      write(each.place, place < 0 || this.rows.length === 1 ? "" : PLACES[place]);
      each.row.dataset.place = place + 1;
    }
  }

  // The axis is as long as the race, or, while it runs, longer than it has run.
  fit(now) {
    const axis = this.length || axisFor(now);
    if (axis === this.axis) return;
    this.axis = axis;
    for (const each of this.rows) each.picture.setAttribute("viewBox", `0 0 ${axis} 1`);
    const every = 1000 * (TICKS_S.find((each) => axis / (1000 * each) <= MOST_TICKS) ?? axis / 1000 / MOST_TICKS);
    const ticks = [];
    for (let at = 0; at < 0.97 * axis; at += every) {
      const tick = make("i", "", `${+(at / 1000).toFixed(2)} s`);
      tick.style.left = `${(100 * at) / axis}%`;
      ticks.push(tick);
    }
    this.ticks.replaceChildren(...ticks);
  }
}
