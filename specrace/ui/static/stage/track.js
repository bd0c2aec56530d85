// The race track: each lane runs from its first token to the end of the answer, and the first lane there wins.
/** @import { LaneFrame, ResultRow, ShownRepeated } from "../lib/wire.d.ts" */
import { make, setText } from "../lib/dom.js";
import { countOf, formatSeconds, formatTime } from "../lib/format.js";
import { hueOf, isServed, shortTitle } from "../lib/lanes.js";

const PLACES = ["1st", "2nd", "3rd", "4th", "5th", "6th"];
// The distances that ticks may have, in tokens.
const TICKS = [1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000];
const MAX_TICKS = 8;
// The tooltip of a place that lanes share.
const LEVEL = "=: these lanes' speedups are alike to one decimal, closer than this race can tell them apart.";
// The position of the finish line, as a share of the track.
const FINISH = 0.965;

// The round numbers of tokens to mark on a track of `total` tokens.
export function placeTicks(total) {
  const distance = TICKS.find((tick) => total / tick <= MAX_TICKS) ?? total / MAX_TICKS;
  const ticks = [];
  // A tick near the finish line would leave little room for its number.
  for (let at = 0; at <= 0.93 * total; at += distance) ticks.push(Math.round(at));
  return ticks;
}

export class Track {
  constructor(host) {
    this.host = host;
  }

  // Draws an empty track. `total` is the number of tokens to the finish line, or a list with that number for each lane.
  setUp(methods, total) {
    this.first = this.totals = this.ranking = undefined;
    this.host.dataset.level = "false";
    this.rows = methods.map((method) => this.drawLane(method));
    // The column of names is as wide as the longest name, but leaves most of the width to the bars.
    const longest = Math.max(...methods.map((method) => shortTitle(method).length));
    this.host.style.setProperty("--name-letters", String(longest));
    this.ticks = make("span", "ticks");
    this.speed = make("b", "track-speed", "", "How much slower, or faster, than it really was.");
    this.medians = make("small", "medians");
    this.medians.hidden = true;
    const areOurs = methods.every((method) => !isServed(method));
    this.turns = make("small", "turns", areOurs ? "lanes take turns" : "");
    this.clock = make(
      "b",
      "clock",
      formatSeconds(0),
      "Race time: lanes take turns, and each is timed as if it had the device to itself. Retrieval and prefill are not counted.",
    );
    const axis = make("div", "track-row axis");
    const side = make("span", "side");
    side.append(this.clock, this.speed, this.turns, this.medians);
    axis.append(make("span", "name", "tokens"), this.ticks, side);
    this.host.replaceChildren(...this.rows.map(({ row }) => row), axis);
    this.setFinish(total, true);
    this.draw(0);
  }

  drawLane(method) {
    const row = make("div", "track-row");
    row.dataset.lane = method.lane;
    row.dataset.hue = hueOf(method);
    const bar = make("span", "bar");
    const fill = make("i");
    const photo = make("u", "photo", undefined, "Here when the first lane finished.");
    const line = make("u", "line", undefined, "The end of the answer.");
    photo.hidden = true;
    line.style.left = `${100 * FINISH}%`;
    bar.append(fill, photo, line);
    const words = make(
      "span",
      "tokens",
      "",
      `Tokens written, and ${isServed(method) ? `the time measured on ${method.lane}` : "the lane's own time"}.`,
    );
    const place = make("b", "place");
    const side = make("span", "side");
    side.append(place, words);
    row.append(make("span", "name", shortTitle(method), method.title), bar, side);
    return { row, fill, photo, words, place, isServed: isServed(method), tokens: 0, ms: 0, end: "" };
  }

  // Dims the other lanes while one lane is shown alone.
  dimOthers(solo) {
    this.rows.forEach(({ row }, lane) => row.classList.toggle("away", solo !== undefined && lane !== solo));
  }

