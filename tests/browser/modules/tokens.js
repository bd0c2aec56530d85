import { drawAccepted, drawOwn, drawProposed, drawRejected, drawVerified } from "../../../specrace/ui/static/tokens.js";

const HOSTILE = "<img src=x>";

export const cases = {
  "each kind has its class, and text stays text": () => [
    [drawOwn, drawAccepted, drawProposed, drawVerified, drawRejected].map((draw) => {
      const node = draw(HOSTILE, 2);
      return [node.className, node.children.length, node.textContent];
    }),
    ["own-token", "run", "proposed", "run", "rejected"].map((kind) => [kind, 0, HOSTILE]),
  ],
  "a blank draft token can be seen": () => [
    [drawVerified(" "), drawRejected("\n")].map((node) => node.textContent),
    ["·", "·"],
  ],
  "an accepted run tells its length": () => [
    [1, 3].map((count) => drawAccepted("x", count).title),
    ["1 draft token accepted in one step", "3 draft tokens accepted in one step"],
  ],
};
