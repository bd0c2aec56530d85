import {
  drawAccepted,
  drawOwn,
  drawProposed,
  drawRejected,
  drawVerified,
  fitPieces,
  keepTogether,
} from "../../../specrace/ui/static/panes/tokens.js";

const HOSTILE = "<img src=x>";

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "each kind has its class, and HTML in a text is not parsed": () => [
    [drawOwn, drawAccepted, (text) => drawProposed([text]), (text) => drawVerified([text]), drawRejected].map(
      (draw) => {
        const node = draw(HOSTILE, 2);
        return [node.className, node.querySelectorAll("img").length, node.textContent];
      },
    ),
    ["own-token", "run", "proposed", "run", "rejected"].map((kind) => [kind, 0, HOSTILE]),
  ],
  "a blank draft token becomes a visible sign": () => [
    [drawVerified([" ", "\t"]), drawRejected("\n"), drawProposed([" a", " \n b "]), drawRejected(" ")].map(
      (node) => node.textContent,
    ),
    ["·", "↵", "a ↵ b", "·"],
  ],
  "a box hides the last tokens that have no room, whole ones, and shows them when there is room": () => {
    const box = drawVerified([" one", " two", " three"]);
    box.style.cssText = "display: block; overflow: hidden; white-space: pre; font: 10px monospace; padding: 0 2px";
    document.body.append(box);
    const shown = [8, 0.5, 99].map((letters) => {
      box.style.width = `calc(${letters}ch + 4px)`;
      const count = fitPieces(box);
      return [count, [...box.children].map((piece) => (piece.hidden ? "" : piece.textContent)).join("")];
    });
    box.remove();
    return [
      shown,
      [
        [1, "one two"],
        [2, "one"],
        [0, "one two three"],
      ],
    ];
  },
  "of an accepted run, only single blanks may collapse at a line's end": () => {
    const texts = ["two words", "a  b\tc", "if x:\n  y = 1", " [1]  so "];
    const nodes = texts.map((text) => drawAccepted(text, 2));
    const spacing = nodes.map((node) => [...node.querySelectorAll(".spacing")].map((part) => part.textContent));
    return [
      [nodes.map((node) => node.textContent), spacing],
      [texts, [[], ["  ", "\t"], ["  "], ["  "]]],
    ];
  },
  "the blank before a citation mark does not break, and no text changes": () => {
    const texts = ["in  [12] and [1].", " [", "[2]", "a [b] c[0]"];
    const nodes = texts.map((text) => drawOwn(text));
    return [
      [nodes.map((node) => node.textContent), nodes.map((node) => [...node.children].map((kept) => kept.textContent))],
      [texts, [["  ", " "], [" "], [], []]],
    ];
  },
  "the blank at the end of a text does not break before a citation mark": () => {
    const ends = [
      ["in ", "[2] so"],
      [" ", "["],
      ["in", "[2]"],
      ["in ", "so"],
      ["[1] ", "[2]"],
    ].map(([before, text]) => {
      const node = drawAccepted(before, 1);
      keepTogether(node, text);
      return [node.textContent, node.querySelectorAll(".kept").length];
    });
    keepTogether(null, "[1]");
    return [
      ends,
      [
        ["in ", 1],
        [" ", 1],
        ["in", 0],
        ["in ", 0],
        ["[1] ", 1],
      ],
    ];
  },
  "an accepted run's tooltip has its length": () => [
    [1, 3].map((count) => drawAccepted("x", count).title),
    ["1 draft token accepted in one step", "3 draft tokens accepted in one step"],
  ],
};
