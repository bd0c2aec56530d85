import { findEdges } from "../../../specrace/ui/static/stage/passages.js";

// `findEdges(evidence, links)`: 1 for each character that is evidence, and the stretches that answers were copied from.
// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "pieces begin and end where evidence and links do": () => [
    findEdges([0, 0, 1, 1, 0], [{ start: 1, end: 3 }]),
    [0, 1, 2, 3, 4, 5],
  ],
  "a link past the end": () => [findEdges([0, 0, 0], [{ start: 2, end: 9 }]), [0, 2, 3]],
  "a text in one piece": () => [findEdges([1, 1], []), [0, 2]],
};
