import { findFastest } from "../../../specrace/ui/static/podium.js";

export const cases = {
  "three, the fastest first": () => [
    findFastest([1, 4, 3, 2].map((speedup) => ({ speedup }))).map((row) => row.speedup),
    [4, 3, 2],
  ],
};
