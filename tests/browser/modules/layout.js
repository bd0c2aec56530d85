import { breakLines, flow, flowStrip, labelOf, placeTree } from "../../../specrace/ui/static/explanations/layout.js";
import { makeScenes } from "../../../specrace/ui/static/explanations/scenes.js";
import { EVENT } from "./fixtures.js";
import { REEL } from "./small_race.js";

// A scene is all that the pictures of one step show.
const [best] = makeScenes(REEL);

// A chain of `length` draft tokens, the first `accepted` of them accepted.
function chain(length, accepted) {
  const tokens = Array.from({ length: length + 1 }, (_, node) => node);
  const path = tokens.slice(0, accepted + 1);
  const event = {
    ...EVENT,
    tree: { tokens, parents: tokens.map((node) => node - 1) },
    pieces: tokens.map((node) => ` word${node}`),
    verdict: { path, bonus: 9, scores: { targets: [] } },
    emitted: [...path.slice(1), 9],
  };
  const run = path.slice(1).map((node) => ({ node, text: ` word${node}` }));
  return { ...best, event, path, run, drafted: length, accepted };
}

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "a sentence is broken into lines": () => [breakLines("a bb ccc", 0, 20), ["a", "bb", "ccc"]],
  "a token's label": () => [[" cat", "\n", "  ", "x".repeat(30)].map(labelOf), ["cat", "↵", "␣", `${"x".repeat(15)}…`]],
  "tokens are side by side, with spaces only between words": () => {
    const { tokens } = flow([{ text: "tri" }, { text: "e" }, { text: " is" }], 900);
    const [tri, e, is] = tokens;
    return [
      [e.x === tri.width, is.x > e.x + e.width],
      [true, true],
    ];
  },
  "a right-to-left text begins at the right, and English words in it keep their order": () => {
    const texts = ["\u0645\u0631\u062d\u0628\u0627", " red", " fish", " \u0633\u0644\u0627\u0645"];
    const { tokens } = flow(
      texts.map((text) => ({ text })),
      900,
    );
    const order = tokens.toSorted((a, b) => b.x - a.x).map(({ text }) => texts.indexOf(text));
    return [
      [order, tokens[0].x + tokens[0].width],
      [[0, 2, 1, 3], 900],
    ];
  },
  "no line is too wide": () => {
    const { tokens, lines } = flow(Array(40).fill({ text: " word" }), 300);
    return [
      [tokens.every(({ x, width }) => x + width <= 300), lines > 2, tokens.at(-1).line === lines - 1],
      [true, true, true],
    ];
  },
  "earlier text is shown as far as it fits": () => {
    const scene = { ...best, written: Array(200).fill(" before") };
    const { tokens, lines } = flowStrip(scene, 600, 3);
    return [
      [lines, tokens[0].text, tokens.at(-1).kind],
      [3, "…", "bonus"],
    ];
  },
  "the accepted path is the upper line": () => {
    const { nodes } = placeTree(best, 1200, 400);
    return [
      nodes.map(({ node, row, depth }) => [node, row, depth]),
      [
        [0, 0, 0],
        [1, 0, 1],
        [2, 0, 2],
        [3, 1, 1],
        [4, 1, 2],
      ],
    ];
  },
  // A node's `tag` is the model's own token after it.
  "each node of the path has the model's token, and the last one ends the step": () => [
    placeTree(best, 1200, 400).nodes.map(({ tag, last }) => [tag?.label, last]),
    [
      ["cat", false],
      ["sat", false],
      ["on", true],
      [undefined, false],
      [undefined, false],
    ],
  ],
  // The last node is <|im_end|>.
  "a control token is not shown": () => [placeTree(best, 1200, 400).nodes.at(-1).label, "·"],
  "a long chain continues in bands, within its area": () => {
    const { nodes, bands, height, omitted } = placeTree(chain(18, 12), 1240, 260);
    return [
      [bands > 1, height <= 260, nodes.every(({ x, width }) => x + width <= 1240), nodes.length + omitted],
      [true, true, true, 19],
    ];
  },
  "nodes that do not fit are counted": () => {
    const { nodes, height, omitted } = placeTree(chain(60, 50), 900, 200);
    return [
      [height <= 200, omitted > 0, nodes.length + omitted],
      [true, true, 61],
    ];
  },
  "nothing overlaps": () => {
    const { nodes } = placeTree(chain(20, 3), 900, 400);
    // Boxes about as high as a node with its tag, and as one without.
    const boxes = nodes.map(({ x, y, width, tag }) => [
      x,
      y,
      x + Math.max(width, tag?.width ?? 0),
      y + (tag ? 80 : 42),
    ]);
    const overlap = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];
    return [boxes.some((a, i) => boxes.some((b, j) => i < j && overlap(a, b))), false];
  },
};
