import { Tour } from "../../../specrace/ui/static/tour.js";
import { put } from "./given.js";
import { REEL } from "./race.js";

// A tour on a page with these recorded races, all of them `wire`, and what the page is told.
function open(names, wire) {
  const told = [];
  const gallery = {
    cards: names.map((name) => ({ name })),
    playAll: async (asked, take) => take(asked.map(() => wire)),
  };
  const stage = { node: put(), gallery, warn: (words) => told.push(words) };
  return { tour: new Tour(stage, { proof: {} }), told };
}

export const cases = {
  "it is offered where both its races are": () => [
    [["smollm2-copying", "a", "smollm2-losing"], ["smollm2-copying"], []].map((names) => open(names).tour.offered),
    [true, false, false],
  ],
  "races that it cannot tell of are one sentence": async () => {
    const { tour, told } = open([], { ...REEL, steps: [] });
    await tour.begin();
    return [
      [told, tour.open],
      [["The recorded races of this server do not suit the tour."], false],
    ];
  },
};
