// Where everything of a scene stands in a picture of a given size: text in lines, and the draft tree in bands of columns.
import { shorten } from "./format.js";
import { readPiece } from "./pieces.js";
import { chooseNodes, judge } from "./tree.js";

export const FONT = '"Source Sans Pro", system-ui, sans-serif';
export const SIZE = 30;
export const NODE_PX = 46;
export const TAG_PX = 40;
const ROW_PX = 54;
const GAP_PX = 20;
const BAND_GAP_PX = 18;
export const PAD_PX = 9;
const LETTERS = 16;
const MAX_TOKENS = 120;
const NOTHING = "·";
const END = "end";
const MIN_PX = 44;
// Of a node, against the text: the smallest still has letters of 24 px.
const SCALES = [1.3, 1.15, 1, 0.9, 0.8];
const MAX_NODES = [40, 32, 28, 24, 21, 18, 16, 14, 12, 10, 8, 6, 5, 4, 3, 2];

const ruler = document.createElement("canvas").getContext("2d");

export function measure(text, size = SIZE, weight = 400) {
  ruler.font = `${weight} ${size}px ${FONT}`;
  return ruler.measureText(text).width;
}

// Words of a sentence in lines of at most `width`.
export function breakLines(text, width, size, weight) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
    if (!lines.at(-1) || measure(longer, size, weight) <= width) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

// A token as it stands in a box; a line break is told by its sign.
export function inkOf(text) {
  return text.trim() ? shorten(text, LETTERS) : text ? shorten(text) : "";
}

// In a line a blank is a gap.
function inkInLine({ text, whole }) {
  if (whole) return text;
  return text.trim() || text.includes("\n") ? inkOf(text) : "";
}

// Tokens one after the other in lines of `width`, words whole: each gets `x`, `width`, `line` and its `ink`.
export function flow(tokens, width, size = SIZE) {
  const blank = measure(" ", size);
  const words = [];
  for (const token of tokens.filter(({ text }) => text)) {
    const ink = inkInLine(token);
    const placed = { ...token, ink, width: measure(ink, size) + (token.pad ?? 0) };
    if (!words.length || startsWord(token)) words.push([]);
    words.at(-1).push(placed);
  }
  let x = 0;
  let line = 0;
  for (const word of words) {
    const wide = word.reduce((sum, token) => sum + token.width, 0);
    x += x ? blank : 0;
    if (x && x + wide > width) [x, line] = [0, line + 1];
    for (const token of word) {
      if (x && x + token.width > width) [x, line] = [0, line + 1];
      Object.assign(token, { x, line });
      x += token.width;
    }
  }
  return { tokens: words.flat(), lines: words.length ? line + 1 : 0 };
}

function startsWord({ text, apart }) {
  return Boolean(apart) || /^\s/.test(text);
}

// The end of the text, the pending token, and what the step adds, in at most so many lines: as much of it as has room.
export function flowStrip(scene, width, most) {
  const framed = { pad: 2 * PAD_PX, apart: true };
  const all = scene.written.filter(Boolean).map((text) => ({ text, kind: "written" }));
  if (scene.pending.trim()) all.push({ text: scene.pending, kind: "pending", ...framed });
  for (const token of scene.run) all.push({ ...token, kind: "accepted" });
  if (scene.bonus) all.push({ text: scene.bonus, kind: "bonus", ...framed });
  for (let left = Math.min(all.length, MAX_TOKENS); ; left--) {
    const shown = all.slice(all.length - left);
    if (left > 1 && left < all.length && !startsWord(shown[0])) continue;
    const start = left < all.length ? [{ text: "…", kind: "written" }] : [];
    const strip = flow([...start, ...shown], width);
    if (strip.lines <= most || left <= 1) return strip;
  }
}

// The tree with the accepted path as its upper line. Columns are depths; what is too wide goes on in a band below. As
// large as it fits into `height`, or else with as many nodes as do: {nodes, left, height, scale}.
export function placeTree(scene, width, height) {
  const found = SCALES.map((scale) => placeNodes(scene, scene.drafted + 1, width, scale)).find(
    (each) => each.height <= height,
  );
  if (found && !found.left) return found;
  for (const most of MAX_NODES) {
    const fewer = placeNodes(scene, most, width, SCALES.at(-1));
    if (fewer.height <= height || most === MAX_NODES.at(-1)) return fewer;
  }
}

function placeNodes(scene, most, width, scale) {
  const nodes = describeNodes(scene, chooseNodes(scene.event, Math.min(most, MAX_NODES[0])), scale);
  setRows(nodes);
  const columns = [];
  for (const each of nodes) columns[each.depth] = Math.max(columns[each.depth] ?? 0, each.width, each.tag?.width ?? 0);
  const bands = [[]];
  let x = 0;
  columns.forEach((wide, depth) => {
    if (x && x + wide > width) {
      bands.push([]);
      x = 0;
    }
    bands.at(-1).push({ depth, x });
    x += wide + GAP_PX * scale;
  });
  let top = 0;
  bands.forEach((band, number) => {
    top += placeBand(nodes, band, number, top, scale) + BAND_GAP_PX * scale;
  });
  return {
    nodes,
    scale,
    bands: bands.length,
    height: top - BAND_GAP_PX * scale,
    left: scene.drafted + 1 - nodes.length,
  };
}

function placeBand(nodes, band, number, top, scale) {
  const xs = new Map(band.map(({ depth, x }) => [depth, x]));
  const mine = nodes.filter(({ depth }) => xs.has(depth));
  const rows = [...new Set(mine.map(({ row }) => row))].sort((a, b) => a - b);
  const tag = mine.some((each) => each.tag) ? (TAG_PX + 4) * scale : 0;
  const yOf = (place) => top + place * ROW_PX * scale + (place ? tag : 0);
  for (const each of mine) Object.assign(each, { x: xs.get(each.depth), y: yOf(rows.indexOf(each.row)), band: number });
  return yOf(rows.length - 1) + NODE_PX * scale - top + (rows.length === 1 ? tag : 0);
}

function describeNodes({ event, path, run, bonus }, chosen, scale) {
  const kinds = judge(event);
  const own = new Map(path.map((node, place) => [node, run[place]?.text ?? bonus]));
  const widthOf = (ink) => scale * Math.max(MIN_PX, measure(ink) + 2 * PAD_PX);
  const list = chosen.map((node) => {
    const ink = inkOf(readPiece(event.pieces[node])) || NOTHING;
    const said = own.get(node);
    const tag = said === undefined ? undefined : { ink: inkOf(said) || END };
    if (tag) tag.width = widthOf(tag.ink);
    const last = node === path.at(-1);
    return { node, ink, width: widthOf(ink), tag, last, parent: event.tree.parents[node], kind: kinds[node] };
  });
  const byNode = new Map(list.map((each) => [each.node, each]));
  for (const each of list) each.depth = each.node ? byNode.get(each.parent).depth + 1 : 0;
  return list;
}

// The accepted child goes on in its parent's row, or else the first one does; the others get rows of their own below.
function setRows(nodes) {
  let rows = 0;
  const settle = (each, row) => {
    each.row = row;
    const children = nodes.filter(({ parent }) => parent === each.node);
    children.sort((a, b) => (b.kind === "accepted") - (a.kind === "accepted"));
    children.forEach((child, place) => settle(child, place ? ++rows : row));
  };
  settle(nodes[0], 0);
}
