import { readReel } from "../../../specrace/ui/static/stage/reel.js";
import { CHUNK, HOSTILE, SERVED, UNMARKED, UNTOKENIZED } from "./fixtures.js";

// A step of lane trie, with a draft of three tokens.
const event = (index, path, emitted, more = {}) => ({
  lane: "trie",
  index,
  at_ms: 2 * index + 2,
  tree: { tokens: [0, 1, 2, 3], parents: [-1, 0, 1, 0] },
  verdict: { path },
  emitted,
  texts: emitted.map((token) => ` ${token}`),
  pieces: ["r", HOSTILE, "b", "c"],
  end: "",
  ...more,
});
const METERS = { speedup: 1, tokens_per_s: 2, tau: 3, ms: 4 };
// A reel of these steps as the server sends it, and the frames that are read from it.
const wire = (...steps) => ({ race: 7, head: { lanes: [{ lane: "vanilla" }, { lane: "trie" }] }, steps });
const frames = (...steps) => readReel(wire(...steps)).steps.map((step) => step.frame);

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "a step has its lane, number and time": () => {
    const { race, steps } = readReel(wire({ event: event(3, [0], [9]), frame: { meters: METERS } }));
    const [{ lane, index, at }] = steps;
    return [
      [race, lane, index, at],
      [7, 1, 3, 8],
    ];
  },
  "text and draft come from the event": () => {
    const spans = [[0, 1, 2]];
    const [frame] = frames({ event: event(0, [0, 1], [1, 9], { end: "eos" }), frame: { meters: METERS, spans } });
    const runs = [
      ["accepted", " 1", 1, spans],
      ["own", " 9", 1],
    ];
    const draft = { step: 0, drafted: 3, accepted: 1, accepted_texts: [HOSTILE], rejected: ["b"] };
    return [
      [frame.runs, frame.draft, frame.end],
      [runs, draft, "eos"],
    ];
  },
  "counts are summed, and omitted fields keep their values": () => {
    const changes = { badge: ["same", "identical so far"], sources: [1], loops: false };
    const [, frame] = frames(
      { event: event(0, [0, 1], [1, 9]), frame: { meters: METERS, ...changes } },
      { event: event(1, [0], [9]), frame: { meters: METERS, sources: [2] } },
    );
    const meters = { ...METERS, accepted: 1, drafted: 6, tokens: 3, steps: 2 };
    return [
      [frame.meters, frame.badge, frame.sources, frame.loops],
      [meters, changes.badge, [2], false],
    ];
  },
  "an answer that ends within its accepted path has no rejected branch": () => {
    const [frame] = frames({ event: event(0, [0, 1, 2], [1]), frame: { meters: METERS } });
    return [
      [frame.runs, frame.draft],
      [[["accepted", " 1", 1]], { step: 0, drafted: 3, accepted: 1, accepted_texts: [HOSTILE], rejected: [] }],
    ];
  },
  "a server's counts are those that it reported": () => {
    const drafts = [SERVED, UNMARKED].map((served) => {
      // `counts`: steps, draft tokens, accepted ones, and tokens so far.
      const part = { event: event(0, [0], [9], { drafted: 5 }), frame: { meters: METERS, counts: [1, 5, 0, 2] } };
      const sent = {
        head: { lanes: [{ lane: "trie", served }] },
        steps: [part, { ...part, event: event(1, [0], [9]) }],
      };
      return readReel(sent).steps.map(({ frame: { draft, meters } }) => [draft && draft.drafted, meters.drafted]);
    });
    return [
      drafts,
      [
        [
          [5, 5],
          [null, 5],
        ],
        [
          [null, 5],
          [null, 5],
        ],
      ],
    ];
  },
  "a chunk of a server that sends no token ids is text of no tokens": () => {
    const frame = { meters: METERS, counts: [0, 0, 0, 0] };
    const head = { lanes: [{ lane: "ollama", served: UNTOKENIZED }] };
    const chunk = { ...CHUNK, lane: "ollama", index: 0, at_ms: 5 };
    const ended = { event: { ...chunk, end: "eos" }, frame: { ...frame, counts: [0, 0, 0, 7] } };
    const [first, last] = readReel({ head, steps: [{ event: chunk, frame }, ended] }).steps;
    return [
      [first.frame.runs, first.frame.draft, first.frame.meters.tokens, last.frame.meters.tokens],
      [[["own", " cat sat", 0]], null, 0, 7],
    ];
  },
};
