import { findSource, readText } from "../../../specrace/ui/static/explanations/origins.js";
import { REEL } from "./small_race.js";

// The trie's step that copied from the passage, and lookahead's rejected draft.
const [copied, failed] = [REEL.steps[5], REEL.steps[7]];
// `readText(reel, lane, step)` is the text before a step. Words as [text, the draft tokens copied from it].
const marked = (words) => words.map(({ text, nodes }) => [text, ...nodes]);

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "words copied from a passage, with context": () => {
    const { name, rows } = findSource(copied.event, readText(REEL, 1, 1), "trie");
    return [
      [name, marked(rows[0].words)],
      ["passage 1, “On cats”", [["The"], [" cat", 1], [" sat", 2], [" on"]]],
    ];
  },
  "tokens from no text are listed, without control tokens": () => {
    const { rows } = findSource(copied.event, readText(REEL, 1, 1), "trie");
    return [
      marked(rows[1].words),
      [
        [" dog", 3],
        [" ", 4],
      ],
    ];
  },
  "words copied from the output": () => {
    const event = { ...copied.event, tree: { tokens: [13, 12], parents: [-1, 0], positions: [-1, 7] } };
    const { name, rows } = findSource(event, readText(REEL, 0, 3), "trie");
    return [
      [name, marked(rows[0].words)],
      ["the text it has written", [["The"], [" cat", 1], [" sat"]]],
    ];
  },
  "rows that the drafter noted": () => {
    const { name, rows } = findSource(failed.event, readText(REEL, 2, 1), "lookahead");
    return [
      [name, marked(rows[0].words)],
      ["its n-gram pool", [["The →"], [" dog", 1], [" ran", 2]]],
    ];
  },
  "without a source the draft itself is shown": () => {
    const { rows } = findSource({ ...failed.event, note: undefined }, readText(REEL, 2, 1), "jacobi");
    return [
      marked(rows[0].words),
      [
        [" dog", 1],
        [" ran", 2],
      ],
    ];
  },
  "a long title is cut": () => {
    const reel = structuredClone(REEL);
    reel.head.passages[0].title = "x".repeat(500);
    return [findSource(copied.event, readText(reel, 1, 1), "trie").name.length < 70, true];
  },
  "a window's first token is the pending one, not a draft token": () => {
    const rows = [
      { group: "Window", label: "row 0", tokens: [11, 20, 21], pieces: ["The", " dog", " ran"], counts: [], after: [] },
    ];
    const event = { ...failed.event, note: { rows }, tree: { tokens: [11, 20, 11], parents: [-1, 0, 0] } };
    const { rows: shown } = findSource(event, readText(REEL, 2, 1), "lookahead");
    return [marked(shown[0].words), [[" The"], [" dog", 1], [" ran"]]];
  },
};
