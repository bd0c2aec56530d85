import { findBest, tellWhy } from "../../../specrace/ui/static/results.js";
import { ROWS } from "./given.js";

export const cases = {
  "the fastest lane that drafts": () => [findBest(ROWS), ROWS[1]],
  "neither a lane without others wins, nor vanilla": () => [
    [findBest([ROWS[0]]), findBest([ROWS[0], { ...ROWS[1], speedup: 0.9 }]), tellWhy([ROWS[0]])],
    [undefined, undefined, ""],
  ],
  "nor a lane that is shown as fast as vanilla": () => [
    [1.04, 1.06].map((speedup) => findBest([ROWS[0], { ...ROWS[1], speedup }])?.speedup),
    [undefined, 1.06],
  ],
  "why it won": () => [
    tellWhy(ROWS),
    "Why Trie is fastest: it prints 5.0 tokens per step, vanilla 1. The model accepted 75 % of its drafts, and a step took 2.00 times as long as one of vanilla's.",
  ],
};
