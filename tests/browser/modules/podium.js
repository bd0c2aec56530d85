import { findFastest, showPodium } from "../../../specrace/ui/static/stage/podium.js";
import { put } from "./fixtures.js";

export const cases = {
  "the three fastest lanes, the fastest first": () => [
    findFastest([1, 4, 3, 2].map((speedup) => ({ speedup }))).map((row) => row.speedup),
    [4, 3, 2],
  ],
  "a lane whose rounded speed equals vanilla's is not ahead of vanilla": () => [
    findFastest([1, 1.04, 0.96, 1.06].map((speedup) => ({ speedup }))).map((row) => row.speedup),
    [1.06, 1, 1.04],
  ],
  "a server has no place": () => {
    const host = put();
    const rows = [
      { title: "Vanilla", speedup: 1 },
      { title: "fast", speedup: 0, measured: "Measured on fast." },
      { title: "Trie", speedup: 2 },
    ];
    showPodium(host, rows, null);
    const ranked = [...host.querySelectorAll("span")].map((node) => node.textContent);
    showPodium(host, rows.slice(0, 2), null);
    return [
      [ranked, host.hidden],
      [["Trie", "Vanilla"], true],
    ];
  },
};
