// The draft tree of one step, as a picture from left to right.
import { svg } from "./dom.js";
import { percent, shorten } from "./format.js";

export const TREE_NODES = 32;
export const NODE_PX = 38;
const DEPTHS_PX = 22;
const ROW_PX = 44;
export const NODE_WORDS = {
  root: "the pending token: printed already, not yet read by the model",
  accepted: "drafted and accepted",
  rejected: "drafted, but the model predicted another token here",
  unverified: "drafted after a rejected token, so never reached",
  cut: "drafted and accepted, but the output had ended",
  bonus: "the model's own token, one a step",
};

// What became of every node of a step's tree.
export function judge(event) {
  const { parents } = event.tree;
  const path = new Set(event.verdict.path);
  const last = Math.min(event.verdict.path.length - 1, event.emitted.length);
  return parents.map((parent, node) => {
    if (!node) return "root";
    if (path.has(node)) return event.verdict.path.indexOf(node) <= last ? "accepted" : "cut";
    return path.has(parent) ? "rejected" : "unverified";
  });
}

// At most `most` nodes, the accepted path among them; a node's parent always is, for parents have lower numbers.
export function chooseNodes(event, most) {
  const path = event.verdict.path.slice(0, most);
  const chosen = new Set(path);
  for (let node = 0; node < event.tree.parents.length && chosen.size < most; node++) {
    if (chosen.has(event.tree.parents[node])) chosen.add(node);
  }
  return [...chosen].sort((a, b) => a - b);
}

// How often the drafter had seen each node: as it noted, or as its table's rows for a chain have it. A node that was
// sampled from a row has its probability instead.
export function countNodes({ tree, note, checks }) {
  if (note?.counts?.length) return note.counts;
  const rows = (note?.rows ?? []).filter((row) => row.counts?.length);
  if (!rows.length || checks?.length) return [];
  return tree.tokens.map((token, node) => rows[node - 1]?.counts[rows[node - 1].tokens.indexOf(token)]);
}

const ruler = document.createElement("canvas").getContext("2d");

function textWidth(text, font) {
  ruler.font = font;
  return ruler.measureText(text).width;
}

export class Tree {
  // `following`: the lane's next step, whose pending token is this step's bonus.
  constructor(event, following) {
    const kinds = judge(event);
    const { probs, parents } = event.tree;
    const counts = countNodes(event);
    const telling = probs?.some((prob, node) => node && prob !== 1);
    this.nodes = chooseNodes(event, TREE_NODES).map((node) => {
      const count = node && counts[node] !== undefined ? `${counts[node]}×` : "";
      const prob = telling && node && !(count && !event.note.counts.length) ? percent(probs[node]) : "";
      const piece = event.pieces[node] ?? "";
      return { node, parent: parents[node], kind: kinds[node], piece, small: count || prob, prob, count };
    });
    this.left = parents.length - this.nodes.length;
    this.addBonus(event, following);
    this.place();
  }

  addBonus(event, following) {
    const { path } = event.verdict;
    // The end of a very long path is not drawn, nor what follows it.
    if (event.emitted.length < path.length || path.length > TREE_NODES) return;
    const said = event.texts[path.length - 1] ?? "";
    const piece = following?.pieces[0] || said || (event.end === "eos" ? "end" : "·");
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

  // Tidy, left to right: leaves one below the other, a parent in the middle of its children.
  place() {
    const byNode = new Map(this.nodes.map((each) => [each.node, each]));
    const widths = [];
    for (const each of this.nodes) {
      each.children = [];
      const parent = byNode.get(each.parent);
      each.depth = parent ? parent.depth + 1 : 0;
      parent?.children.push(each);
      each.text = each.kind === "bonus" && !each.piece.trim() ? "·" : shorten(each.piece);
      each.mark = each.kind === "rejected" ? "× " : "";
      each.width =
        Math.max(
          textWidth(each.mark + each.text, "16px Source Sans Pro, sans-serif"),
          textWidth(each.small, "13px Source Sans Pro, sans-serif"),
        ) + 18;
      widths[each.depth] = Math.max(widths[each.depth] ?? 0, each.width);
    }
    const lefts = [2];
    for (const [depth, width] of widths.entries()) lefts.push(lefts[depth] + width + DEPTHS_PX);
    let row = 0;
    const settle = (each) => {
      each.children.forEach(settle);
      each.x = lefts[each.depth];
      const ends = [each.children[0], each.children.at(-1)];
      each.y = each.children.length ? (ends[0].y + ends[1].y) / 2 : ROW_PX * row++;
    };
    settle(this.nodes[0]);
    this.width = lefts.at(-1) - DEPTHS_PX + 4;
    this.height = ROW_PX * row + 2;
  }

  draw(words) {
    const picture = svg("svg", {
      width: Math.ceil(this.width),
      height: Math.ceil(this.height),
      role: "img",
      "aria-label": words,
    });
    const byNode = new Map(this.nodes.map((each) => [each.node, each]));
    for (const each of this.nodes.slice(1)) picture.append(this.edge(byNode.get(each.parent), each));
    for (const each of this.nodes) picture.append(this.box(each));
    return picture;
  }

  edge(parent, child) {
    const [x0, y0, x1, y1] = [parent.x + parent.width, parent.y + NODE_PX / 2, child.x, child.y + NODE_PX / 2];
    const middle = x1 - DEPTHS_PX / 2;
    return svg("path", {
      class: `edge ${child.kind}`,
      d: `M${x0} ${y0}H${middle - 6}C${middle + 4} ${y0} ${middle - 6} ${y1} ${x1} ${y1}`,
    });
  }

  box(each) {
    const group = svg("g", {
      class: `node ${each.kind}`,
      transform: `translate(${each.x} ${each.y})`,
      "data-node": each.node,
    });
    const facts = [each.count && `seen ${each.count}`, each.prob && `probability ${each.prob}`]
      .filter(Boolean)
      .join(", ");
    const shown = JSON.stringify(each.piece.length > 200 ? `${each.piece.slice(0, 200)}…` : each.piece);
    group.append(svg("title", {}, `${shown}: ${NODE_WORDS[each.kind]}${facts ? ` (${facts})` : ""}`));
    group.append(svg("rect", { width: each.width, height: NODE_PX, rx: 4 }));
    if (each.kind === "accepted")
      group.append(svg("path", { class: "bars", d: `M1.5 0V${NODE_PX - 1.5}H${each.width - 1.5}V0` }));
    const piece = svg("text", { class: "piece", x: each.width / 2, y: each.small ? 17 : 24 });
    // The cross is not struck through: of a token of one letter nothing else could be read.
    if (each.mark) piece.append(svg("tspan", { class: "cross" }, each.mark));
    piece.append(svg("tspan", { class: "said" }, each.text));
    group.append(piece);
    if (each.small) group.append(svg("text", { class: "small", x: each.width / 2, y: 32 }, each.small));
    return group;
  }
}
