import {
  findBestLane,
  readTable,
  Scores,
  describeBestLane,
  describeFacts,
  describeMeasured,
} from "../../../specrace/ui/static/logs/scores.js";
import { registerMethods } from "../../../specrace/ui/static/lib/lanes.js";
import { HOSTILE, put } from "./fixtures.js";

registerMethods([
  { lane: "trie", title: "Trie", hue: 1 },
  { lane: "suffix", title: "Suffix", hue: 2 },
]);
const row = (lane, category, outputs, tau) => ({ lane, category, outputs, tau, tau_without_looping: null });
// `scored`: "whole", or a remark. `emitted`[i]: steps that wrote i tokens; `drafted`[i], `accepted`[i]: steps that
// drafted, and that accepted, more than i. `tenths`: for each tenth of the outputs its steps, those rejected at once,
// those without a draft.
const LANE = {
  scored: "whole",
  emitted: [0, 2, 0, 1],
  drafted: [3, 2],
  accepted: [2, 1],
  tau_low: 1.1,
  tau_high: 1.9,
  tenths: [[3, 1, 1]],
};
const SCORES = {
  title: HOSTILE,
  tokenizer: "tiny",
  outputs: 3,
  skipped: 2,
  skipped_by_reason: [[HOSTILE, 2]],
  remarks: [HOSTILE],
  looping: 1,
  left_out: "the page scores 3 requests",
  lanes: [
    { lane: "trie", ...LANE },
    { lane: "suffix", ...LANE, scored: "in part" },
  ],
  groups: [
    row("trie", "all", 3, 1.2),
    row("trie", HOSTILE, 1, 1.6),
    row("suffix", "all", 3, 1.5),
    row("suffix", HOSTILE, 1, 1.1),
  ],
  measured: [{ category: "all", outputs: 2, tau: 1.4, tau_high: 1.4 }],
  measured_text: [`measured: ${HOSTILE}`],
  requests: [
    {
      number: 1,
      id: "",
      category: "none",
      looping: false,
      tokens: 1,
      prompt_tokens: 1,
      tau: [1, 1],
      prompt: "",
      texts: [" a"],
      lanes: [[[0, 0, []]], [[0, 0, []]]],
    },
  ],
};

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "the best lane over all requests": () => [
    [findBestLane(SCORES), describeBestLane(SCORES)],
    [1, "Suffix drafts best: 1.50 tokens per step over 3 requests."],
  ],
  "a row for each category": () => [
    readTable(SCORES),
    [
      ["all", 3, [1.2, 1.5]],
      [HOSTILE, 1, [1.6, 1.1]],
    ],
  ],
  "what an engine counted": () => [
    [
      describeMeasured(SCORES, "all", 3),
      describeMeasured(SCORES, "all", 2),
      describeMeasured(SCORES, HOSTILE, 1),
      describeMeasured({ measured: [{ category: "all", outputs: 2, tau: 1.4, tau_high: 1.6 }] }, "all", 2),
    ],
    ["1.400 (2 requests)", "1.400", "–", "1.400 to 1.600"],
  ],
  "facts in sentences": () => [
    describeFacts(SCORES, "a.jsonl").slice(1),
    [
      "3 requests scored, 2 lines left out.",
      "The rest was not: the page scores 3 requests. On the command line, python -m specrace score reads all.",
      "1 output of them repeats itself, which flatters copying.",
      "Suffix is scored in part: in part.",
    ],
  ],
  "HTML in a text is not parsed": () => {
    const [node] = put(["section", { hidden: true }]).children;
    new Scores(node).show(SCORES, HOSTILE);
    const cells = [...node.querySelectorAll("td")].map((cell) => cell.textContent);
    const reasons = [...node.querySelectorAll(".logs-reasons li")].map((item) => item.textContent);
    const best = [...node.querySelectorAll("td b")].map((cell) => cell.textContent);
    return [
      [
        node.hidden,
        node.querySelectorAll("img, script").length,
        reasons,
        cells,
        best,
        node.querySelectorAll("figure").length,
      ],
      [
        false,
        0,
        [`2 lines: ${HOSTILE}.`, `measured: ${HOSTILE}`, HOSTILE],
        ["all", "3", "1.200", "1.500", "1.400 (2 requests)", HOSTILE, "1", "1.600", "1.100", "–"],
        ["1.500", "1.600"],
        4,
      ],
    ];
  },
  "a log without categories has one row": () => {
    const groups = ["all", "none"].map((category) => ({ lane: "trie", category, outputs: 3, tau: 2 }));
    return [readTable({ lanes: [{ lane: "trie" }], groups }), [["all", 3, [2]]]];
  },
};
