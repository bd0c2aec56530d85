// Draws the draft tree of one step, from left to right.
/** @import { Step } from "../lib/wire.d.ts" */
import { svg } from "../lib/dom.js";
import { formatPercent, shorten } from "../lib/format.js";

// Maximum number of nodes that are drawn.
export const TREE_NODES = 32;
export const NODE_PX = 38;
// The gap between the columns of two depths.
const DEPTH_GAP_PX = 22;
const ROW_PX = 44;
export const NODE_WORDS = {
  root: "the pending token: printed already, not yet read by the model",
  accepted: "drafted and accepted",
  rejected: "drafted, but the model predicted another token here",
  unverified: "drafted, but never reached: after a rejected token, or beside an accepted one",
  cut: "drafted and accepted, but the output had ended",
  bonus: "the model's own token, one a step",
};

// For every node of a step's tree, its kind: a key of NODE_WORDS. `checked_nodes`, which only rejection sampling in
// trees has, are the nodes that it tried.
/** @param {Step} event */
export function nodeKinds(event) {
  const { parents } = event.tree;
  const tested = event.checked_nodes;
  const path = new Set(event.verdict.path);
  const last = Math.min(event.verdict.path.length - 1, event.emitted.length);
  return parents.map((parent, node) => {
    if (!node) return "root";
    if (path.has(node)) return event.verdict.path.indexOf(node) <= last ? "accepted" : "cut";
    return path.has(parent) && (!tested || tested.includes(node)) ? "rejected" : "unverified";
  });
}

/**
 * Chooses at most `maxNodes` nodes, beginning with the accepted path. The parent of a chosen node is always chosen too.
 * @param {Step} event
 * @param {number} maxNodes
 */
export function chooseNodes(event, maxNodes) {
  const path = event.verdict.path.slice(0, maxNodes);
  const chosen = new Set(path);
  for (let node = 0; node < event.tree.parents.length && chosen.size < maxNodes; node++) {
    if (chosen.has(event.tree.parents[node])) chosen.add(node);
  }
  return [...chosen].sort((a, b) => a - b);
}

// How often the drafter had seen each node, from its note or, for a chain, from the rows of its table. Sampled nodes
// have a probability instead.
/** @param {Step} event */
export function countNodes({ tree, note, checks }) {
  if (note?.counts?.length) return note.counts;
  const rows = (note?.rows ?? []).filter((row) => row.counts?.length);
  if (!rows.length || checks?.length) return [];
  return tree.tokens.map((token, node) => rows[node - 1]?.counts[rows[node - 1].tokens.indexOf(token)]);
}

// A canvas on which nothing is drawn: it measures texts.
const ruler = document.createElement("canvas").getContext("2d");

function textWidth(text, font) {
  ruler.font = font;
  return ruler.measureText(text).width;
}

/**
 * A node as it is drawn. `small` is the text under its token: `count`, how often the drafter had seen it, or `prob`.
 * @typedef {{
 *   node: number | "bonus", parent: number, kind: string, piece: string, small: string, prob: string, count: string,
 *   children?: DrawnNode[], depth?: number, text?: string, mark?: string, width?: number, x?: number, y?: number,
 * }} DrawnNode
 */

export class Tree {
  // `following` is the lane's next step, whose pending token is this step's bonus token.
  /**
   * @param {Step} event
   * @param {Step | undefined} following
   */
  constructor(event, following) {
    const kinds = nodeKinds(event);
    const { probs, parents } = event.tree;
    const counts = countNodes(event);
    const hasProbs = probs?.some((prob, node) => node && prob !== 1);
    /** @type {DrawnNode[]} */
    this.nodes = chooseNodes(event, TREE_NODES).map((node) => {
      const count = node && counts[node] !== undefined ? `${counts[node]}×` : "";
      // A count from the rows of a table takes the place of the probability; one from the note's counts does not.
      const isTableCount = count && !event.note.counts.length;
      const prob = hasProbs && node && !isTableCount ? formatPercent(probs[node]) : "";
      const piece = event.pieces[node] ?? "";
      return { node, parent: parents[node], kind: kinds[node], piece, small: count || prob, prob, count };
    });
    this.omitted = parents.length - this.nodes.length;
    this.addBonus(event, following);
    this.place();
  }

