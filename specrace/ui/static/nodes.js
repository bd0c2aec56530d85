// The draft tree of a scene at a moment: ghost tokens arrive, the model's pass goes over them, the wrong ones fall.
import { svg } from "./dom.js";
import { measure, NODE_PX, SIZE, TAG_PX } from "./layout.js";
import { between, layer, ramp, TINT, write } from "./draw_svg.js";

const FALL_PX = 90;
const EDGE_PX = 9;

// When a ghost token starts, and when it is in its place, as shares of the phase: one after the other.
export function landing(place, count) {
  const start = 0.05 + (0.55 * place) / count;
  return [start, start + 0.34];
}

// Where the letters of a node begin, and those of the model's own token below it.
export function lettersOf(each, scale) {
  return { x: each.x + (each.width - scale * measure(each.ink)) / 2, y: each.y + 33 * scale };
}

export function ownLettersOf(each, scale) {
  return { x: each.x + (each.tag.width - scale * measure(each.tag.ink)) / 2, y: each.y + (NODE_PX + 33) * scale };
}

export function drawTree({ places, theme, done }) {
  const { tree } = places;
  const group = layer(1 - ramp(done[4], 0, 0.12), "tree");
  if (!done[1] || done[4] >= 0.12) return group;
  const byNode = new Map(tree.nodes.map((each) => [each.node, each]));
  tree.nodes.forEach((each, place) => {
    const [, landed] = landing(place, tree.nodes.length);
    const there = each.node ? ramp(done[1], landed, landed + 0.02) : 1;
    if (!there) return;
    const edge = there * (1 - Math.min(1, 4 * fallOf(each, done)));
    if (each.node) group.append(drawEdge(byNode.get(each.parent), each, tree.scale, theme, edge));
    group.append(drawNode(each, tree.scale, theme, done, there));
  });
  if (tree.left) group.append(drawRest(places, theme, done));
  if (done[2]) group.append(drawSweep(places, theme, done[2]));
  for (const each of tree.nodes) if (each.tag) group.append(drawOwn(each, places, theme, done));
  return group;
}

function drawRest({ tree, width, side }, theme, done) {
  const words = `+ ${tree.left} more draft tokens`;
  return write(words, width - side, tree.y + tree.height + 26, theme.dim, {
    "font-size": 24,
    "text-anchor": "end",
    opacity: ramp(done[1], 0.8, 1),
  });
}

function fallOf(each, done) {
  return each.kind === "accepted" || !each.node ? 0 : ramp(done[3], 0.3, 0.75);
}

function drawEdge(parent, child, scale, theme, opacity) {
  const middle = (NODE_PX / 2) * scale;
  const [x0, y0, x1, y1] = [parent.x + parent.width, parent.y + middle, child.x, child.y + middle];
  const d =
    parent.band === child.band ? `M${x0} ${y0}H${x1 - EDGE_PX}V${y1}H${x1}` : `M${x0} ${y0}h12M${x1 - 12} ${y1}h12`;
  return svg("path", { d, fill: "none", stroke: theme.proposed, "stroke-width": 2, opacity });
}

const LOOKS = {
  root: ({ ink }) => ({ stroke: ink, fill: "none", text: ink }),
  proposed: ({ proposed }) => ({ stroke: proposed, fill: "none", text: proposed, dashes: "5 4", style: "italic" }),
  accepted: ({ accepted, ink }) => ({ stroke: accepted, fill: accepted, text: ink }),
  rejected: ({ rejected }) => ({ stroke: rejected, fill: "none", text: rejected, struck: true }),
};

// Until the verdict a draft token is proposed; what follows a wrong one is rejected with it.
function kindOf({ node, kind }, done) {
  if (!node) return "root";
  if (done[3] <= 0.05) return "proposed";
  return kind === "accepted" ? "accepted" : "rejected";
}

function drawNode(each, scale, theme, done, there) {
  const kind = kindOf(each, done);
  const look = LOOKS[kind](theme);
  const fall = fallOf(each, done);
  const left = each.kind === "accepted" ? 1 - 0.65 * ramp(done[3], 0.25, 0.5) : 1 - fall;
  const wide = each.width / scale;
  const group = svg("g", {
    "data-node": each.node,
    "data-kind": kind,
    opacity: (there * left).toFixed(3),
    transform: `translate(${each.x} ${each.y + FALL_PX * fall}) scale(${scale})`,
  });
  group.append(
    svg("rect", {
      width: wide,
      height: NODE_PX,
      rx: 5,
      fill: look.fill,
      "fill-opacity": TINT,
      stroke: look.stroke,
      "stroke-width": 2,
      "stroke-dasharray": look.dashes ?? "none",
    }),
    write(each.ink, wide / 2, 33, look.text, { "text-anchor": "middle", "font-style": look.style ?? "normal" }),
  );
  if (look.struck) group.append(svg("path", { d: `M5 25H${wide - 5}`, stroke: look.stroke, "stroke-width": 3 }));
  return group;
}

// The model's pass: a bar that goes over all nodes.
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

// The model's own token at a node of the path, once the bar has passed it. The last one goes into the text.
function drawOwn(each, { tree, width, side }, theme, done) {
  const { scale } = tree;
  const passed = (each.x - side) / (width - 2 * side);
  const shown = ramp(done[2], 0.08 + 0.4 * passed, 0.14 + 0.4 * passed);
  const gone = each.last ? ramp(done[3], 0.52, 0.58) : ramp(done[3], 0.2, 0.4);
  const group = layer(shown * (1 - gone), "own");
  if (!shown || gone === 1) return group;
  const wide = each.tag.width / scale;
  group.setAttribute("transform", `translate(${each.x} ${each.y + NODE_PX * scale}) scale(${scale})`);
  group.append(
    svg("path", { d: "M10 5l8 -9l8 9z", fill: theme.ink }),
    svg("rect", { y: 4, width: wide, height: TAG_PX - 2, rx: 5, fill: theme.ink }),
    write(each.tag.ink, wide / 2, 33, theme.card, { "text-anchor": "middle" }),
  );
  const differs = each.last && tree.nodes.some(({ parent }) => parent === each.node);
  if (differs)
    group.append(write("≠", wide + 4, 32, theme.rejected, { "font-weight": 700, opacity: ramp(done[2], 0.6, 0.7) }));
  return group;
}

// What the dark tokens are.
export function drawKey({ places, theme, done }) {
  const group = layer(ramp(done[2], 0.3, 0.45) * (1 - ramp(done[4], 0, 0.1)), "key");
  if (done[2] < 0.3 || done[4] >= 0.1) return group;
  const y = places.height - 54;
  group.append(
    svg("rect", { x: places.side, y, width: 44, height: 30, rx: 5, fill: theme.ink }),
    write("predicted by the model itself", places.side + 58, y + 25, theme.dim, { "font-size": SIZE }),
  );
  return group;
}
