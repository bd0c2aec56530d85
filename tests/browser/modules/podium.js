import { findFastest } from "../../../specrace/ui/static/podium.js";

export const cases = {
  "three, the fastest first": () => [
    findFastest([1, 4, 3, 2].map((speedup) => ({ speedup }))).map((row) => row.speedup),
    [4, 3, 2],
  ],
  "a lane that is shown as fast as vanilla does not come before it": () => [
    findFastest([1, 1.04, 0.96, 1.06].map((speedup) => ({ speedup }))).map((row) => row.speedup),
    [1.06, 1, 1.04],
  ],
};
