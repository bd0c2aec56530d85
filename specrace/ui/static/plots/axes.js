// Draws the axes of a plot, and rows of bars along the x axis.
import { svg } from "../lib/dom.js";
import { formatFigure } from "../lib/format.js";
import { hueOf, labelOf } from "../lib/lanes.js";

// A plot's height and its margins, in pixels.
export const PLOT = { height: 250, left: 56, right: 16, top: 12, bottom: 44 };
// The width of the column of figures at the right.
const FIGURE_PX = 72;

// Round numbers from 0 to at least `max`, about `count` of them.
export function ticks(max, count = 5) {
  if (!(max > 0)) return [0, 1];
  // A little less than a whole step is enough, because of rounding errors: hence 0.999.
  const exactStep = max / count;
  const power = 10 ** Math.floor(Math.log10(exactStep));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((round) => round >= exactStep * 0.999);
  const marks = [];
  for (let index = 0; index * step < max + step * 0.999; index++) marks.push(Number((index * step).toPrecision(12)));
  return marks;
}

// Ticks for values that are whole numbers.
export function wholeTicks(max, count) {
  const step = Math.max(1, Math.ceil(ticks(max, count)[1]));
  return Array.from({ length: Math.ceil(max / step) + 1 }, (_, index) => index * step);
}

// Draws the axes `x` and `y`, {marks, words}: the numbers on an axis and its name; `y.left` replaces PLOT.left.
// Returns the functions that map values to pixels.
export function drawAxes(picture, width, x, y, height = PLOT.height) {
  const { left, right, top, bottom } = { ...PLOT, left: y.left ?? PLOT.left };
  const toX = (value) => left + (value / (x.marks.at(-1) || 1)) * (width - left - right);
  const toY = (value) => height - bottom - (value / (y.marks?.at(-1) || 1)) * (height - top - bottom);
  for (const mark of y.marks ?? []) {
    picture.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: toY(mark), y2: toY(mark) }));
    picture.append(svg("text", { class: "tick end", x: left - 8, y: toY(mark) + 5 }, formatFigure(mark)));
  }
  for (const mark of x.marks)
    picture.append(svg("text", { class: "tick middle", x: toX(mark), y: height - bottom + 18 }, formatFigure(mark)));
  picture.append(svg("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }));
  picture.append(svg("text", { class: "axis-words middle", x: (left + width - right) / 2, y: height - 6 }, x.words));
  if (y.words) {
    const transform = `translate(14 ${(top + height - bottom) / 2}) rotate(-90)`;
    picture.append(svg("text", { class: "axis-words middle", transform }, y.words));
  }
  return [toX, toY];
}

// Draws a row of bars for each lane, all on one axis, with the lane's name on the left and a figure on the right.
// `nameWidth` is the width of the names' column, `rowHeight` the height of a full bar, `figures(lane)` the text on the
// right. `bars(lane)` are {from, to, share}: their extent on the axis, and their height as a share of a full bar;
// `words` is the tooltip; `kind`, `gap` and `onClick` are optional. Returns the picture's height.
export function drawRows(picture, width, lanes, x, rowHeight, { nameWidth = 116, figures, bars }) {
  const step = rowHeight + 12;
  const height = PLOT.top + lanes.length * step + PLOT.bottom;
  const [toX] = drawAxes(picture, width - FIGURE_PX, x, { left: nameWidth }, height);
  lanes.forEach((lane, index) => {
    const base = PLOT.top + index * step + rowHeight;
    const group = svg("g", { class: "bars", "data-hue": hueOf(lane), "data-lane": lane.lane });
    group.append(svg("line", { class: "grid", x1: nameWidth, x2: width - FIGURE_PX - PLOT.right, y1: base, y2: base }));
    group.append(svg("text", { class: "label end", x: nameWidth - 10, y: base - rowHeight / 2 + 5 }, labelOf(lane)));
    for (const bar of bars(lane)) {
      const [from, to] = [toX(bar.from), toX(bar.to)];
      const box = svg("rect", {
        class: bar.kind ?? "bar",
        x: from,
        width: Math.max(0.5, to - from - (bar.gap ?? 0)),
        y: base - rowHeight * bar.share,
        height: Math.max(rowHeight * bar.share, 0),
      });
      box.append(svg("title", {}, bar.words));
      if (bar.onClick) box.addEventListener("click", bar.onClick);
      group.append(box);
    }
    group.append(
      svg("text", { class: "tick", x: width - FIGURE_PX - PLOT.right + 8, y: base - rowHeight / 2 + 5 }, figures(lane)),
    );
    picture.append(group);
  });
  return height;
}
