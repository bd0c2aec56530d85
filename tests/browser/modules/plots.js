import { costAt, countLengths, readLanes } from "../../../specrace/ui/static/plots/plots.js";
import { LANES, STEPS } from "./fixtures.js";

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "each lane's steps, and where they begin": () => [
    // In STEPS lane 0 writes 3 tokens and then 1, and lane 1 writes 1.
    readLanes({ head: { lanes: LANES }, steps: STEPS }).map(({ tokens, steps }) => [
      tokens,
      steps.map(({ from }) => from),
    ]),
    [
      [4, [0, 3]],
      [1, [0]],
    ],
  ],
  "how many steps wrote 0, 1, 2, ... tokens": () => [
    countLengths([3, 1, 3].map((emitted) => ({ emitted }))),
    [0, 1, 0, 2],
  ],
  "the cost between two measured sizes": () => [
    [1, 2, 3, 4].map((size) => costAt([1, 2, 4], [1, 1.5, 2.5], size)),
    [1, 1.5, 2, 2.5],
  ],
};
