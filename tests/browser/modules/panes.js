import { describeEnd, judgeDraft, Pane, shortBadge } from "../../../specrace/ui/static/stage/panes.js";
import { HOSTILE, SHOWN } from "./fixtures.js";

const FRAME = {
  runs: [
    ["own", HOSTILE, 2],
    ["accepted", " and so on", 3],
  ],
  meters: { tokens: 5, speedup: 1.5, tokens_per_s: 99.6, tau: 2.5, drafted: 4, accepted: 3 },
  badge: ["same", "identical to vanilla so far"],
  draft: { step: 0, drafted: 4, accepted: 3, accepted_text: " and so on", rejected: [HOSTILE] },
};

function drawPane(...frames) {
  const pane = new Pane({ lane: "trie", title: "Trie" });
  frames.forEach((frame, step) => pane.apply(frame, () => {}, step, true));
  pane.setSpeedup(1.25);
  return pane;
}

export const cases = {
  "a shortened badge": () => [
    ["identical to vanilla", "differs at token 57: near tie, gap 0.004", "reference", ""].map(shortBadge),
    ["identical", "differs at token 57", "reference", ""],
  ],
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
    return [
      [body.textContent, body.children.length, ...[rate, tau, counts, speedup, badge].map((node) => node.textContent)],
      [`${SHOWN} and so on`, 3, "100", "2.5", "3/4 accepted", "1.3×", "✓ identical to vanilla so far"],
    ];
  },
  "each word has the number of its step": () => {
    const { body } = drawPane(FRAME, FRAME);
    return [[...body.querySelectorAll("[data-step]")].map((node) => node.dataset.step).join(""), "000111"];
  },
};
