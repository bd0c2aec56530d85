// Draws one moment of a race's film on a canvas: the lanes' bars, the texts of vanilla and of the fastest lane that
// drafts, and at the end the figures. It depends only on the race, the shape, the colours and the time.
/** @import { LaneFrame, ResultRow, ShownLane } from "../lib/wire.d.ts" */
/** @import { PlayedReel } from "../stage/reel.js" */
/** @import { Line, Part } from "./text_lines.js" */
import { breakLines, FONT, isRightToLeft, measure } from "../explanations/layout.js";
import { countOf, describeRecording, formatSeconds, formatSpeedup, describeRange } from "../lib/format.js";
import { isServed, shortTitle } from "../lib/lanes.js";
import { withoutBidiControls } from "../lib/pieces.js";
import { speedupSoFar } from "../panes/pane_row.js";
import { describeSpeed, playbackMs, playbackSpeed } from "../stage/playback_speed.js";
import { rankedRows, findFastest, rankLanes } from "../stage/podium.js";
import { breakIntoLines } from "./text_lines.js";

// Shapes for slides and for phones, in pixels.
export const SHAPES = { wide: { width: 1280, height: 720 }, tall: { width: 720, height: 1280 } };
// How long the question stays before the race starts, and the result after it, in ms.
const LEAD_MS = 1000;
const END_MS = 4000;
// The margin at all four sides, in pixels.
const SIDE = 36;
// Letter sizes and line heights in pixels; `max` is a number of lines. The upright film has larger letters, because a
// phone shows it small.
const LOOKS = {
  wide: {
    question: { size: 36, line: 44, max: 2 },
    row: { size: 26, line: 42 },
    text: { size: 26, line: 36 },
    foot: { size: 22, line: 30, max: 1 },
  },
  tall: {
    question: { size: 44, line: 54, max: 4 },
    row: { size: 30, line: 52 },
    text: { size: 32, line: 44 },
    foot: { size: 26, line: 34, max: 2 },
  },
};
// In pixels: the gap between the parts of the picture, and the gap beside a lane's bar.
const GAP = 20;
const ROW_GAP = 12;
// The width of the lanes' names as a share of the picture's inner width.
const NAME_SHARE = { wide: 0.2, tall: 0.3 };
// In pixels: the width of the figure right of a bar, the additional width of its range, the height of a bar, and the
// thickness of the line under an accepted run.
const FIGURE_PX = 84;
const RANGE_PX = 170;
const BAR_PX = 22;
const BOX_PX = 3;

/**
 * A lane at a moment of the film. `runs` is the number of accepted runs in `parts`; `length` is the number of tokens of
 * its answer; `lines` are the lines of its text so far, undefined until they are needed.
 * @typedef {{
 *   lane: ShownLane, hue: string, frame: LaneFrame | undefined, parts: Part[], runs: number, length: number,
 *   lines: Line[] | undefined,
 * }} FilmLane
 */

/** @typedef {{ x: number, y: number, width: number, height: number }} Area */

export class FilmPicture {
  /**
   * @param {PlayedReel} reel a race that is over
   * @param {{
   *   shape: "wide" | "tall", theme: Record<string, string>, hues: string[], playMs?: number, endMs?: number,
   * }} look `hues`: the lanes' colours; `playMs`: how long the race plays; `endMs`: how long the result stays
   */
  constructor(reel, { shape, theme, hues, playMs, endMs = END_MS }) {
    this.width = SHAPES[shape].width;
    this.height = SHAPES[shape].height;
    this.reel = reel;
    this.shape = shape;
    this.theme = theme;
    this.hues = hues;
    this.endMs = endMs;
    this.isOver = false;
    this.look = LOOKS[shape];
    this.figurePx = FIGURE_PX + (reel.repeated || reel.head.lanes.some(isServed) ? RANGE_PX : 0);
    this.raceMs = Math.max(0, ...reel.steps.map(({ at }) => at));
    this.playMs = playMs ?? playbackMs(this.raceMs);
    this.speed = playMs ? this.raceMs / playMs : playbackSpeed(this.raceMs);
    // Whether the race's figures count: not if it was stopped, nor if the machine was disturbed.
    this.counts = reel.phase !== "stopped" && !(reel.repeated ?? reel.pace)?.disturbed;
    this.ranking = this.counts ? findFastest(reel.results).map((row) => reel.results.indexOf(row)) : [];
    this.places = this.counts ? rankLanes(reel.results) : [];
    const drafting = this.ranking.find((lane) => lane > 0) ?? reel.head.lanes.length - 1;
    // The lanes whose texts are shown: vanilla, and the fastest that drafts.
    this.shown = [...new Set([0, drafting])];
    this.rewind();
  }

  // The length of the film in ms.
  get length() {
    return LEAD_MS + this.playMs + this.endMs;
  }

  rewind() {
    const { head, results } = this.reel;
    this.next = this.time = 0;
    /** @type {FilmLane[]} */
    this.lanes = head.lanes.map((lane, index) => ({
      lane,
      hue: this.hues[index],
      frame: undefined,
      parts: [],
      runs: 0,
      lines: undefined,
      length: results[index].tokens,
    }));
  }

