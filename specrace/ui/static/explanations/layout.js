// The layout of a scene in a picture of fixed size: text in lines, and the draft tree in bands of columns. A scene is
// all that the pictures of one step show (scenes.js). A token's `label` is its text as it is drawn; a node's `tag` is
// the model's own token after it, drawn below the node.
import { shorten } from "../lib/format.js";
import { visibleText } from "../lib/pieces.js";
import { chooseNodes, nodeKinds } from "../inspector/tree.js";

export const FONT = '"Source Sans Pro", system-ui, sans-serif';
// In pixels: the usual letter size, the height of a node, and that of a tag.
export const SIZE = 30;
export const NODE_PX = 46;
export const TAG_PX = 40;
const ROW_PX = 54;
const GAP_PX = 20;
const BAND_GAP_PX = 18;
// The room between a box's side and its text.
export const PAD_PX = 9;
const MAX_LETTERS = 16;
const MAX_TOKENS = 120;
// The labels of a token without visible text, and of the end of the answer.
const NOTHING = "·";
const END = "end";
// Matches a letter of a script that is written from right to left.
const RIGHT_TO_LEFT = /[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u;
// Matches a Latin, Greek or Cyrillic letter or a digit.
const LEFT_TO_RIGHT = /[\p{Script=Latin}\p{Script=Greek}\p{Script=Cyrillic}\p{N}]/u;
// The smallest width of a box.
const MIN_PX = 44;
// Sizes of a node relative to the text. At the smallest, letters are still 24 px high.
const SCALES = [1.3, 1.15, 1, 0.9, 0.8];
// The largest number of nodes, and the smaller numbers to try if a tree does not fit.
const NODE_LIMITS = [40, 32, 28, 24, 21, 18, 16, 14, 12, 10, 8, 6, 5, 4, 3, 2];

// A canvas on which nothing is drawn: it measures texts.
const ruler = document.createElement("canvas").getContext("2d");

export function measure(text, size = SIZE, weight = 400) {
  ruler.font = `${weight} ${size}px ${FONT}`;
  return ruler.measureText(text).width;
}

// Breaks a sentence between words into lines of at most `width`.
export function breakLines(text, width, size, weight) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
    if (!lines.at(-1) || measure(longer, size, weight) <= width) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

// The label of a token in a box, where a line break or a blank is drawn as a sign.
export function labelOf(text) {
  if (!text) return "";
  return text.trim() ? shorten(text, MAX_LETTERS) : shorten(text);
}

// The label of a token in a line, where a blank is only a gap.
function labelInLine({ text, whole }) {
  if (whole) return text;
  return text.trim() || text.includes("\n") ? labelOf(text) : "";
}

// Sets tokens in lines of `width` without breaking words: each token gets `x`, `width`, `line` and `label`.
// Its `pad` is room around the text, in pixels; `apart`: it begins a word; `whole`: its text is not shortened.
export function flow(tokens, width, size = SIZE) {
  const blank = measure(" ", size);
  const words = [];
  for (const token of tokens.filter(({ text }) => text)) {
    const label = labelInLine(token);
    const placed = { ...token, label, width: measure(label, size) + (token.pad ?? 0) };
    if (!words.length || startsWord(token)) words.push([]);
    words.at(-1).push(placed);
  }
  let x = 0;
  let line = 0;
  for (const word of words) {
    const wordWidth = word.reduce((sum, token) => sum + token.width, 0);
    x += x ? blank : 0;
    if (x && x + wordWidth > width) [x, line] = [0, line + 1];
    for (const token of word) {
      if (x && x + token.width > width) [x, line] = [0, line + 1];
      Object.assign(token, { x, line });
      x += token.width;
    }
  }
  const placed = words.flat();
  if (isRightToLeft(placed.map(({ text }) => text).join(""))) mirror(placed, width);
  return { tokens: placed, lines: words.length ? line + 1 : 0 };
}

// Whether a text runs from right to left: the script of its first letter decides.
export function isRightToLeft(text) {
  return RIGHT_TO_LEFT.test(/\p{L}/u.exec(text)?.[0] ?? "");
}

// Sets placed tokens from right to left. Neighbours in a left-to-right script, such as the words of an English name,
// keep their order.
function mirror(tokens, width) {
  let neighbours = [];
  const turn = (left, right, list) => {
    for (const token of list) token.x = left + right - token.x - token.width;
  };
  turn(0, width, tokens);
  for (const [index, token] of tokens.entries()) {
    neighbours.push(token);
    const next = tokens[index + 1];
    if (next?.line === token.line && [token, next].every(({ text }) => LEFT_TO_RIGHT.test(text))) continue;
    // All tokens are mirrored already, so the last of the neighbours is at their left end.
    const [first, last] = [neighbours[0], neighbours.at(-1)];
    turn(last.x, first.x + first.width, neighbours.length > 1 ? neighbours : []);
    neighbours = [];
  }
}

function startsWord({ text, apart }) {
  return Boolean(apart) || /^\s/.test(text);
}

// Sets the text above the tree in at most `maxLines` lines: the text so far (`written`), the pending token and what the
// step adds: the accepted tokens (`run`) and the bonus token. If that does not fit, cuts its beginning.
export function flowStrip(scene, width, maxLines) {
  const framed = { pad: 2 * PAD_PX, apart: true };
  const all = scene.written.filter(Boolean).map((text) => ({ text, kind: "written" }));
  if (scene.pending.trim()) all.push({ text: scene.pending, kind: "pending", ...framed });
  for (const token of scene.run) all.push({ ...token, kind: "accepted" });
  if (scene.bonus) all.push({ text: scene.bonus, kind: "bonus", ...framed });
  for (let count = Math.min(all.length, MAX_TOKENS); ; count--) {
    const shown = all.slice(all.length - count);
    if (count > 1 && count < all.length && !startsWord(shown[0])) continue;
    const start = count < all.length ? [{ text: "…", kind: "written" }] : [];
    const strip = flow([...start, ...shown], width);
    if (strip.lines <= maxLines || count <= 1) return strip;
  }
}

// Lays out the tree, with the accepted path as its top row. Columns are depths; those that do not fit into `width`
// continue in a band below. The tree is drawn at the largest scale that fits into `height`. If none fits, nodes are
// left out, and `omitted` counts them. Returns {nodes, omitted, bands, height, scale}.
export function placeTree(scene, width, height) {
  const largest = SCALES.map((scale) => placeNodes(scene, scene.drafted + 1, width, scale)).find(
    (tree) => tree.height <= height,
  );
  if (largest && !largest.omitted) return largest;
  for (const maxNodes of NODE_LIMITS) {
    const cut = placeNodes(scene, maxNodes, width, SCALES.at(-1));
    if (cut.height <= height || maxNodes === NODE_LIMITS.at(-1)) return cut;
  }
}

// Places at most `maxNodes` nodes at one scale, in as many bands as they need.
function placeNodes(scene, maxNodes, width, scale) {
  const nodes = describeNodes(scene, chooseNodes(scene.event, Math.min(maxNodes, NODE_LIMITS[0])), scale);
  setRows(nodes);
  const columns = [];
  for (const node of nodes) columns[node.depth] = Math.max(columns[node.depth] ?? 0, node.width, node.tag?.width ?? 0);
  const bands = [[]];
  let x = 0;
  columns.forEach((columnWidth, depth) => {
    if (x && x + columnWidth > width) {
      bands.push([]);
      x = 0;
    }
    bands.at(-1).push({ depth, x });
    x += columnWidth + GAP_PX * scale;
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
    omitted: scene.drafted + 1 - nodes.length,
  };
}

// Places the nodes of a band below `top`. Returns the band's height.
function placeBand(nodes, band, number, top, scale) {
  const xs = new Map(band.map(({ depth, x }) => [depth, x]));
  const inBand = nodes.filter(({ depth }) => xs.has(depth));
  const rows = [...new Set(inBand.map(({ row }) => row))].sort((a, b) => a - b);
  // Only the top row, the accepted path, has tags.
  const tagHeight = inBand.some((node) => node.tag) ? (TAG_PX + 4) * scale : 0;
  const yOf = (index) => top + index * ROW_PX * scale + (index ? tagHeight : 0);
  for (const node of inBand)
    Object.assign(node, { x: xs.get(node.depth), y: yOf(rows.indexOf(node.row)), band: number });
  return yOf(rows.length - 1) + NODE_PX * scale - top + (rows.length === 1 ? tagHeight : 0);
}

// The chosen nodes as they are drawn. `last`: the node is the end of the accepted path.
function describeNodes({ event, path, run, bonus }, chosen, scale) {
  const kinds = nodeKinds(event);
  // The model's own token after each node of the path.
  const predicted = new Map(path.map((node, index) => [node, run[index]?.text ?? bonus]));
  const widthOf = (label) => scale * Math.max(MIN_PX, measure(label) + 2 * PAD_PX);
  const list = chosen.map((node) => {
    const label = labelOf(visibleText(event.pieces[node])) || NOTHING;
    const token = predicted.get(node);
    const tag = token === undefined ? undefined : { label: labelOf(token) || END };
    if (tag) tag.width = widthOf(tag.label);
    const last = node === path.at(-1);
    return { node, label, width: widthOf(label), tag, last, parent: event.tree.parents[node], kind: kinds[node] };
  });
  const byNode = new Map(list.map((described) => [described.node, described]));
  for (const described of list) described.depth = described.node ? byNode.get(described.parent).depth + 1 : 0;
  return list;
}

// The accepted child, or else the first one, is in its parent's row. The other children get new rows below.
function setRows(nodes) {
  let rows = 0;
  const setRow = (node, row) => {
    node.row = row;
    const children = nodes.filter(({ parent }) => parent === node.node);
    children.sort((a, b) => Number(b.kind === "accepted") - Number(a.kind === "accepted"));
    children.forEach((child, index) => setRow(child, index ? ++rows : row));
  };
  setRow(nodes[0], 0);
}
