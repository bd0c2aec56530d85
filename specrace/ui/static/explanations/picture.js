// Draws one moment of a scene, that is of one step in slow motion (scenes.js), as an SVG picture, which depends only on
// the scene, the layout, the time and the colours.
// Its style is in its attributes, not in a style sheet, so that it looks the same when it is saved as a file.
import { svg } from "../lib/dom.js";
import { breakLines, flow, flowStrip, FONT, measure, PAD_PX, placeTree, SIZE } from "./layout.js";
import { drawLegend, drawTree, landing, textStartOf, tagStartOf } from "./nodes.js";
import { between, layer, ramp, TINT, drawText } from "./draw_svg.js";
import { captionsOf, compareTimes } from "./scenes.js";

// [name, length in ms].
/** @type {[string, number][]} */
export const PHASES = [
  ["source", 2600],
  ["draft", 2400],
  ["verify", 2600],
  ["accept", 2800],
  ["cost", 2600],
];
export const LENGTH_MS = PHASES.reduce((sum, [, length]) => sum + length, 0);
// Lengths and sizes in pixels of the picture.
const SIDE = 20;
const CAPTION_SIZE = 34;
const CAPTION_LINE = 42;
const TOP = 64;
const TEXT_LINE = 50;
const LEGEND_PX = 84;
const SOURCE_LINE = 40;
// Pictures narrower than this have a different layout.
const NARROW = 900;
// In the picture's own units: its width in a wide and in an upright area of the page, and its smallest height.
const WIDE_PX = 1280;
const UPRIGHT_PX = 640;
const MIN_HEIGHT = 560;
// Lines of the strip, which is the text above the tree.
const STRIP_LINES = 2;
// At least this many tokens before the step should be shown.
const MIN_BEFORE = 5;
// A source up to this share of the width may be drawn beside the tree.
const MAX_BESIDE = 0.45;

// When a phase begins, in ms.
export function startOf(phase) {
  return PHASES.slice(0, phase).reduce((sum, [, length]) => sum + length, 0);
}

// The index of the phase at a time, and for each phase's name the share of it that is done: 0 before it, 1 after it.
export function readTime(time) {
  const at = Math.min(Math.max(time, 0), LENGTH_MS - 1);
  const shares = PHASES.map(([name, length], phase) => [
    name,
    Math.min(1, Math.max(0, (time - startOf(phase)) / length)),
  ]);
  return { phase: PHASES.findLastIndex((_, phase) => startOf(phase) <= at), done: Object.fromEntries(shares) };
}

// The colours that the page's style gives an element, by name.
export function readTheme(node) {
  const style = getComputedStyle(node);
  const names = ["ink", "dim", "faint", "line", "card", "ground", "accepted", "rejected", "proposed"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim() || "#808080"]));
}

// The layout of a scene in a picture for an area of the page, which the picture is scaled to fit. A low area gets a
// wider picture, because its text could not be set in less than MIN_HEIGHT.
export function fitScene(scene, width, height) {
  const base = width > height ? WIDE_PX : UPRIGHT_PX;
  const scale = Math.max(base / width, MIN_HEIGHT / height);
  return placeScene(scene, Math.round(width * scale), Math.round(height * scale));
}

