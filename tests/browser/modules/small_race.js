// A small race as a reel. In the second step the trie's draft has two accepted words of the passage, and lookahead's
// draft is rejected.
const TEXTS = ["The", " cat", " sat", " on"];
const IDS = [11, 12, 13, 14];
// The times of a step, in ms.
const spend = (target_ms) => ({ draft_ms: 1, target_ms, keep_ms: 1 });

// Step `index` of a lane, which writes token `index` of the answer without a draft.
function single(lane, index) {
  const event = {
    lane,
    index,
    tree: { tokens: [IDS[index - 1] ?? 5], parents: [-1] },
    pieces: [TEXTS[index - 1] ?? "\n"],
    verdict: { path: [0], bonus: IDS[index], scores: { targets: [IDS[index]] } },
    emitted: [IDS[index]],
    texts: [TEXTS[index]],
    timing: spend(8),
  };
  return { lane: ["vanilla", "trie", "lookahead"].indexOf(lane), index, at: 10 * index, frame: { runs: [] }, event };
}

const copied = single("trie", 1);
Object.assign(copied, { frame: { runs: [["accepted", " cat sat", 2, [[0, 3, 11]]]] } });
Object.assign(copied.event, {
  tree: { tokens: [11, 12, 13, 20, 2], parents: [-1, 0, 1, 0, 3], positions: [-1, 2, 3, -1, -1] },
  pieces: ["The", " cat", " sat", " dog", "<|im_end|>"],
  verdict: { path: [0, 1, 2], bonus: 14, scores: { targets: [12, 13, 14, 9, 9] } },
  emitted: [12, 13, 14],
  texts: [" cat", " sat", " on"],
  timing: spend(18),
});

const failed = single("lookahead", 1);
Object.assign(failed.event, {
  tree: { tokens: [11, 20, 21], parents: [-1, 0, 1] },
  pieces: ["The", " dog", " ran"],
  verdict: { path: [0], bonus: 12, scores: { targets: [12, 9, 9] } },
  timing: spend(13),
  note: {
    facts: {},
    counts: [],
    rows: [
      {
        group: "Pool",
        label: "n-gram 1",
        tokens: [20, 21],
        pieces: [" dog", " ran"],
        counts: [],
        after: [11],
        after_text: "The",
      },
    ],
  },
});

const row = (lane, title, speedup, drafted, badge) => ({ lane, title, speedup, drafted, badge });

export const REEL = {
  phase: "finished",
  head: {
    lanes: [
      { lane: "vanilla", title: "Vanilla" },
      { lane: "trie", title: "Trie" },
      { lane: "lookahead", title: "Lookahead" },
    ],
    passages: [{ title: "On cats", document: "cats.md", text: "The cat sat on mats.", evidence: [] }],
  },
  started: { prompt_tokens: 6, about: { origins: [null, [0, 0, 3], [0, 3, 7], [0, 7, 11], [0, 11, 14], null] } },
  steps: [
    ...IDS.map((_, index) => single("vanilla", index)),
    single("trie", 0),
    copied,
    single("lookahead", 0),
    failed,
    single("lookahead", 2),
    single("lookahead", 3),
  ],
  results: [
    row("vanilla", "Vanilla", 1, 0, ["reference", "reference"]),
    row("trie", "Trie", 2, 4, ["identical", "identical to vanilla"]),
    row("lookahead", "Lookahead", 0.9, 2, ["identical", "identical to vanilla"]),
  ],
};

// A copy of the race in which the last lane prints other tokens from the third on.
export function differ() {
  const reel = structuredClone(REEL);
  reel.results[2].badge = ["differs", "differs at token 2: near tie, gap 0.004"];
  reel.steps.slice(-2).forEach(({ event }, index) => {
    event.emitted = [40 + index];
    event.texts = [[" ran", " off"][index]];
  });
  return reel;
}

// A copy of the race with each lane's figures, as far as a film shows them.
export function filmed() {
  const reel = structuredClone(REEL);
  const tokens = [0, 0, 0];
  reel.steps.sort((one, other) => one.at - other.at);
  for (const { lane, frame, event } of reel.steps) {
    tokens[lane] += event.emitted.length;
    if (!frame.runs.length) frame.runs = [["own", event.texts.join(""), event.texts.length, null]];
    frame.meters = { tokens: tokens[lane], tau: 2, tokens_per_s: 10, drafted: lane ? 4 : 0, accepted: lane ? 2 : 0 };
  }
  reel.head.question = "What sat?";
  reel.results.forEach((result, lane) => Object.assign(result, { tokens: tokens[lane], measured: "" }));
  return { ...reel, pace: { disturbed: false, note: "Quiet." }, repeated: null };
}
