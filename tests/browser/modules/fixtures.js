// Inputs that the cases of several modules share.
export const HOSTILE =
  "<img src=x onerror=window.__pwn=1> ${window.__pwn=2} {{x}} </p><script>window.__pwn=3</script> =cmd() \u202egnirts 🦉";
// HOSTILE as a pane shows it: without the control character that reverses text.
export const SHOWN = HOSTILE.replace("\u202e", "");

// A step whose draft has 4 nodes: "cat" and its child "sat" are accepted, "dog" is not, "ran" is never reached.
export const EVENT = {
  index: 3,
  tree: { tokens: [7, 1, 2, 3, 4], parents: [-1, 0, 1, 0, 3] },
  pieces: ["the", " cat", " sat", " dog", " ran"],
  verdict: { path: [0, 1, 2], bonus: 9, scores: { targets: [1, 2, 9, 9, 9] } },
  emitted: [1, 2, 9],
  texts: [" cat", " sat", " on"],
  timing: { draft_ms: 1, target_ms: 2.5, keep_ms: 0.5 },
};
// The same step, but the text ends inside the accepted path, after one token.
export const SHORT_EVENT = { ...EVENT, emitted: [1] };
export const LANES = [
  { lane: "vanilla", title: "Vanilla" },
  { lane: "trie", title: "Trie" },
];
// `served` of a lane that a running engine decoded, which streams its answer in chunks: a chunk is a step, or is not.
export const SERVED = { engine: "vLLM 0.32.0", chunks_are_steps: true, note: "" };
export const UNMARKED = { ...SERVED, chunks_are_steps: false, note: "it streams token by token" };
// A server that sends no token ids, and one of its chunks.
export const UNTOKENIZED = { ...UNMARKED, sends_ids: false, note: "its stream is text" };
export const CHUNK = {
  ...EVENT,
  tree: { tokens: [0], parents: [-1] },
  pieces: [],
  verdict: { path: [0], bonus: 0, scores: { targets: [0] } },
  emitted: [],
  texts: [" cat sat"],
};
export const STEPS = [
  { lane: 0, index: 0, at: 5, event: EVENT },
  { lane: 1, index: 0, at: 6, event: SHORT_EVENT },
  { lane: 0, index: 1, at: 9, event: SHORT_EVENT },
];
// Results of a race; `tau`: tokens per step.
export const ROWS = [
  { title: "Vanilla", speedup: 1, drafted: 0, accepted: 0, tau: 1, tokens_per_s: 40 },
  { title: "Trie", speedup: 2.5, drafted: 40, accepted: 30, tau: 5, tokens_per_s: 100 },
];

// Adds an element with these children, [tag, properties], to the page, and returns it.
export function put(...children) {
  const host = document.createElement("div");
  document.body.append(host);
  for (const [tag, properties] of children) host.append(Object.assign(document.createElement(tag), properties));
  return host;
}

// A race of a list of questions, of vanilla and a lane with this speedup.
export function listedReel(speedup = 2.5) {
  const lane = (name, title) => ({ lane: name, title, prefill_ms: 0, served: null, num_draft: 8 });
  const result = (name, title, more) => ({
    lane: name,
    title,
    tokens: 6,
    steps: 2,
    drafted: 8,
    accepted: 4,
    loops: false,
    badge: ["identical", "identical to vanilla"],
    // In a server's lane, where it was measured.
    measured: "",
    ...more,
  });
  return {
    race: 0,
    head: {
      question: "Why?",
      date: "2026-01-02T03:04:05",
      model: "tiny",
      dtype: "float32",
      device: "a CPU",
      threads: 2,
      prefill_ms: 100,
      lanes: [lane("vanilla", "Vanilla"), lane("trie", "Trie")],
      passages: [],
    },
    started: {},
    steps: [
      { event: { lane: "trie", index: 0, at_ms: 2 }, frame: {} },
      { event: { lane: "vanilla", index: 0, at_ms: 5 }, frame: {} },
    ],
    phase: "done",
    headline: "",
    results: [
      result("vanilla", "Vanilla", { speedup: 1, tau: 1, tokens_per_s: 40, drafted: 0, accepted: 0 }),
      result("trie", "Trie", { speedup, tau: 3, tokens_per_s: 40 * speedup }),
    ],
    pace: { disturbed: false, note: "Quiet." },
    repeated: null,
    finished: {
      lanes: [
        { lane: "vanilla", identical: true },
        { lane: "trie", identical: true },
      ],
    },
  };
}

// What the table of a list shows of the race that `listedReel` returns.
export function listedRow(speedup, { disturbed = false, identical = true } = {}) {
  const figures = (lane, title, more) => ({
    lane,
    title,
    identical: true,
    compared: "identical to vanilla",
    tokens: 6,
    steps: 2,
    drafted: 8,
    accepted: 4,
    loops: false,
    measured: false,
    has_tokens: true,
    num_draft: 8,
    ...more,
  });
  return {
    lanes: [
      figures("vanilla", "Vanilla", { speedup: 1, tau: 1, tokens_per_s: 40, first_token_ms: 105 }),
      figures("trie", "Trie", { speedup, tau: 3, tokens_per_s: 40 * speedup, first_token_ms: 102, identical }),
    ],
    disturbed,
    note: "Quiet.",
    setup: "tiny, float32",
    settings: "max new tokens 8",
    date: "2026-01-02T03:04:05",
  };
}

/**
 * Runs a function while the page may not use the browser's storage, as when a visitor forbids it: every access throws.
 * @template T
 * @param {() => Promise<T>} run
 */
export async function withoutStorage(run) {
  const names = ["sessionStorage", "indexedDB"];
  const before = names.map((name) => Object.getOwnPropertyDescriptor(window, name));
  const get = () => {
    throw new DOMException("Access is denied.", "SecurityError");
  };
  for (const name of names) Object.defineProperty(window, name, { configurable: true, get });
  try {
    return await run();
  } finally {
    names.forEach((name, index) => Object.defineProperty(window, name, before[index]));
  }
}