  // Brings the lanes to a moment of the film.
  moveTo(time) {
    const raceTime = Math.min(this.raceMs, Math.max(0, time - LEAD_MS) * this.speed);
    if (raceTime < this.time) this.rewind();
    this.time = raceTime;
    const { steps } = this.reel;
    while (this.next < steps.length && steps[this.next].at <= raceTime) {
      const { lane: index, frame } = steps[this.next++];
      const lane = this.lanes[index];
      lane.frame = frame;
      lane.lines = undefined;
      for (const [kind, text] of frame.runs)
        lane.parts.push({ text: withoutBidiControls(text), run: kind === "accepted" ? ++lane.runs : 0 });
    }
    this.isOver = time >= LEAD_MS + this.playMs;
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {number} time of the film in ms
   */
  draw(context, time) {
    this.moveTo(time);
    context.fillStyle = this.theme.ground;
    context.fillRect(0, 0, this.width, this.height);
    context.textBaseline = "middle";
    const inner = this.width - 2 * SIDE;
    const top = SIDE + this.drawQuestion(context, inner);
    const rowsHeight = this.lanes.length * this.look.row.line;
    this.lanes.forEach((lane, index) => this.drawRow(context, lane, index, top + index * this.look.row.line));
    const foot = this.height - SIDE - (1 + this.look.foot.max) * this.look.foot.line;
    this.drawFoot(context, foot, inner);
    const texts = { x: SIDE, y: top + rowsHeight + GAP, width: inner, height: foot - GAP - (top + rowsHeight + GAP) };
    const areas = splitArea(texts, this.shown.length, this.shape);
    this.shown.forEach((index, place) => this.drawText(context, this.lanes[index], areas[place]));
  }

  // Draws the question. Returns its height.
  drawQuestion(context, width) {
    const { size, line, max } = this.look.question;
    const question = withoutBidiControls(this.reel.head.question ?? "A race without a question");
    const all = breakLines(question.replace(/\s+/gu, " "), width, size, 700);
    const lines = all.slice(0, max);
    if (all.length > lines.length) lines[lines.length - 1] += " …";
    lines.forEach((words, index) =>
      this.write(context, words, {
        x: SIDE,
        y: (index + 0.5) * line + SIDE,
        width,
        size,
        weight: 700,
        colour: this.theme.ink,
      }),
    );
    return lines.length * line + GAP;
  }

  /**
   * Draws a lane's name, its bar up to the finish line, and its figure in a row whose top is `y`.
   * @param {CanvasRenderingContext2D} context
   * @param {FilmLane} lane
   * @param {number} index
   * @param {number} y
   */
  drawRow(context, { lane, hue, frame, length }, index, y) {
    const { size, line } = this.look.row;
    const inner = this.width - 2 * SIDE;
    const nameWidth = NAME_SHARE[this.shape] * inner;
    const middle = y + line / 2;
    const isWinner = this.isOver && this.places[index] === 1 && this.lanes.length > 1;
    const name = { x: SIDE, y: middle, width: nameWidth - ROW_GAP, size, weight: isWinner ? 700 : 400 };
    this.write(context, shortTitle(lane), { ...name, colour: this.theme.ink });
    const bar = { x: SIDE + nameWidth, width: inner - nameWidth - this.figurePx - ROW_GAP };
    context.fillStyle = this.theme.line;
    context.fillRect(bar.x, middle - BAR_PX / 2, bar.width, BAR_PX);
    context.fillStyle = hue;
    const tokens = frame?.meters.tokens ?? 0;
    context.fillRect(bar.x, middle - BAR_PX / 2, bar.width * Math.min(1, tokens / Math.max(1, length)), BAR_PX);
    const figure = { x: bar.x + bar.width + ROW_GAP, y: middle, width: this.figurePx, size };
    this.write(context, this.describeFigure(index), { ...figure, weight: 700, colour: this.theme.ink });
  }

  // A lane's speedup so far or, at the end, the one that counts, with its range.
  describeFigure(index) {
    const { lane, frame } = this.lanes[index];
    if (isServed(lane)) return "measured";
    if (this.isOver && !this.counts) return "–";
    const { results, repeated } = this.reel;
    if (!this.isOver) {
      const speedup = speedupSoFar(frame?.meters, this.lanes[0].frame?.meters);
      return speedup ? formatSpeedup(speedup) : "";
    }
    // Without the number of runs, which follows the comma.
    const [range] = describeRange(repeated ?? null, index).split(",");
    return `${formatSpeedup(results[index].speedup)}${range ? ` (${range})` : ""}`;
  }

  /**
   * Draws the end of a lane's text, as much as fits, with the accepted runs tinted and underlined.
   * @param {CanvasRenderingContext2D} context
   * @param {FilmLane} filmed
   * @param {Area} area
   */
  drawText(context, filmed, { x, y, width, height }) {
    const { size, line } = this.look.text;
    const { lane, hue, frame, parts } = filmed;
    context.fillStyle = hue;
    context.fillRect(x, y, 6, height);
    const left = x + 18;
    const inner = width - 18;
    const counted = frame?.meters.drafted ? `, ${frame.meters.tau.toFixed(1)} tokens a step` : "";
    const title = { x: left, y: y + line / 2, width: inner, size, weight: 700, colour: this.theme.ink };
    this.write(context, `${shortTitle(lane)}${counted}`, title);
    filmed.lines ??= breakIntoLines(trimStart(parts), inner, (text) => measure(text, size));
    const room = Math.max(1, Math.floor((height - line) / line));
    const mirrored = isRightToLeft(parts.map(({ text }) => text).join(""));
    filmed.lines.slice(-room).forEach((shown, index) => {
      let place = mirrored ? left + inner : left;
      for (const part of shown.parts) {
        const partWidth = measure(part.text, size);
        if (mirrored) place -= partWidth;
        this.drawPart(context, part, { x: place, y: y + line * (index + 1), width: partWidth, height: line });
        if (!mirrored) place += partWidth;
      }
    });
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {Part} part
   * @param {Area} area
   */
  drawPart(context, { text, run }, { x, y, width, height }) {
    const isBoxed = run > 0 && text.trim();
    if (isBoxed) {
      context.fillStyle = this.theme.accepted;
      context.globalAlpha = 0.16;
      context.fillRect(x, y + BOX_PX, width, height - 2 * BOX_PX);
      context.globalAlpha = 1;
      context.fillRect(x, y + height - 2 * BOX_PX, width, BOX_PX);
    }
    const colour = isBoxed ? this.theme.accepted : this.theme.ink;
    this.write(context, text, {
      x,
      y: y + height / 2,
      width: Infinity,
      size: this.look.text.size,
      weight: 400,
      colour,
    });
  }

  // Draws the race time or, at the end, whether the texts are equal; below it, with which model, where and when it was
  // run.
  drawFoot(context, y, width) {
    const { size, line, max } = this.look.foot;
    const { head } = this.reel;
    const speed = describeSpeed(this.speed);
    const clock = `${formatSeconds(this.time)} of race time${speed ? `, ${speed}` : ""}`;
    const place = { x: SIDE, width, size };
    const words = {
      ...place,
      y: y + line / 2,
      weight: 700,
      colour: this.isOver ? this.theme.accepted : this.theme.ink,
    };
    this.write(context, this.isOver ? describeEnd(this.reel, this.counts) : clock, words);
    const machine = `specrace · ${describeRecording(head)}`;
    breakLines(machine, width, size, 400)
      .slice(0, max)
      .forEach((text, index) =>
        this.write(context, text, { ...place, y: y + (1.5 + index) * line, weight: 400, colour: this.theme.dim }),
      );
  }

  // Writes one line, cut to its width; a right-to-left text is aligned to the right.
  write(context, text, { x, y, width, size, weight, colour }) {
    context.font = `${weight} ${size}px ${FONT}`;
    context.fillStyle = colour;
    const mirrored = isRightToLeft(text) && width !== Infinity;
    context.direction = isRightToLeft(text) ? "rtl" : "ltr";
    context.textAlign = mirrored ? "right" : "left";
    context.fillText(cut(context, text, width), mirrored ? x + width : x, y);
  }
}

// Splits an area into `count` parts: side by side in a wide picture, one below the other in a tall one.
/**
 * @param {Area} area
 * @param {number} count
 * @param {string} shape
 * @returns {Area[]}
 */
function splitArea(area, count, shape) {
  const side = shape === "wide" ? "width" : "height";
  const offset = shape === "wide" ? "x" : "y";
  const size = (area[side] - (count - 1) * GAP) / count;
  return Array.from({ length: count }, (_, index) => ({
    ...area,
    [side]: size,
    [offset]: area[offset] + index * (size + GAP),
  }));
}

// The text or, if it is wider than `width`, as much of its beginning as fits, and "…".
function cut(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  const letters = Array.from(text);
  while (letters.length && context.measureText(`${letters.join("")}…`).width > width) letters.pop();
  return `${letters.join("")}…`;
}

// The text without the blanks before its first word.
/** @param {Part[]} parts */
function trimStart(parts) {
  const first = parts.findIndex(({ text }) => text.trim());
  return first < 0 ? [] : [{ ...parts[first], text: parts[first].text.trimStart() }, ...parts.slice(first + 1)];
}

// The sentence at the end of the film: whether the lanes printed vanilla's text or, if the figures do not count, why
// not.
/**
 * @param {PlayedReel} reel
 * @param {boolean} counts
 */
export function describeEnd({ results, phase, pace, repeated }, counts) {
  if (!counts) return phase === "stopped" ? "The race was stopped." : (repeated ?? pace).note;
  /** @type {ResultRow[]} */
  const compared = rankedRows(results).slice(1);
  const badges = new Set(compared.map(({ badge }) => badge[1]));
  if (badges.size === 1 && compared[0].badge[0] === "identical")
    return `${compared.length > 1 ? `All ${compared.length} texts` : "The text"}: ${compared[0].badge[1]}.`;
  const odd = compared.find(({ badge }) => badge[0] !== "identical");
  return odd ? `${odd.title}: ${odd.badge[1]}.` : `${countOf(results.length, "lane")} raced.`;
}