// The layout of a scene in a picture of this size.
export function placeScene(scene, width, height) {
  const inner = width - 2 * SIDE;
  const captions = captionsOf(scene).map((caption) => breakLines(caption, inner, CAPTION_SIZE, 700));
  const captionLines = Math.max(...captions.map((lines) => lines.length));
  const flowed = chooseStrip(scene, inner - 28, width < NARROW ? 2 : 1);
  const y = TOP + captionLines * CAPTION_LINE;
  const strip = { ...flowed, y, bottom: y + flowed.lines * TEXT_LINE + 12 };
  const source = placeSource(scene.source, inner - 24);
  // A source with several short rows is a table, not a text. It is drawn beside the tree, which then gets the whole
  // height.
  const beside = width >= NARROW && source.words.some(({ line }) => line > 1) && source.width <= MAX_BESIDE * inner;
  const room = beside
    ? { width: inner - source.width - 30, height: height - strip.bottom - LEGEND_PX }
    : { width: inner, height: height - source.height - strip.bottom - 38 };
  Object.assign(
    source,
    beside
      ? { x: width - SIDE - source.width, y: strip.bottom + 14 }
      : { x: SIDE, y: height - source.height - 14, width: inner },
  );
  const tree = placeTree(scene, room.width, room.height);
  tree.y = strip.bottom + 12 + Math.max(0, (room.height - tree.height) / 2);
  for (const node of tree.nodes) {
    node.x += SIDE;
    node.y += tree.y;
  }
  return { width, height, side: SIDE, captions, strip, source, tree };
}

// The text in STRIP_LINES lines, or in one more if too little of the text before the step fits, times `factor`,
// because a narrow picture needs twice the lines.
function chooseStrip(scene, width, factor) {
  const strip = flowStrip(scene, width, STRIP_LINES * factor);
  const before = strip.tokens.filter(({ kind }) => kind === "written").length;
  return before < Math.min(MIN_BEFORE, scene.written.length)
    ? flowStrip(scene, width, (STRIP_LINES + 1) * factor)
    : strip;
}

function placeSource({ name, rows }, width) {
  const words = [];
  // Line 0 is the heading with the source's name.
  let line = 1;
  for (const row of rows) {
    const start = row.name ? [{ text: `${row.name}:`, nodes: [], whole: true }] : [];
    const list = row.words.map((word) => ({ ...word, nodes: word.nodes ?? [], apart: Boolean(start.length) }));
    const placed = flow([...start, ...list], width);
    for (const word of placed.tokens) words.push({ ...word, line: word.line + line });
    line += placed.lines;
  }
  const ends = [measure(`From ${name}`, 24), ...words.map((word) => word.x + word.width)];
  return { name, words, width: Math.max(...ends) + 24, height: line * SOURCE_LINE + 16 };
}

export function drawScene(scene, places, time, theme) {
  const { width, height } = places;
  const { phase, done } = readTime(time);
  const picture = svg("svg", {
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
    role: "img",
    // Letters keep their measured widths in a picture that is scaled down, so that words stay apart.
    "text-rendering": "geometricPrecision",
    "aria-label": captionsOf(scene)[phase],
    "font-family": FONT,
    "font-size": SIZE,
  });
  const moment = { theme, done, places, scene };
  picture.append(
    svg("rect", { width, height, fill: theme.ground }),
    ...drawHeading(moment, phase),
    drawStrip(moment),
    drawSource(moment),
    drawTree(moment),
    drawLegend(moment),
    drawFlights(moment),
    drawCosts(moment),
  );
  return picture;
}

function drawHeading({ scene, places, theme }, phase) {
  const what = scene.accepted ? " · its longest accepted draft" : " · a rejected draft";
  const head = `${scene.title} · step ${scene.step} of ${scene.steps}${places.width < NARROW ? "" : what}`;
  const dots = PHASES.map((_, index) =>
    svg("rect", {
      x: places.width - SIDE - (PHASES.length - index) * 34,
      y: 24,
      width: 26,
      height: 8,
      rx: 4,
      fill: index <= phase ? theme.accepted : theme.line,
    }),
  );
  const caption = places.captions[phase].map((line, index) =>
    drawText(line, SIDE, TOP + 24 + index * CAPTION_LINE, theme.ink, {
      "font-size": CAPTION_SIZE,
      "font-weight": 700,
      "data-part": "caption",
    }),
  );
  return [drawText(head, SIDE, 38, theme.dim, { "font-size": 24 }), ...dots, ...caption];
}

