// The attention mask of one step.
/** @import { Step } from "../lib/wire.d.ts" */
import { svg } from "../lib/dom.js";
import { shorten } from "../lib/format.js";
import { chooseNodes, nodeKinds, TREE_NODES } from "./tree.js";

// Draws the mask: row i is filled at the nodes that node i attends to, itself and its ancestors.
/** @param {Step} event */
export function drawMask(event) {
  const nodes = chooseNodes(event, TREE_NODES);
  const columns = new Map(nodes.map((node, index) => [node, index]));
  const kinds = nodeKinds(event);
  // In pixels: the side of a cell, and the column of the marks at the accepted rows.
  const cellPx = nodes.length > 20 ? 8 : 11;
  const left = 14;
  const side = left + nodes.length * cellPx + 1;
  const label = `Attention mask of ${nodes.length} nodes`;
  const picture = svg("svg", { class: "mask", width: side, height: side - left + 1, role: "img", "aria-label": label });
  picture.append(
    svg("rect", { class: "frame", x: left, y: 0.5, width: nodes.length * cellPx, height: nodes.length * cellPx }),
  );
  nodes.forEach((node, row) => {
    const group = svg("g", { class: `row ${kinds[node]}`, "data-node": node });
    const attended = [];
    for (let ancestor = node; ancestor >= 0; ancestor = event.tree.parents[ancestor]) attended.push(ancestor);
    const cells = attended.map(
      (column) =>
        `M${left + columns.get(column) * cellPx + 1} ${row * cellPx + 1.5}h${cellPx - 1}v${cellPx - 1}h${1 - cellPx}z`,
    );
    const path = attended.reverse().map((ancestor) => shorten(event.pieces[ancestor] ?? ""));
    group.append(
      svg(
        "title",
        {},
        path.length > 1 ? `${path.at(-1)} sees ${path.slice(0, -1).join(" → ")} and itself` : `${path[0]} sees itself`,
      ),
    );
    group.append(svg("path", { d: cells.join("") }));
    if (kinds[node] === "accepted")
      group.append(
        svg("path", { class: "tick", d: `M2 ${row * cellPx + 2}l7 ${(cellPx - 2) / 2}l-7 ${(cellPx - 2) / 2}z` }),
      );
    picture.append(group);
  });
  return picture;
}
