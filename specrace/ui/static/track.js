// The race track: every lane runs from its first token to the end of the answer, and the first one over the line wins.
import { make, write } from "./dom.js";
import { countOf, seconds } from "./format.js";
import { hueOf } from "./lanes.js";

const PLACES = ["1st", "2nd", "3rd", "4th", "5th", "6th"];
const TICKS = [1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000];
const MAX_TICKS = 8;
// Where the finish line stands, as a share of the track.
const LINE = 0.965;

// Numbers of tokens to mark on the way to `total`.
export function placeTicks(total) {
  const every = TICKS.find((each) => total / each <= MAX_TICKS) ?? total / MAX_TICKS;
  const ticks = [];
  for (let at = 0; at <= 0.93 * total; at += every) ticks.push(Math.round(at));
  return ticks;
}

export class Track {
  constructor(host) {
    this.host = host;
  }

  // `total`: tokens to the finish line, or a list with those of each lane.
  show(methods, total) {
    this.first = this.totals = undefined;
    this.rows = methods.map((method) => this.lane(method));
    this.ticks = make("span", "ticks");
    this.pace = make("b", "pace", "", "How much slower, or faster, than it really was.");
    this.clock = make(
      "b",
      "clock",
      seconds(0),
      "Race time: lanes take turns, and each is timed as if it had the device to itself. Retrieval and prefill are not counted.",
    );
    const axis = make("div", "track-row axis");
    const side = make("span", "side");
    side.append(this.clock, this.pace);
    axis.append(make("span", "name", "tokens"), this.ticks, side);
    this.host.replaceChildren(...this.rows.map((each) => each.row), axis);
    this.aim(total, true);
    this.draw(0);
  }

  lane(method) {
    const row = make("div", "track-row");
    row.dataset.lane = method.lane;
    row.dataset.hue = hueOf(method);
    const bar = make("span", "bar");
    const fill = make("i");
    const photo = make("u", "photo", undefined, "Here when the first lane finished.");
    const line = make("u", "line", undefined, "The end of the answer.");
    photo.hidden = true;
    line.style.left = `${100 * LINE}%`;
    bar.append(fill, photo, line);
    const words = make("span", "tokens", "", "Tokens written, and the lane's own time.");
    const place = make("b", "place");
    const side = make("span", "side");
    side.append(place, words);
    row.append(make("span", "name", method.title), bar, side);
    return { row, fill, photo, words, place, tokens: 0, ms: 0, end: "" };
  }

  // The lane that stands alone, if one does.
  mark(solo) {
    this.rows.forEach((each, lane) => each.row.classList.toggle("away", solo !== undefined && lane !== solo));
  }

  // Where the finish line is; `known` once a lane has reached it.
  aim(total, known) {
    const totals = this.rows.map((_, lane) => Math.max(1, Array.isArray(total) ? total[lane] : total));
    this.host.dataset.known = String(known);
    if (String(totals) === String(this.totals)) return;
    this.totals = totals;
    const longest = Math.max(...totals);
    this.ticks.replaceChildren(
      ...placeTicks(longest).map((at) => {
        const tick = make("i", "", String(at));
        tick.style.left = `${100 * LINE * (at / longest)}%`;
        return tick;
      }),
    );
    this.rows.forEach((_, lane) => this.move(lane));
  }

  apply({ lane, meters, end }) {
    const each = this.rows[lane];
    Object.assign(each, { tokens: meters.tokens, ms: meters.ms, end });
    this.move(lane);
    if (end && !this.first) this.takePhoto(each);
  }

  move(lane) {
    const { fill, tokens } = this.rows[lane];
    fill.style.transform = `scaleX(${LINE * Math.min(1, tokens / this.totals[lane])})`;
  }

  // The lane that was first over the line; undefined before.
  get winner() {
    return this.first && this.rows.indexOf(this.first);
  }

  // Where everybody was when the first lane finished.
  takePhoto(winner) {
    this.first = winner;
    this.rows.forEach((each, lane) => {
      each.photo.hidden = each === winner || Boolean(each.end);
      each.photo.style.left = `${100 * LINE * Math.min(1, each.tokens / this.totals[lane])}%`;
    });
  }

  draw(time, pace = "") {
    const ended = this.rows.filter((each) => each.end).sort((a, b) => a.ms - b.ms);
    for (const each of this.rows) {
      const { tokens, ms, end } = each;
      const place = ended.indexOf(each);
      write(each.words, !tokens ? "" : end ? `${tokens} tok in ${seconds(ms)}` : countOf(tokens, "token"));
      write(each.place, place < 0 || this.rows.length === 1 ? "" : PLACES[place]);
      each.row.dataset.place = place + 1;
    }
    write(this.clock, seconds(time));
    write(this.pace, pace);
  }
}