  /**
   * @param {Step} event
   * @param {Step | undefined} following
   */
  addBonus(event, following) {
    const { path } = event.verdict;
    // An answer that ends inside the path has no bonus token. The end of a very long path is not drawn, nor is the
    // bonus token after it.
    if (event.emitted.length < path.length || path.length > TREE_NODES) return;
    const text = event.texts[path.length - 1] ?? "";
    const piece = following?.pieces[0] || text || (event.end === "eos" ? "end" : "·");
    this.nodes.push({
      node: "bonus",
      parent: path[path.length - 1],
      kind: "bonus",
      piece,
      small: "own",
      prob: "",
      count: "",
    });
  }

  // Lays out the nodes from left to right: leaves are below one another, and a parent is in the middle of its children.
  place() {
    const byNode = new Map(this.nodes.map((node) => [node.node, node]));
    const widths = [];
    for (const node of this.nodes) {
      node.children = [];
      const parent = byNode.get(node.parent);
      node.depth = parent ? parent.depth + 1 : 0;
      parent?.children.push(node);
      node.text = node.kind === "bonus" && !node.piece.trim() ? "·" : shorten(node.piece);
      node.mark = node.kind === "rejected" ? "× " : "";
      node.width =
        Math.max(
          textWidth(node.mark + node.text, "16px Source Sans Pro, sans-serif"),
          textWidth(node.small, "13px Source Sans Pro, sans-serif"),
        ) + 18;
      widths[node.depth] = Math.max(widths[node.depth] ?? 0, node.width);
    }
    const lefts = [2];
    for (const [depth, width] of widths.entries()) lefts.push(lefts[depth] + width + DEPTH_GAP_PX);
    let row = 0;
    const placeNode = (node) => {
      node.children.forEach(placeNode);
      node.x = lefts[node.depth];
      const [first, last] = [node.children[0], node.children.at(-1)];
      node.y = first ? (first.y + last.y) / 2 : ROW_PX * row++;
    };
    placeNode(this.nodes[0]);
    this.width = lefts.at(-1) - DEPTH_GAP_PX + 4;
    this.height = ROW_PX * row + 2;
  }

  draw(label) {
    const picture = svg("svg", {
      width: Math.ceil(this.width),
      height: Math.ceil(this.height),
      role: "img",
      "aria-label": label,
    });
    const byNode = new Map(this.nodes.map((node) => [node.node, node]));
    for (const node of this.nodes.slice(1)) picture.append(this.drawEdge(byNode.get(node.parent), node));
    for (const node of this.nodes) picture.append(this.drawBox(node));
    return picture;
  }

  drawEdge(parent, child) {
    const from = { x: parent.x + parent.width, y: parent.y + NODE_PX / 2 };
    const to = { x: child.x, y: child.y + NODE_PX / 2 };
    const middle = to.x - DEPTH_GAP_PX / 2;
    return svg("path", {
      class: `edge ${child.kind}`,
      d: `M${from.x} ${from.y}H${middle - 6}C${middle + 4} ${from.y} ${middle - 6} ${to.y} ${to.x} ${to.y}`,
    });
  }

  drawBox(node) {
    const group = svg("g", {
      class: `node ${node.kind}`,
      transform: `translate(${node.x} ${node.y})`,
      "data-node": node.node,
    });
    const facts = [node.count && `seen ${node.count}`, node.prob && `probability ${node.prob}`]
      .filter(Boolean)
      .join(", ");
    const shown = JSON.stringify(node.piece.length > 200 ? `${node.piece.slice(0, 200)}…` : node.piece);
    group.append(svg("title", {}, `${shown}: ${NODE_WORDS[node.kind]}${facts ? ` (${facts})` : ""}`));
    group.append(svg("rect", { width: node.width, height: NODE_PX, rx: 4 }));
    if (node.kind === "accepted")
      group.append(svg("path", { class: "bars", d: `M1.5 0V${NODE_PX - 1.5}H${node.width - 1.5}V0` }));
    const piece = svg("text", { class: "piece", x: node.width / 2, y: node.small ? 17 : 24 });
    // The cross is a separate element, which is not struck through: otherwise a token of one letter could not be read.
    if (node.mark) piece.append(svg("tspan", { class: "cross" }, node.mark));
    piece.append(svg("tspan", { class: "said" }, node.text));
    group.append(piece);
    if (node.small) group.append(svg("text", { class: "small", x: node.width / 2, y: 32 }, node.small));
    return group;
  }
}
