import {
  drawAccepted,
  drawOwn,
  drawProposed,
  drawRejected,
  drawVerified,
} from "../../../specrace/ui/static/panes/tokens.js";

const HOSTILE = "<img src=x>";

export const cases = {
  "each kind has its class, and HTML in a text is not parsed": () => [
    [drawOwn, drawAccepted, drawProposed, drawVerified, drawRejected].map((draw) => {
      const node = draw(HOSTILE, 2);
      return [node.className, node.children.length, node.textContent];
    }),
    ["own-token", "run", "proposed", "run", "rejected"].map((kind) => [kind, 0, HOSTILE]),
  ],
  "a blank draft token becomes a visible sign": () => [
    [drawVerified(" "), drawRejected("\n"), drawProposed("a \n b"), drawRejected(" ")].map((node) => node.textContent),
    ["·", "↵", "a ↵ b", "·"],
  ],
  "an accepted run's tooltip has its length": () => [
    [1, 3].map((count) => drawAccepted("x", count).title),
    ["1 draft token accepted in one step", "3 draft tokens accepted in one step"],
  ],
};
