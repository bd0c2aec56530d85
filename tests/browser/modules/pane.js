import { describeEnd, judgeDraft, Pane, shortBadge } from "../../../specrace/ui/static/panes/pane.js";
import { HOSTILE, SERVED, SHOWN, UNMARKED } from "./fixtures.js";

// What a pane shows after a step. A run is [kind, text, tokens]: a piece of the step's text.
const FRAME = {
  runs: [
    ["own", HOSTILE, 2],
    ["accepted", " and so on", 3],
  ],
  meters: { tokens: 5, speedup: 1.5, tokens_per_s: 99.6, tau: 2.5, drafted: 4, accepted: 3 },
  badge: ["same", "identical to vanilla so far"],
  draft: { step: 0, drafted: 4, accepted: 3, accepted_texts: [" and", " so", " on"], rejected: [HOSTILE] },
};

// A pane after these frames, which are shown without motion.
function drawPane(...frames) {
  const pane = new Pane({ lane: "trie", title: "Trie" });
  frames.forEach((frame, step) => pane.apply(frame, () => {}, step, true));
  pane.setSpeedup(1.25);
  return pane;
}

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "a shortened badge": () => [
    ["identical to vanilla", "identical so far", "differs at token 57: near tie, gap 0.004", "reference", ""].map(
      shortBadge,
    ),
    ["identical", "so far", "differs at token 57", "reference", ""],
  ],
  "a shortened badge keeps the name of a server that is the reference": () => {
    const badges = ["identical to vanilla-2", "same text as s0", "differs at token 5 of s0", "identical text"];
    return [badges.map(shortBadge), [...badges.slice(0, 3), "identical"]];
  },
  "an unfinished comparison says so in every width": () => {
    const pane = new Pane({ lane: "trie", title: "Trie" });
    pane.setBadge("same", "identical so far");
    return [
      [pane.badge.textContent, pane.badge.querySelector(".word").textContent],
      ["✓ identical so far", "so far"],
    ];
  },
  "an answer that ends at an end token, at the limit, and at the limit in a loop": () => [
    ["eos", "length", "length", ""].map((end, index) =>
      describeEnd({ end, loops: index === 2, meters: { tokens: 160 } }),
    ),
    ["", "Stopped at the limit of 160 tokens.", "Stopped at the limit of 160 tokens; the text repeats itself.", ""],
  ],
  "the limit is named below the text until the race is replayed": () => {
    const pane = drawPane({ ...FRAME, end: "length" });
    const shown = pane.text.textContent;
    pane.clear();
    return [
      [shown.includes("Stopped at the limit of 5 tokens."), pane.ending.textContent, pane.body.textContent],
      [true, "", ""],
    ];
  },
  "no draft, and none accepted": () => [
    [
      [0, 0],
      [3, 0],
      [3, 2],
    ].map(([drafted, accepted]) => judgeDraft({ drafted, accepted })),
    [
      { kind: "none", words: "no draft" },
      { kind: "refused", words: "× 0 of 3" },
      { kind: "accepted", words: "✓ 2 of 3" },
    ],
  ],
  "a frame's text and figures": () => {
    const { body, rate, tau, counts, speedup, badge } = drawPane(FRAME);
    // Three elements: the first run, the blank before the accepted one, and the accepted one.
    return [
      [body.textContent, body.children.length, ...[rate, tau, counts, speedup, badge].map((node) => node.textContent)],
      [`${SHOWN} and so on`, 3, "100", "2.5", "3/4 accepted", "1.3×", "✓ identical to vanilla so far"],
    ];
  },
  "the draft tokens that the row does not show are counted, while it shows the others": () => {
    // Of 13 draft tokens the row shows 4.
    const draft = { step: 0, drafted: 13, accepted: 2, accepted_texts: ["a", "b"], rejected: ["c", "d"] };
    const drafts = [draft, { ...draft, drafted: 4 }, { ...draft, drafted: null, rejected: [] }];
    const counts = drafts.map((variant) => {
      const pane = drawPane({ ...FRAME, draft: variant });
      pane.settle();
      return pane.rest.textContent;
    });
    const pane = drawPane({ ...FRAME, draft });
    pane.settle();
    pane.clear();
    return [
      [counts, pane.rest.textContent],
      [["+9", "", ""], ""],
    ];
  },
  "thoughts are folded, from the beginning to the mark after them": () => {
    const texts = ["<think>\nFirst ", "a thought", ".</thi", "nk>\n\nThe answer", " follows."];
    // The marks before and after the thoughts: as in the text, without the first, others, and none.
    const folded = [["<think>", "</think>"], ["", "</think>"], ["<other>", "</other>"], null].map((marks) => {
      const pane = new Pane({ lane: "trie", title: "Trie" }, marks);
      texts.forEach((text, step) => pane.apply({ ...FRAME, runs: [["own", text, 1]] }, () => {}, step, true));
      return [!pane.thoughts.parentNode, pane.thoughts.open, pane.thought.textContent, pane.body.textContent];
    });
    const thought = "<think>\nFirst a thought.</think>";
    const shown = [false, false, thought, "The answer follows."];
    const whole = [true, false, "", `${thought}\n\nThe answer follows.`];
    return [folded, [shown, shown, whole, whole]];
  },
  "a replay begins without thoughts": () => {
    const pane = new Pane({ lane: "trie", title: "Trie" }, ["", "</think>"]);
    pane.apply({ ...FRAME, runs: [["accepted", "Hm.</think> Yes", 3]] }, () => {}, 0, true);
    const before = [pane.thought.textContent, pane.body.textContent, !pane.thoughts.parentNode];
    pane.clear();
    return [
      [before, [pane.thought.textContent, pane.body.textContent, !pane.thoughts.parentNode]],
      [
        ["Hm.</think>", "Yes", false],
        ["", "", true],
      ],
    ];
  },
  "each word has the number of its step": () => {
    const { body } = drawPane(FRAME, FRAME);
    return [[...body.querySelectorAll("[data-step]")].map((node) => node.dataset.step).join(""), "000111"];
  },
  "a server's pane says where it was measured, and has no speedup": () => {
    const pane = new Pane({ lane: HOSTILE, title: "Fast (vLLM)", served: SERVED });
    pane.apply({ ...FRAME, draft: { ...FRAME.draft, drafted: null, rejected: [] } }, () => {}, 0, true);
    pane.setSpeedup(9);
    pane.settle();
    return [
      [pane.node.querySelector(".measured").textContent, pane.node.querySelector(".speedup"), pane.label.textContent],
      [`measured on ${HOSTILE}`, null, "✓ 3"],
    ];
  },
  "a server whose chunks are not steps has no boxes, and the pane says why": () => {
    const pane = new Pane({ lane: "fast", title: "Fast", served: { ...UNMARKED, note: HOSTILE } });
    const shown = () => [pane.label.textContent, pane.draft.textContent, pane.tau.textContent, pane.counts.textContent];
    const meters = { ...FRAME.meters, tau: 0, drafted: 0, accepted: 0 };
    pane.apply({ ...FRAME, runs: FRAME.runs.slice(0, 1), meters, draft: null }, () => {}, 0, false);
    pane.settle();
    const before = shown();
    pane.clear();
    const why = ["no boxes", HOSTILE, "–", ""];
    return [
      [before, shown(), pane.node.querySelector(".run")],
      [why, why, null],
    ];
  },
};
