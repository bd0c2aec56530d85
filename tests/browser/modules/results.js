import { describeFastest, describeSizes, findBest, showResults } from "../../../specrace/ui/static/stage/results.js";
import { LANES, put, ROWS } from "./fixtures.js";

// Each case returns [actual, expected], which test_modules.py compares.
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
  "of lanes that are level none is the fastest": () => [
    describeFastest([ROWS[0], { ...ROWS[1], speedup: 3.15 }, { ...ROWS[1], title: "Fusion", speedup: 3.17 }]).split(
      ":",
    )[0],
    "Why Trie is as fast as Fusion",
  ],
  "figures that a server did not report are not shown as 0": () => {
    const host = put(
      ["h2", {}],
      ["div", { className: "scroller" }],
      ["p", { className: "servers" }],
      ["p", { className: "sizes" }],
    );
    host.querySelector("h2").append(document.createElement("small"));
    const figures = {
      tokens_per_s: 9,
      tokens: 24,
      drafted_per_step: 0,
      ms: 10,
      badge: ["identical", "same"],
      end: "eos",
    };
    const served = { ...figures, title: "fast", speedup: 0, tau: 0, steps: 0, accepted: 0, drafted: 0 };
    const untold = { ...served, tokens_per_s: 0, tokens: 0, end: "length", measured: "Measured on text." };
    showResults(host, [{ ...served, measured: "Measured on fast." }, untold], "", {
      lanes: [{ lane: "fast" }, { lane: "text" }],
      servers_left_out: ["The server slow hung."],
    });
    return [
      [[...host.querySelectorAll("td")].map((cell) => cell.textContent), host.querySelector(".servers").textContent],
      [
        [
          ["fast", "–", "9.0", "–", "–", "–", "–", "24", "10.0 ms", "same"],
          ["fast", "–", "–", "–", "–", "–", "–", "– (limit)", "10.0 ms", "same"],
        ].flat(),
        "Measured on fast. Measured on text. Left out: The server slow hung.",
      ],
    ];
  },
  "draft sizes that auto has changed since the race before are named": () => {
    const race = (size, question = "Why?", num_draft = null) => ({
      question,
      settings: { num_draft },
      lanes: [LANES[0], { ...LANES[1], num_draft: size }],
    });
    return [
      [
        describeSizes(race(12), race(15)),
        describeSizes(race(12), race(12)),
        describeSizes(race(12), race(15, "Who?")),
        describeSizes(race(12, "Why?", 12), race(15)),
        describeSizes(race(12), undefined),
      ],
      [
        "Draft tokens on auto follow the machine's speed; since the race before: Trie 12 instead of 15.",
        "",
        "",
        "",
        "",
      ],
    ];
  },
};
