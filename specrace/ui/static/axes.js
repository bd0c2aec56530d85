// Axes of a plot, and rows of bars on one of them.
import { svg } from "./dom.js";
import { figure, shorten } from "./format.js";
import { hueOf } from "./lanes.js";

export const PLOT = { height: 250, left: 56, right: 16, top: 12, bottom: 44 };
const FIGURE_PX = 72;

// Round steps from 0 to at least `most`, about `count` of them.
export function ticks(most, count = 5) {
  if (!(most > 0)) return [0, 1];
  const raw = most / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= raw * 0.999);
  const marks = [];
  for (let index = 0; index * step < most + step * 0.999; index++) marks.push(Number((index * step).toPrecision(12)));
  return marks;
}

export function wholeTicks(most, count) {
  const step = Math.max(1, Math.ceil(ticks(most, count)[1]));
  return Array.from({ length: Math.ceil(most / step) + 1 }, (_, index) => index * step);
}

// Axes with their words and units; gives the two scales.
export function drawAxes(picture, width, x, y, height = PLOT.height) {
  const { left, right, top, bottom } = { ...PLOT, left: y.left ?? PLOT.left };
  const toX = (value) => left + (value / (x.marks.at(-1) || 1)) * (width - left - right);
  const toY = (value) => height - bottom - (value / (y.marks?.at(-1) || 1)) * (height - top - bottom);
  for (const mark of y.marks ?? []) {
    picture.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: toY(mark), y2: toY(mark) }));
    picture.append(svg("text", { class: "tick end", x: left - 8, y: toY(mark) + 5 }, figure(mark)));
  }
  for (const mark of x.marks)
    picture.append(svg("text", { class: "tick middle", x: toX(mark), y: height - bottom + 18 }, figure(mark)));
  picture.append(svg("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }));
  picture.append(svg("text", { class: "axis-words middle", x: (left + width - right) / 2, y: height - 6 }, x.words));
  if (y.words) {
    const place = `translate(14 ${(top + height - bottom) / 2}) rotate(-90)`;
    picture.append(svg("text", { class: "axis-words middle", transform: place }, y.words));
  }
  return [toX, toY];
}

// One small row a lane, all on one axis: its bars, its name on the left and a figure on the right.
export function drawRows(picture, width, lanes, x, high, { name = 116, figures, bars }) {
  const step = high + 12;
  const height = PLOT.top + lanes.length * step + PLOT.bottom;
  const [toX] = drawAxes(picture, width - FIGURE_PX, x, { left: name }, height);
  lanes.forEach((lane, index) => {
    const base = PLOT.top + index * step + high;
    const group = svg("g", { class: "bars", "data-hue": hueOf(lane), "data-lane": lane.lane });
    group.append(svg("line", { class: "grid", x1: name, x2: width - FIGURE_PX - PLOT.right, y1: base, y2: base }));
    group.append(svg("text", { class: "label end", x: name - 10, y: base - high / 2 + 5 }, shorten(lane.title, 15)));
    for (const bar of bars(lane)) {
      const [from, to] = [toX(bar.from), toX(bar.to)];
      const box = svg("rect", {
        class: bar.kind ?? "bar",
        x: from,
        width: Math.max(0.5, to - from - (bar.gap ?? 0)),
        y: base - high * bar.share,
        height: Math.max(high * bar.share, 0),
      });
      box.append(svg("title", {}, bar.words));
      if (bar.act) box.addEventListener("click", bar.act);
      group.append(box);
    }
    group.append(
      svg("text", { class: "tick", x: width - FIGURE_PX - PLOT.right + 8, y: base - high / 2 + 5 }, figures(lane)),
    );
    picture.append(group);
  });
  return height;
}
