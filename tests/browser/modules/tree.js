import { chooseNodes, countNodes, nodeKinds, Tree } from "../../../specrace/ui/static/inspector/tree.js";
import { EVENT, SHORT_EVENT } from "./fixtures.js";

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "the state of every node": () => [nodeKinds(EVENT), ["root", "accepted", "accepted", "rejected", "unverified"]],
  "beside an accepted token, only tested ones were rejected": () => [
    [
      [1, 2],
      [3, 1, 2],
    ].map((nodes) => nodeKinds({ ...EVENT, checked_nodes: nodes })[3]),
    ["unverified", "rejected"],
  ],
  "an accepted node after the end of the text is cut": () => [nodeKinds(SHORT_EVENT)[2], "cut"],
  "the accepted path is chosen first, and parents with their children": () => [
    [5, 4, 3, 2].map((maxNodes) => chooseNodes(EVENT, maxNodes)),
    [
      [0, 1, 2, 3, 4],
      [0, 1, 2, 3],
      [0, 1, 2],
      [0, 1],
    ],
  ],
  "children are to the right of their parent, which is at their middle": () => {
    const tree = new Tree(EVENT);
    const [root, cat, sat, dog, ran] = [0, 1, 2, 3, 4].map((node) => tree.nodes.find((drawn) => drawn.node === node));
    return [
      [root.y === (cat.y + dog.y) / 2, root.x < cat.x, cat.x < sat.x, dog.x === cat.x, sat.y < ran.y],
      Array(5).fill(true),
    ];
  },
  "the bonus hangs from the end of the path": () => {
    const bonus = new Tree(EVENT).nodes.at(-1);
    return [
      [bonus.node, bonus.parent, bonus.piece],
      ["bonus", 2, " on"],
    ];
  },
  "the counts of a chain come from the rows of its table": () => {
    const tree = { tokens: [7, 1, 2, 3], parents: [-1, 0, 1, 2], probs: [1, 0.0006, 0.0006, 0.0006] };
    const rows = [
      { tokens: [5, 1], counts: [9, 2] },
      { tokens: [2], counts: [4] },
    ];
    const event = { ...EVENT, tree, note: { counts: [], rows } };
    const drawn = new Tree(event).nodes.slice(0, 4).map(({ small, prob }) => [small, prob]);
    return [
      [drawn, countNodes({ ...event, checks: [{}] })],
      [
        [
          ["", ""],
          ["2×", ""],
          ["4×", ""],
          ["<0.1 %", "<0.1 %"],
        ],
        [],
      ],
    ];
  },
  // A picture has at most 32 nodes.
  "omitted nodes are counted": () => {
    const size = 40;
    const tree = { tokens: Array(size).fill(1), parents: Array.from({ length: size }, (_, node) => node - 1) };
    return [new Tree({ ...EVENT, tree, pieces: [] }).omitted, 8];
  },
  "a path with more nodes than fit": () => {
    const size = 40;
    const tree = { tokens: Array(size).fill(1), parents: Array.from({ length: size }, (_, node) => node - 1) };
    const path = Array.from({ length: size }, (_, node) => node);
    const nodes = new Tree({ ...EVENT, tree, verdict: { path }, pieces: [], emitted: path, texts: [] }).nodes;
    return [
      [nodes.length, nodes.some(({ kind }) => kind === "bonus")],
      [32, false],
    ];
  },
};
