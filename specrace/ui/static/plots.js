// Plots of a finished race, from its own steps, in SVG. A lane is told by its name first and its hue second; every plot
// downloads as PNG and as CSV.
const PLOT = { height: 250, left: 56, right: 16, top: 12, bottom: 44 };
const DASHES = ["", "7 4", "2 4", "12 4", "9 3 2 3", "4 2"];
const KEY_PX = 142, FIGURE_PX = 72;
const SVG_STYLES = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "font-size", "font-weight", "font-family", "text-anchor", "opacity"];

// Round steps from 0 to at least `most`, about `count` of them.
function ticks(most, count = 5) {
  if (!(most > 0)) return [0, 1];
  const raw = most / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= raw * 0.999);
  const marks = [];
  for (let index = 0; index * step < most + step * 0.999; index++) marks.push(Number((index * step).toPrecision(12)));
  return marks;
}

function wholeTicks(most, count) {
  const step = Math.max(1, Math.ceil(ticks(most, count)[1]));
  return Array.from({ length: Math.ceil(most / step) + 1 }, (_, index) => index * step);
}

function figure(value) {
  return Math.abs(value) >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(3)));
}

// Axes with their words and units; gives the two scales.
function drawAxes(picture, width, x, y, height = PLOT.height) {
  const { left, right, top, bottom } = { ...PLOT, left: y.left ?? PLOT.left };
  const toX = (value) => left + (value / (x.marks.at(-1) || 1)) * (width - left - right);
  const toY = (value) => height - bottom - (value / (y.marks?.at(-1) || 1)) * (height - top - bottom);
  for (const mark of y.marks ?? []) {
    picture.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: toY(mark), y2: toY(mark) }));
    picture.append(svg("text", { class: "tick end", x: left - 8, y: toY(mark) + 5 }, figure(mark)));
  }
  for (const mark of x.marks) picture.append(svg("text", { class: "tick middle", x: toX(mark), y: height - bottom + 18 }, figure(mark)));
  picture.append(svg("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }));
  picture.append(svg("text", { class: "axis-words middle", x: (left + width - right) / 2, y: height - 6 }, x.words));
  if (y.words) {
    const place = `translate(14 ${(top + height - bottom) / 2}) rotate(-90)`;
    picture.append(svg("text", { class: "axis-words middle", transform: place }, y.words));
  }
  return [toX, toY];
}

function hueOf(lane) {
  return methods.get(lane.lane)?.hue ?? 7;
}

function downloadBlob(blob, name) {
  const link = make("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// A field that a spreadsheet would take for a formula gets an apostrophe.
function csvField(value) {
  const text = typeof value === "number" ? String(Number(value.toPrecision(9))) : String(value).replace(/^[=+\-@\t\r]/, "'$&");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

class Plot {
  constructor({ name, title, words, columns, rows, draw }) {
    Object.assign(this, { name, columns, rows, paint: draw, width: 0 });
    this.node = make("figure", "plot");
    this.node.dataset.plot = name;
    const head = make("figcaption"), tools = make("span", "tools");
    for (const [format, act] of [["PNG", () => this.savePng()], ["CSV", () => this.saveCsv()]]) {
      const button = make("button", "small-button", format, `Download “${title}” as ${format}`);
      button.type = "button";
      button.setAttribute("aria-label", button.title);
      button.addEventListener("click", act);
      tools.append(button);
    }
    head.append(make("h3", "", title), tools);
    this.canvas = make("div", "canvas");
    this.title = title;
    this.node.append(head, this.canvas, make("p", "", words));
  }

  draw() {
    const width = Math.floor(this.canvas.clientWidth);
    if (!width || width === this.width) return;
    this.width = width;
    const picture = svg("svg", { width, height: PLOT.height, role: "img", "aria-label": this.title });
    const height = this.paint(picture, width) ?? PLOT.height;
    picture.setAttribute("height", height);
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.canvas.replaceChildren(picture);
  }

  saveCsv() {
    const lines = [this.columns, ...this.rows].map((row) => row.map(csvField).join(","));
    downloadBlob(new Blob([`${lines.join("\r\n")}\r\n`], { type: "text/csv" }), `specrace-${this.name}.csv`);
  }

  // The picture as it looks now, at twice its size, on the page's own ground.
  async savePng() {
    const shown = this.canvas.firstElementChild, copy = shown.cloneNode(true), originals = shown.querySelectorAll("*");
    copy.querySelectorAll("*").forEach((node, index) => {
      const style = getComputedStyle(originals[index]);
      for (const name of SVG_STYLES) node.style.setProperty(name, style.getPropertyValue(name));
    });
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
    await image.decode();
    const sheet = document.createElement("canvas"), pen = sheet.getContext("2d");
    sheet.width = 2 * shown.clientWidth;
    sheet.height = 2 * shown.clientHeight;
    pen.fillStyle = getComputedStyle(this.node).backgroundColor;
    pen.fillRect(0, 0, sheet.width, sheet.height);
    pen.drawImage(image, 0, 0, sheet.width, sheet.height);
    sheet.toBlob((blob) => downloadBlob(blob, `specrace-${this.name}.png`), "image/png");
  }
}

// Steps by lane, as the plots use them.
function readLanes(reel) {
  const lanes = reel.head.lanes.map((lane, number) => ({ ...lane, number, steps: [], tokens: 0 }));
  for (const { lane, index, at, event } of reel.steps) {
    const own = lanes[lane], { timing } = event;
    own.steps.push({ step: index, at, from: own.tokens, emitted: event.emitted.length, timing });
    own.tokens += event.emitted.length;
  }
  return lanes;
}

function plotProgress(lanes) {
  const rows = lanes.flatMap((lane) => lane.steps.map((each) => [lane.title, each.step, each.at / 1000, each.from + each.emitted]));
  return new Plot({
    name: "progress", title: "Tokens against race time", columns: ["lane", "step", "race_time_s", "tokens"], rows,
    words: "Every step is a stair, as high as what it wrote. Steeper is faster; at the right, the order in which they were through.",
    draw(picture, width) {
      const marks = ticks(Math.max(...lanes.map((lane) => (lane.steps.at(-1)?.at ?? 0) / 1000)), width < 420 ? 3 : 6);
      const [toX, toY] = drawAxes(picture, width - KEY_PX + 4, { marks, words: "race time (s)" }, { marks: ticks(Math.max(...lanes.map((lane) => lane.tokens))), words: "tokens" });
      const order = [...lanes].sort((a, b) => b.tokens - a.tokens || (a.steps.at(-1)?.at ?? 0) - (b.steps.at(-1)?.at ?? 0));
      lanes.forEach((lane, index) => {
        const last = lane.steps.at(-1);
        if (!last) return;
        const group = svg("g", { class: "line", "data-hue": hueOf(lane), "data-lane": lane.lane });
        const stairs = lane.steps.map((each) => `H${toX(each.at / 1000).toFixed(1)}V${toY(each.from + each.emitted).toFixed(1)}`).join("");
        const dash = DASHES[index % DASHES.length], row = PLOT.top + 12 + 22 * order.indexOf(lane), right = width - KEY_PX;
        group.append(svg("path", { class: "stairs", d: `M${toX(0)} ${toY(0)}${stairs}`, "stroke-dasharray": dash }));
        group.append(svg("circle", { cx: toX(last.at / 1000), cy: toY(lane.tokens), r: 4 }));
        group.append(svg("path", { class: "stairs", d: `M${right} ${row}h28`, "stroke-dasharray": dash }));
        group.append(svg("text", { class: "label", x: right + 34, y: row + 5 }, shorten(lane.title, 15)));
        picture.append(group);
      });
      const cursor = svg("line", { class: "now", y1: PLOT.top, y2: PLOT.height - PLOT.bottom, x1: -9, x2: -9 });
      picture.append(cursor);
      this.point = (at) => [1, 2].forEach((end) => cursor.setAttribute(`x${end}`, toX(at / 1000)));
    },
  });
}

// One small row a lane, all on one axis: its bars, its name on the left and a figure on the right.
function drawRows(picture, width, lanes, x, high, { name = 116, figures, bars }) {
  const step = high + 12, height = PLOT.top + lanes.length * step + PLOT.bottom;
  const [toX] = drawAxes(picture, width - FIGURE_PX, x, { left: name }, height);
  lanes.forEach((lane, index) => {
    const base = PLOT.top + index * step + high;
    const group = svg("g", { class: "bars", "data-hue": hueOf(lane), "data-lane": lane.lane });
    group.append(svg("line", { class: "grid", x1: name, x2: width - FIGURE_PX - PLOT.right, y1: base, y2: base }));
    group.append(svg("text", { class: "label end", x: name - 10, y: base - high / 2 + 5 }, shorten(lane.title, 15)));
    for (const bar of bars(lane)) {
      const [from, to] = [toX(bar.from), toX(bar.to)];
      const box = svg("rect", { class: bar.kind ?? "bar", x: from, width: Math.max(0.5, to - from - (bar.gap ?? 0)), y: base - high * bar.share, height: Math.max(high * bar.share, 0) });
      box.append(svg("title", {}, bar.words));
      if (bar.act) box.addEventListener("click", bar.act);
      group.append(box);
    }
    group.append(svg("text", { class: "tick", x: width - FIGURE_PX - PLOT.right + 8, y: base - high / 2 + 5 }, figures(lane)));
    picture.append(group);
  });
  return height;
}

function plotLengths(lanes) {
  const counts = lanes.map((lane) => {
    const found = [];
    for (const { emitted } of lane.steps) found[emitted] = (found[emitted] ?? 0) + 1;
    return Array.from(found, (count) => count ?? 0);
  });
  const longest = Math.max(2, ...counts.map((count) => count.length - 1));
  const rows = lanes.flatMap((lane, index) => counts[index].map((count, length) => [lane.title, length, count, count / lane.steps.length]).slice(1));
  return new Plot({
    name: "accept-length", title: "Tokens accepted in a step", columns: ["lane", "tokens_in_step", "steps", "share_of_steps"], rows,
    words: "How often a step wrote 1, 2, 3, … tokens, the model's own one included. Full height is every step of the lane.",
    draw: (picture, width) => {
      return drawRows(picture, width, lanes, { marks: wholeTicks(longest + 0.5, width < 420 ? 4 : 8), words: "tokens in a step (right: mean)" }, 30, {
        figures: (lane) => (lane.steps.length ? (lane.tokens / lane.steps.length).toFixed(2) : "–"),
        bars: (lane) => counts[lane.number].map((count, length) => ({
          from: length - 0.42, to: length + 0.42, share: count / lane.steps.length,
          words: `${lane.title}: ${count} of ${lane.steps.length} steps wrote ${length} ${length === 1 ? "token" : "tokens"}`,
        })).filter((bar, length) => length && bar.share),
      });
    },
  });
}

function plotSplit(lanes) {
  const means = lanes.map((lane) => PARTS.map(([part]) => lane.steps.reduce((sum, each) => sum + each.timing[part], 0) / (lane.steps.length || 1)));
  const rows = lanes.map((lane, index) => [lane.title, ...means[index], lane.steps.length]);
  const total = means.map((mean) => mean.reduce((sum, part) => sum + part, 0));
  return new Plot({
    name: "time-split", title: "Where a step's time goes", columns: ["lane", "draft_ms", "model_ms", "cache_ms", "steps"], rows,
    words: "Mean of a lane's steps: drafting (dots), the model (plain), keeping the cache (stripes). Right: drafting's share.",
    draw: (picture, width) => {
      addPatterns(picture);
      return drawRows(picture, width, lanes, { marks: ticks(Math.max(...total), width < 420 ? 3 : 6), words: "time of a step (ms)" }, 18, {
        figures: (lane) => (total[lane.number] ? percent(means[lane.number][0] / total[lane.number]) : "–"),
        bars: (lane) => PARTS.map(([part, name], index) => {
          const from = means[lane.number].slice(0, index).reduce((sum, each) => sum + each, 0);
          return { from, to: from + means[lane.number][index], share: 1, kind: part, words: `${lane.title}, ${name}: ${means[lane.number][index].toFixed(3)} ms a step` };
        }),
      });
    },
  });
}

// Patterns belong to the picture, so that they are in the PNG, too.
function addPatterns(picture) {
  const dots = svg("pattern", { id: "dots", width: 5, height: 5, patternUnits: "userSpaceOnUse" });
  dots.append(svg("circle", { class: "ink", cx: 2.5, cy: 2.5, r: 1.4 }));
  const stripes = svg("pattern", { id: "stripes", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
  stripes.append(svg("rect", { class: "ink", width: 2.2, height: 5 }));
  const defs = svg("defs");
  defs.append(dots, stripes);
  picture.append(defs);
}

function plotAlong(lanes, seek) {
  const rows = lanes.flatMap((lane) => lane.steps.map((each) => [lane.title, each.step, each.from, each.emitted]));
  const most = Math.max(1, ...lanes.flatMap((lane) => lane.steps.map((each) => each.emitted)));
  return new Plot({
    name: "along", title: "Tokens a step, along the answer", columns: ["lane", "step", "first_token", "tokens_in_step"], rows,
    words: `A bar a step, as wide as what it wrote and as high: full height is ${most} tokens. Press one to see its step.`,
    draw: (picture, width) => drawRows(picture, width, lanes, { marks: ticks(Math.max(...lanes.map((lane) => lane.tokens)), width < 420 ? 3 : 6), words: "place in the answer (tokens)" }, 30, {
      figures: (lane) => `${lane.steps.length} steps`,
      bars: (lane) => lane.steps.map((each) => ({
        from: each.from, to: each.from + each.emitted, gap: 0.8, share: each.emitted / most, act: () => seek(lane.number, each.step),
        words: `${lane.title}, step ${each.step + 1}: ${each.emitted} ${each.emitted === 1 ? "token" : "tokens"}`,
      })),
    }),
  });
}

function plotCost(head) {
  const { rows: sizes, ratio, context } = head.cost_curve, longest = sizes.at(-1);
  const lanes = head.lanes.filter((lane) => lane.num_draft && lane.num_draft + 1 <= longest);
  const at = (size) => {
    const right = Math.max(1, sizes.findIndex((each) => each >= size)), [x0, x1] = [sizes[right - 1], sizes[right]];
    return ratio[right - 1] + ((ratio[right] - ratio[right - 1]) * (size - x0)) / (x1 - x0);
  };
  const sizesSaid = head.lanes.filter((lane) => lane.num_draft).map((lane) => `${lane.title} ${lane.num_draft}`).join(", ");
  return new Plot({
    name: "cost-curve", title: "What a larger draft costs here", columns: ["rows", "cost_ratio"], rows: sizes.map((size, index) => [size, ratio[index]]),
    words: `Time of one run of the model over some tokens, against one token${context ? ` (${context} tokens of text before them)` : ""}. Most draft tokens a step: ${sizesSaid || "none"}.`,
    draw(picture, width) {
      const [toX, toY] = drawAxes(picture, width, { marks: wholeTicks(longest, width < 420 ? 4 : 8), words: "tokens in one run of the model" }, { marks: ticks(Math.max(...ratio)), words: "times one token's" });
      picture.append(svg("path", { class: "stairs curve", d: sizes.map((size, index) => `${index ? "L" : "M"}${toX(size)} ${toY(ratio[index])}`).join("") }));
      for (const lane of lanes) {
        const x = toX(lane.num_draft + 1), y = toY(at(lane.num_draft + 1)), group = svg("g", { class: "line", "data-hue": hueOf(lane) });
        group.append(svg("circle", { cx: x, cy: y, r: 5 }), svg("title", {}, `${lane.title}: ${lane.num_draft} draft tokens and the pending one`));
        picture.append(group);
      }
    },
  });
}

class Plots {
  constructor(stage) {
    this.node = make("section", "plots");
    this.node.setAttribute("aria-label", "Plots of the race");
    this.node.hidden = true;
    this.cards = make("div", "plot-cards");
    this.node.append(make("h2", "", "Plots"), this.cards);
    this.list = [];
    const seek = (lane, step) => stage.dispatchEvent(new CustomEvent("seek", { detail: { lane, step } }));
    stage.addEventListener("reel", (event) => this.load(event.detail, seek));
    stage.addEventListener("cursor", (event) => this.point(event.detail));
    new ResizeObserver(() => this.list.forEach((plot) => plot.draw())).observe(this.cards);
  }

  load(reel, seek) {
    this.lanes = readLanes(reel);
    this.list = [plotProgress(this.lanes), plotLengths(this.lanes), plotSplit(this.lanes), plotAlong(this.lanes, seek)];
    if (reel.head.cost_curve) this.list.push(plotCost(reel.head));
    this.cards.replaceChildren(...this.list.map((plot) => plot.node));
    if (!reel.head.cost_curve) this.cards.append(this.uncalibrated(reel.head));
    this.node.hidden = false;
    this.list.forEach((plot) => plot.draw());
  }

  // No curve was measured on this machine; then the methods' own defaults hold.
  uncalibrated(head) {
    const node = make("div", "plot no-curve"), sizes = head.lanes.filter((lane) => lane.num_draft);
    node.append(make("h3", "", "What a larger draft costs here"));
    node.append(make("p", "", "It was not measured on the machine of this race. There, “python -m specrace calibrate” measures it, and drafts that are left on auto get the size that pays."));
    node.append(make("p", "", `Most draft tokens a step in this race: ${sizes.map((lane) => `${lane.title} ${lane.num_draft}`).join(", ") || "none"}.`));
    return node;
  }

  point(detail) {
    const at = this.lanes?.[detail?.lane]?.steps[detail.step]?.at;
    if (at !== undefined) this.list[0].point?.(at);
  }
}