// Draws the text so far. In the accept phase the accepted run is added, and then the model's own token.
function drawStrip({ places, theme, done }) {
  const { strip, width } = places;
  const group = layer(1, "strip");
  group.append(
    svg("rect", {
      x: SIDE,
      y: strip.y,
      width: width - 2 * SIDE,
      height: strip.bottom - strip.y,
      rx: 8,
      fill: theme.card,
      stroke: theme.line,
    }),
  );
  const landed = ramp(done.accept, 0.42, 0.5);
  const added = ramp(done.accept, 0.85, 0.9);
  for (const run of acceptedByLine(strip.tokens)) if (landed) group.append(drawRun(run, strip, theme, landed));
  for (const token of strip.tokens) {
    const { x, y } = tokenStartOf(token, strip);
    const shown = { accepted: landed, bonus: added }[token.kind] ?? 1;
    if (!shown) continue;
    const frame = { x: x - (token.pad ? PAD_PX : 0), y: y - 31, width: token.width, height: 42, rx: 5 };
    if (token.kind === "pending")
      group.append(svg("rect", { ...frame, fill: "none", stroke: theme.ink, "stroke-width": 2, opacity: 1 - landed }));
    if (token.kind === "bonus") group.append(svg("rect", { ...frame, fill: theme.ink, opacity: shown }));
    const fill = token.kind === "bonus" ? theme.card : theme.ink;
    group.append(drawText(token.label, x, y, fill, { opacity: shown, "data-kind": token.kind }));
  }
  return group;
}

// Where a token's text begins.
function tokenStartOf({ x, line, pad = 0 }, strip) {
  return { x: SIDE + 14 + x + pad / 2, y: strip.y + 38 + line * TEXT_LINE };
}

// The accepted tokens in a list for each line, because those of one line share a box.
function acceptedByLine(tokens) {
  const lines = new Map();
  for (const token of tokens)
    if (token.kind === "accepted") lines.set(token.line, [...(lines.get(token.line) ?? []), token]);
  return [...lines.values()];
}

function drawRun(run, strip, theme, shown) {
  // The first token of a right-to-left run is its rightmost one.
  const left = Math.min(...run.map((token) => tokenStartOf(token, strip).x)) - 2;
  const right = Math.max(...run.map((token) => tokenStartOf(token, strip).x + token.width)) + 2;
  const top = tokenStartOf(run[0], strip).y - 31;
  const group = layer(shown, "run");
  group.append(
    svg("rect", { x: left, y: top, width: right - left, height: 42, fill: theme.accepted, "fill-opacity": TINT }),
    svg("path", { d: `M${left} ${top}v42H${right}v-42`, fill: "none", stroke: theme.accepted, "stroke-width": 4 }),
  );
  return group;
}

// Draws the source of the draft, in which the copied words are underlined.
function drawSource({ places, theme, done }) {
  const { source } = places;
  const group = layer(1 - ramp(done.verify, 0, 0.15), "source");
  if (done.verify >= 0.15) return group;
  group.append(
    svg("rect", {
      x: source.x,
      y: source.y,
      width: source.width,
      height: source.height,
      rx: 8,
      fill: theme.card,
      stroke: theme.line,
    }),
    drawText(`From ${source.name}`, source.x + 12, source.y + 34, theme.dim, { "font-size": 24 }),
  );
  const marked = ramp(done.source, 0.3, 0.5);
  for (const word of source.words) {
    const { x, y } = wordStartOf(word, source);
    if (word.nodes.length && marked)
      group.append(
        svg("path", {
          d: `M${x - 1} ${y + 8}h${word.width + 2}`,
          stroke: theme.accepted,
          "stroke-width": 4,
          opacity: marked,
        }),
      );
    group.append(drawText(word.label, x, y, word.nodes.length ? theme.ink : theme.dim));
  }
  return group;
}

function wordStartOf({ x, line }, source) {
  return { x: source.x + 12 + x, y: source.y + 34 + line * SOURCE_LINE };
}

