import { findFastest } from "../../../specrace/ui/static/stage/podium.js";

export const cases = {
  "the three fastest lanes, the fastest first": () => [
    findFastest([1, 4, 3, 2].map((speedup) => ({ speedup }))).map((row) => row.speedup),
    [4, 3, 2],
  ],
  "a lane whose rounded speed equals vanilla's is not ahead of vanilla": () => [
    findFastest([1, 1.04, 0.96, 1.06].map((speedup) => ({ speedup }))).map((row) => row.speedup),
    [1.06, 1, 1.04],
  ],
};
