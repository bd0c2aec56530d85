import { findFastest, rankLanes, showPodium } from "../../../specrace/ui/static/stage/podium.js";
import { put } from "./fixtures.js";

// A podium in an arena. In all lists of results vanilla is the first.
function putPodium() {
  const arena = put(["ol", {}]);
  arena.className = "arena";
  return arena.firstChild;
}

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "the three fastest lanes, the fastest first": () => [
    findFastest([1, 4, 3, 2].map((speedup) => ({ speedup }))).map((row) => row.speedup),
    [4, 3, 2],
  ],
  "a lane whose rounded speed equals vanilla's is not ahead of vanilla": () => [
    findFastest([1, 1.04, 0.96, 1.06].map((speedup) => ({ speedup }))).map((row) => row.speedup),
    [1.06, 1, 1.04],
  ],
  "lanes whose speedups are shown alike share a place": () => [
    rankLanes([1, 3.15, 3.17, 3.14].map((speedup) => ({ speedup }))),
    [4, 1, 1, 3],
  ],
  "lanes of equal speed share a place, also on the podium": () => {
    const host = putPodium();
    const rows = [1, 1.04, 0.9, 0.8].map((speedup) => ({ title: `${speedup}`, speedup, tokens_per_s: 1 }));
    showPodium(host, rows, null);
    return [
      [
        rankLanes(rows),
        [...host.children].map((item) => [item.dataset.place, item.querySelector("i").textContent]),
        host.parentNode.dataset.winners,
      ],
      [
        [1, 1, 3, 4],
        [
          ["1", "=1"],
          ["1", "=1"],
          ["3", "3"],
        ],
        "2",
      ],
    ];
  },
  "a server has no place": () => {
    const host = putPodium();
    const rows = [
      { title: "Vanilla", speedup: 1, tokens_per_s: 50 },
      { title: "fast", speedup: 0, measured: "Measured on fast." },
      { title: "Trie", speedup: 2, tokens_per_s: 100 },
    ];
    showPodium(host, rows, null);
    const ranked = [...host.children].map((item) => [...item.children].map((node) => node.textContent));
    showPodium(host, rows.slice(0, 2), null);
    return [
      [ranked, host.hidden],
      [
        [
          ["2.0×", "Trie", "100 tok/s", "", "1"],
          ["1.0×", "Vanilla", "50 tok/s", "", "2"],
        ],
        true,
      ],
    ];
  },
};
