import { Sources } from "../../../specrace/ui/static/stage/sources.js";
import { HOSTILE } from "./fixtures.js";

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "the share that was copied from passages": () => {
    const sources = new Sources();
    sources.setUp([{ lane: "trie", title: HOSTILE }]);
    // One token of the model's own, none from other tables, the output or the prompt, 1 and 2 from two passages.
    sources.rows[0].counts = [1, 0, 0, 0, 1, 2];
    sources.draw();
    const { row, bar, share } = sources.rows[0];
    const pieces = [...bar.children].map((piece) => [piece.textContent, piece.style.flexGrow]);
    return [
      [row.querySelectorAll("img").length, share.textContent, pieces],
      [
        0,
        "75 %",
        [
          ["", "1"],
          ["1", "1"],
          ["2", "2"],
        ],
      ],
    ];
  },
  "before the first token there is no share": () => {
    const sources = new Sources();
    sources.setUp([{ lane: "trie", title: "Trie" }]);
    return [
      [sources.rows[0].share.textContent, sources.rows[0].bar.children.length],
      ["–", 0],
    ];
  },
};