  // Sets the finish line; `known` is true once a lane has reached it.
  setFinish(total, known) {
    const totals = this.rows.map((_, lane) => Math.max(1, Array.isArray(total) ? total[lane] : total));
    this.host.dataset.known = String(known);
    if (String(totals) === String(this.totals)) return;
    this.totals = totals;
    const longest = Math.max(...totals);
    this.ticks.replaceChildren(
      ...placeTicks(longest).map((at) => {
        const tick = make("i", "", String(at));
        tick.style.left = `${100 * FINISH * (at / longest)}%`;
        return tick;
      }),
    );
    this.rows.forEach((_, lane) => this.move(lane));
  }

  /** @param {LaneFrame} frame */
  apply({ lane, meters, end }) {
    const runner = this.rows[lane];
    Object.assign(runner, { tokens: meters.tokens, ms: meters.ms, end });
    this.move(lane);
    if (end && !this.first && !runner.isServed) this.takePhoto(runner);
  }

  move(lane) {
    const { fill, tokens } = this.rows[lane];
    fill.style.transform = `scaleX(${FINISH * Math.min(1, tokens / this.totals[lane])})`;
  }

  // The index of the lane that finished first; undefined until one has finished.
  get winner() {
    return this.first && this.rows.indexOf(this.first);
  }

  // Marks where the other lanes were when the first one finished, as on a photo of the finish.
  takePhoto(winner) {
    this.first = winner;
    this.rows.forEach((runner, lane) => {
      runner.photo.hidden = runner === winner || runner.isServed || Boolean(runner.end);
      runner.photo.style.left = `${100 * FINISH * Math.min(1, runner.tokens / this.totals[lane])}%`;
    });
  }

  /**
   * Ranks the lanes by the figures of the result, which may differ from the order in which they finished in the race
   * that was played. After repeated runs, the bars have the times at the median speeds that decide the ranking.
   * @param {ResultRow[]} rows
   * @param {number[]} places one for each lane; 0: none, as in a race whose figures do not count
   * @param {ShownRepeated | null} repeated
   */
  conclude(rows, places, repeated) {
    this.ranking = places;
    this.showMedians(repeated);
    this.rows.forEach((runner, lane) => {
      this.showPlace(runner, places[lane]);
      if (!repeated || runner.isServed) return;
      const { tokens, tokens_per_s: rate, ms } = rows[lane];
      setText(runner.words, `${tokens} tok in ${formatTime(rate ? (1000 * tokens) / rate : ms)}`);
      runner.words.title = `Tokens written, and their time at the median speed of ${countOf(repeated.runs, "run")}.`;
    });
  }

  // Says, in place of the clock, which belongs to the run that was played, which times the lanes now show.
  showMedians(repeated) {
    this.clock.hidden = this.speed.hidden = this.turns.hidden = Boolean(repeated);
    this.medians.hidden = !repeated;
    if (!repeated) return;
    setText(this.medians, `median of ${countOf(repeated.runs, "run")}`);
    // A server's time is the client's, in the run that was played.
    for (const { isServed: served, words, ms } of this.rows) if (served) setText(words, `1 run: ${formatTime(ms)}`);
  }

  showPlace(runner, place) {
    const isAlone = this.rows.filter((row) => !row.isServed).length === 1;
    const isShared = place > 0 && (this.ranking ?? []).filter((other) => other === place).length > 1;
    setText(runner.place, place && !isAlone ? `${isShared ? "=" : ""}${PLACES[place - 1]}` : "");
    runner.place.title = isShared ? LEVEL : "";
    this.host.dataset.level = String(this.rows.some((row) => row.place.title));
    runner.row.dataset.place = String(place);
  }

  draw(time, speedText = "") {
    setText(this.clock, formatSeconds(time));
    setText(this.speed, speedText);
    if (this.ranking) return;
    const ended = this.rows.filter(({ end, isServed: served }) => end && !served).sort((a, b) => a.ms - b.ms);
    for (const runner of this.rows) {
      const { tokens, ms, end } = runner;
      const progress = end ? `${tokens} tok in ${formatTime(ms)}` : countOf(tokens, "token");
      // A server that sends no token ids may not count them either.
      setText(runner.words, tokens ? progress : end && runner.isServed ? `ended after ${formatTime(ms)}` : "");
      this.showPlace(runner, ended.indexOf(runner) + 1);
    }
  }
}
