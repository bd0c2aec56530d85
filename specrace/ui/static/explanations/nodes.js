// Draws a scene's draft tree at one moment of the slow motion: draft tokens arrive (while they move, picture.js draws
// them as "ghosts"), the model's pass sweeps over them, and rejected ones fall. `done` has the share of each phase that
// is over (`readTime` in picture.js); `places` is the layout (`placeScene` there).
import { svg } from "../lib/dom.js";
import { measure, NODE_PX, SIZE, TAG_PX } from "./layout.js";
import { between, layer, ramp, TINT, drawText } from "./draw_svg.js";

const FALL_PX = 90;
const EDGE_PX = 9;
// From the top of a box to the baseline of its text.
const BASELINE_PX = 33;

// When draft token `index` of `count` starts to move and when it lands, as shares of the draft phase. These shares, and
// those below, are guesses at what looks well.
export function landing(index, count) {
  const start = 0.05 + (0.55 * index) / count;
  return [start, start + 0.34];
}

// Where a node's text begins.
export function textStartOf(node, scale) {
  return { x: node.x + (node.width - scale * measure(node.label)) / 2, y: node.y + BASELINE_PX * scale };
}

// Where the text of a tag begins: the model's own token, below its node.
export function tagStartOf(node, scale) {
  return {
    x: node.x + (node.tag.width - scale * measure(node.tag.label)) / 2,
    y: node.y + (NODE_PX + BASELINE_PX) * scale,
  };
}

export function drawTree({ places, theme, done }) {
  const { tree } = places;
  const group = layer(1 - ramp(done.cost, 0, 0.12), "tree");
  if (done.cost >= 0.12) return group;
  const byNode = new Map(tree.nodes.map((node) => [node.node, node]));
  tree.nodes.forEach((node, index) => {
    const [, landed] = landing(index, tree.nodes.length);
    // The root, which is the pending token, is there from the beginning of the draft phase.
    const appeared = node.node ? ramp(done.draft, landed, landed + 0.02) : Math.ceil(done.draft);
    if (!appeared) {
      group.append(drawPlace(node, tree.scale, theme));
      return;
    }
    const edgeOpacity = appeared * (1 - Math.min(1, 4 * fallOf(node, done)));
    if (node.node) group.append(drawEdge(byNode.get(node.parent), node, tree.scale, theme, edgeOpacity));
    group.append(drawNode(node, tree.scale, theme, done, appeared));
  });
  if (!done.draft) return group;
  if (tree.omitted) group.append(drawOmitted(places, theme, done));
  if (done.verify) group.append(drawSweep(places, theme, done.verify));
  for (const node of tree.nodes) if (node.tag) group.append(drawTag(node, places, theme, done));
  return group;
}

// The empty place of a token that has not arrived.
function drawPlace({ x, y, width }, scale, { dim }) {
  const look = { rx: 5, fill: "none", stroke: dim, "stroke-width": 2, "stroke-dasharray": "5 4" };
  return svg("rect", { x, y, width, height: NODE_PX * scale, ...look });
}

function drawOmitted({ tree, width, side }, theme, done) {
  const text = `+ ${tree.omitted} more draft tokens`;
  return drawText(text, width - side, tree.y + tree.height + 26, theme.dim, {
    "font-size": 24,
    "text-anchor": "end",
    opacity: ramp(done.draft, 0.8, 1),
  });
}

// How far a rejected draft token has fallen: 0 to 1.
function fallOf(node, done) {
  return node.kind === "accepted" || !node.node ? 0 : ramp(done.accept, 0.3, 0.75);
}

function drawEdge(parent, child, scale, theme, opacity) {
  const middle = (NODE_PX / 2) * scale;
  const from = { x: parent.x + parent.width, y: parent.y + middle };
  const to = { x: child.x, y: child.y + middle };
  const d =
    parent.band === child.band
      ? `M${from.x} ${from.y}H${to.x - EDGE_PX}V${to.y}H${to.x}`
      : `M${from.x} ${from.y}h12M${to.x - 12} ${to.y}h12`;
  return svg("path", { d, fill: "none", stroke: theme.proposed, "stroke-width": 2, opacity });
}

// How the nodes of each kind are drawn.
const LOOKS = {
  root: ({ ink }) => ({ stroke: ink, fill: "none", text: ink }),
  proposed: ({ proposed }) => ({ stroke: proposed, fill: "none", text: proposed, dashes: "5 4", style: "italic" }),
  accepted: ({ accepted, ink }) => ({ stroke: accepted, fill: accepted, text: ink }),
  rejected: ({ rejected }) => ({ stroke: rejected, fill: "none", text: rejected, struck: true }),
};

