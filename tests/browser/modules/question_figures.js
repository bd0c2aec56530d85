import {
  counts,
  describeSettings,
  describeSetup,
  findFastestLane,
  firstTokenMs,
  readFigures,
  spreadOf,
  summarise,
} from "../../../specrace/ui/static/questions/question_figures.js";
import { listedReel, listedRow } from "./fixtures.js";

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "the time to the first token": () => {
    // The prompt is read in 100 ms; the first steps end after 5 ms (vanilla) and 2 ms (trie).
    const { head, steps } = listedReel();
    // Before its first step the trie prepares for 7 ms more.
    head.lanes[1].prefill_ms = 7;
    const served = { ...head, lanes: [{ lane: "vllm", prefill_ms: 40, served: {} }] };
    return [
      [firstTokenMs({ head, steps }, 0), firstTokenMs({ head, steps }, 1), firstTokenMs({ head: served, steps }, 0)],
      [105, 109, 40],
    ];
  },
  "the figures of a race": () => {
    const row = readFigures(listedReel());
    return [
      [
        row.lanes.map(({ lane, speedup, identical, first_token_ms: first }) => [lane, speedup, identical, first]),
        row.disturbed,
        row.setup,
      ],
      [
        [
          ["vanilla", 1, true, 105],
          ["trie", 2.5, true, 102],
        ],
        false,
        "tiny, float32, a CPU, 2 threads; Vanilla, Trie",
      ],
    ];
  },
  "a machine without threads": () => [
    describeSetup({ model: "tiny", dtype: null, device: "cuda", threads: null, lanes: [] }),
    "tiny, cuda; ",
  ],
  "settings in words": () => [
    [
      describeSettings({
        settings: { max_new_tokens: 8, num_draft: null, options: {}, verifier: "match" },
        thinking: "off",
      }),
      describeSettings({ settings: null, thinking: null }),
    ],
    ["max new tokens 8, verifier match, thinking off", "not known"],
  ],
  "medians and ranges": () => [
    [spreadOf([3, 1, 2]), spreadOf([4, 1, 3, 2])],
    [
      { median: 2, low: 1, high: 3 },
      { median: 2.5, low: 1, high: 4 },
    ],
  ],
  "disturbed and failed races do not count": () => {
    const rows = [listedRow(2), listedRow(9, { disturbed: true }), { error: "Too long." }, undefined, listedRow(4)];
    const [vanilla, trie] = summarise(rows);
    // `best` and `worst` are indices of questions; -1: all speedups are equal, as vanilla's are.
    return [
      [rows.map(counts), trie.speedup, trie.questions, [trie.best, trie.worst], [vanilla.best, vanilla.worst]],
      [[true, false, false, false, true], { median: 3, low: 2, high: 4 }, 2, [4, 0], [-1, -1]],
    ];
  },
  "texts that were not compared": () => {
    const row = listedRow(2);
    row.lanes[1].identical = null;
    const [, trie] = summarise([row, listedRow(3, { identical: false })]);
    return [
      [trie.compared, trie.identical],
      [1, 0],
    ];
  },
  "the fastest lane, if one is faster than vanilla": () => [
    [findFastestLane(summarise([listedRow(2)])).lane, findFastestLane(summarise([listedRow(0.9)])), summarise([])],
    ["trie", undefined, []],
  ],
};