// Draws tokens in motion: from the source to the tree, and from the tree into the text.
function drawFlights({ places, theme, done }) {
  const group = layer(1, "flights");
  if (done.draft > 0 && done.draft < 1) group.append(...drawGhosts(places, theme, done.draft));
  if (done.accept > 0 && done.accept < 1) group.append(...drawSettling(places, theme, done.accept));
  return group;
}

function drawGhosts({ tree, source }, theme, share) {
  return tree.nodes.flatMap((node, index) => {
    const [leaves, lands] = landing(index, tree.nodes.length);
    const progress = ramp(share, leaves, lands);
    if (!node.node || progress <= 0 || progress >= 1) return [];
    const word = source.words.find(({ nodes }) => nodes.includes(node.node));
    const from = word ? wordStartOf(word, source) : { x: source.x + 80, y: source.y + 34 };
    const to = textStartOf(node, tree.scale);
    const y = between(from.y, to.y, progress) - 24 * Math.sin(Math.PI * progress);
    const look = {
      "font-style": "italic",
      "font-size": between(SIZE, SIZE * tree.scale, progress),
      "data-ghost": node.node,
    };
    return [drawText(node.label, between(from.x, to.x, progress), y, theme.proposed, look)];
  });
}

function drawSettling({ tree, strip }, theme, share) {
  const byNode = new Map(tree.nodes.map((node) => [node.node, node]));
  const last = tree.nodes.find((node) => node.tag && node.last);
  const runProgress = ramp(share, 0.15, 0.46);
  const bonusProgress = ramp(share, 0.55, 0.87);
  return strip.tokens.flatMap((token) => {
    const isBonus = token.kind === "bonus";
    if (!isBonus && token.kind !== "accepted") return [];
    const node = isBonus ? last : byNode.get(token.node);
    const progress = isBonus ? bonusProgress : runProgress;
    if (!node || progress <= 0 || progress >= 1) return [];
    const from = isBonus ? tagStartOf(node, tree.scale) : textStartOf(node, tree.scale);
    const to = tokenStartOf(token, strip);
    const look = {
      "font-size": between(SIZE * tree.scale, SIZE, progress),
      "font-weight": isBonus ? 700 : 400,
    };
    return [drawText(token.label, between(from.x, to.x, progress), between(from.y, to.y, progress), theme.ink, look)];
  });
}

// Draws two bars on one scale: this step's time, and the time of single steps for as many tokens.
function drawCosts({ scene, places, theme, done }) {
  const group = layer(ramp(done.cost, 0.08, 0.2), "cost");
  if (!done.cost) return group;
  const { width, height, strip } = places;
  const bars = compareTimes(scene);
  const longest = Math.max(...bars.map(([, time]) => time));
  const now = longest * Math.min(1, done.cost / 0.75);
  const room = Math.min(190, (height - strip.bottom - 40) / 2);
  const barHeight = Math.min(90, room - 76);
  bars.forEach(([text, time], index) => {
    const y = strip.bottom + 36 + index * room;
    const scale = (width - 2 * SIDE) / longest;
    const fill = index ? theme.faint : theme.accepted;
    group.append(
      drawText(text, SIDE, y + 30, theme.ink, { "font-size": 36, "font-weight": 700, "data-part": "time" }),
      svg("rect", {
        x: SIDE,
        y: y + 54,
        width: scale * Math.min(now, time),
        height: barHeight,
        rx: 4,
        fill,
        "data-ms": time,
      }),
    );
    if (!index || scene.emitted < 2) return;
    // Lines divide the second bar into single steps.
    for (let token = 1; token < scene.emitted; token++) {
      const at = (time / scene.emitted) * token;
      if (at < now)
        group.append(
          svg("path", {
            d: `M${SIDE + scale * at} ${y + 54}v${barHeight}`,
            stroke: theme.ground,
            "stroke-width": 3,
          }),
        );
    }
  });
  return group;
}