// A draft token is proposed until the verdict. Tokens after a rejected one count as rejected too.
function kindOf({ node, kind }, done) {
  if (!node) return "root";
  if (done.accept <= 0.05) return "proposed";
  return kind === "accepted" ? "accepted" : "rejected";
}

function drawNode(node, scale, theme, done, appeared) {
  const kind = kindOf(node, done);
  const look = LOOKS[kind](theme);
  const fall = fallOf(node, done);
  const opacity = node.kind === "accepted" ? 1 - 0.65 * ramp(done.accept, 0.25, 0.5) : 1 - fall;
  const width = node.width / scale;
  const group = svg("g", {
    "data-node": node.node,
    "data-kind": kind,
    opacity: (appeared * opacity).toFixed(3),
    transform: `translate(${node.x} ${node.y + FALL_PX * fall}) scale(${scale})`,
  });
  group.append(
    svg("rect", {
      width,
      height: NODE_PX,
      rx: 5,
      fill: look.fill,
      "fill-opacity": TINT,
      stroke: look.stroke,
      "stroke-width": 2,
      "stroke-dasharray": look.dashes ?? "none",
    }),
    drawText(node.label, width / 2, BASELINE_PX, look.text, {
      "text-anchor": "middle",
      "font-style": look.style ?? "normal",
    }),
  );
  if (look.struck) group.append(svg("path", { d: `M5 25H${width - 5}`, stroke: look.stroke, "stroke-width": 3 }));
  return group;
}

// Draws the model's pass: a bar that sweeps over all nodes.
function drawSweep({ tree, width, side }, theme, share) {
  const group = layer(1 - ramp(share, 0.5, 0.6), "sweep");
  if (share >= 0.6) return group;
  const x = between(side - 30, width - side, ramp(share, 0.05, 0.5));
  const [y, height] = [tree.y - 12, tree.height + 24];
  group.append(
    svg("rect", { x: side - 8, y, width: Math.max(0, x - side + 8), height, fill: theme.ink, "fill-opacity": 0.05 }),
    svg("rect", { x, y, width: 12, height, rx: 6, fill: theme.ink }),
  );
  return group;
}

// Draws the model's own token below a node of the path once the bar has passed. The last of them moves into the text.
function drawTag(node, { tree, width, side }, theme, done) {
  const { scale } = tree;
  // Where the node is between the picture's sides, 0 to 1: the bar passes nodes further right later.
  const across = (node.x - side) / (width - 2 * side);
  const shown = ramp(done.verify, 0.08 + 0.4 * across, 0.14 + 0.4 * across);
  const faded = node.last ? ramp(done.accept, 0.52, 0.58) : ramp(done.accept, 0.2, 0.4);
  const group = layer(shown * (1 - faded), "own");
  if (!shown || faded === 1) return group;
  const tagWidth = node.tag.width / scale;
  group.setAttribute("transform", `translate(${node.x} ${node.y + NODE_PX * scale}) scale(${scale})`);
  group.append(
    svg("path", { d: "M10 5l8 -9l8 9z", fill: theme.ink }),
    svg("rect", { y: 4, width: tagWidth, height: TAG_PX - 2, rx: 5, fill: theme.ink }),
    drawText(node.tag.label, tagWidth / 2, BASELINE_PX, theme.card, { "text-anchor": "middle" }),
  );
  // The model's token differs from every draft token that follows this node.
  const differs = node.last && tree.nodes.some(({ parent }) => parent === node.node);
  if (differs)
    group.append(
      drawText("≠", tagWidth + 4, 32, theme.rejected, { "font-weight": 700, opacity: ramp(done.verify, 0.6, 0.7) }),
    );
  return group;
}

// Draws the legend for the model's own tokens.
export function drawLegend({ places, theme, done }) {
  const group = layer(ramp(done.verify, 0.3, 0.45) * (1 - ramp(done.cost, 0, 0.1)), "key");
  if (done.verify < 0.3 || done.cost >= 0.1) return group;
  const y = places.height - 54;
  group.append(
    svg("rect", { x: places.side, y, width: 44, height: 30, rx: 5, fill: theme.ink }),
    drawText("predicted by the model itself", places.side + 58, y + 25, theme.dim, { "font-size": SIZE }),
  );
  return group;
}
