import { drawChecks, drawTrajectory, countFollowed, judgeCheck } from "../../../specrace/ui/static/inspector/notes.js";
import { EVENT } from "./fixtures.js";

// An n-gram after EVENT's pending token (7); EVENT's step accepts its first two tokens.
const ROW = { counts: [], after: [7], tokens: [1, 2, 5] };
// In rejection sampling, `p` and `q` are a token's probabilities by the model and by the drafter, and `coin` is a
// random number from 0 to 1.

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "a draft token is accepted while the coin is below p/q": () => [
    [0.49, 0.5].map((coin) => judgeCheck({ p: 0.2, q: 0.4, coin })),
    [
      { stays: true, limit: 0.5 },
      { stays: false, limit: 0.5 },
    ],
  ],
  "a token that the drafter could not have drawn": () => [
    judgeCheck({ p: 0.2, q: 0, coin: 0.9 }),
    { stays: true, limit: 1 },
  ],
  "each draw of a tree is shown with its token": () => {
    // Three draws; only their tokens matter here.
    const checks = [3, 1, 1].map((coin) => ({ p: 0.2, q: 0.4, coin }));
    const tables = [{}, { checked_nodes: [3, 3, 1] }].map((nodes) => drawChecks({ ...EVENT, ...nodes, checks }));
    return [
      tables.map((drawn) => [...drawn.querySelectorAll("tbody .chip")].map((chip) => chip.textContent.trim())),
      [
        [1, 2, 3],
        [3, 3, 1],
      ].map((nodes) => nodes.map((node) => EVENT.pieces[node].trim())),
    ];
  },
  // A row with counts is no n-gram: its tokens are alternatives.
  "the number of accepted tokens of an n-gram": () => [
    [ROW, { ...ROW, tokens: [2] }, { ...ROW, after: [8] }, { ...ROW, counts: [1, 1, 1] }].map((row) =>
      countFollowed(EVENT, row),
    ),
    [2, 0, 0, 0],
  ],
  "drafts are shown at their position in the answer": () => {
    const steps = [
      { event: { ...EVENT, index: 0 }, tokensBefore: 0 },
      { event: { ...EVENT, index: 1 }, tokensBefore: 3 },
    ];
    const rows = [...drawTrajectory(steps, 1).querySelectorAll("tbody tr")];
    // Column 0 names the step; column 1 is position 0 of the answer.
    const cells = rows.map((row) => [...row.children].findIndex((cell) => cell.querySelector(".chip")));
    return [cells, [1, 4]];
  },
};
