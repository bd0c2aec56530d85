import { findBest, describeFastest } from "../../../specrace/ui/static/stage/results.js";
import { ROWS } from "./fixtures.js";

export const cases = {
  "the fastest lane that drafts": () => [findBest(ROWS), ROWS[1]],
  "a single lane does not win, nor does vanilla": () => [
    [findBest([ROWS[0]]), findBest([ROWS[0], { ...ROWS[1], speedup: 0.9 }]), describeFastest([ROWS[0]])],
    [undefined, undefined, ""],
  ],
  "a lane whose rounded speed equals vanilla's does not win": () => [
    [1.04, 1.06].map((speedup) => findBest([ROWS[0], { ...ROWS[1], speedup }])?.speedup),
    [undefined, 1.06],
  ],
  "why the fastest lane won": () => [
    describeFastest(ROWS),
    "Why Trie is fastest: it prints 5.0 tokens per step, vanilla 1. The model accepted 75 % of its drafts, and a step took 2.00 times as long as one of vanilla's.",
  ],
};
