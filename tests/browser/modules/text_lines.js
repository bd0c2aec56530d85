import { breakIntoLines } from "../../../specrace/ui/static/film/text_lines.js";

const width = (text) => Array.from(text).length;
// The lines of parts, [text, run], as texts in which | ends a part, and N: begins a part of run N.
const linesOf = (parts, room) =>
  breakIntoLines(
    parts.map(([text, run]) => ({ text, run })),
    room,
    width,
  ).map((line) => line.parts.map(({ text, run }) => (run ? `${run}:${text}` : text)).join("|"));

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "lines end between words, and at line breaks": () => [
    linesOf([["one two  three\n\nfour", 0]], 8),
    ["one two", "three", "", "four"],
  ],
  "a word of several parts stays in one line": () => [
    linesOf(
      [
        ["a quant", 0],
        ["isation", 1],
      ],
      13,
    ),
    ["a", "quant|1:isation"],
  ],
  "a run has one box, with the blanks between its words": () => [
    linesOf(
      [
        ["is ", 0],
        ["built from", 1],
        [" every n", 2],
        [" end", 0],
      ],
      40,
    ),
    ["is |1:built from| |2:every n| end"],
  ],
  "a word that is wider than a line is broken": () => [linesOf([["ab\u{1F989}def", 3]], 3), ["3:ab\u{1F989}", "3:def"]],
  "an empty text is an empty line": () => [linesOf([], 9), [""]],
};
