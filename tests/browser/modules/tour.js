import { Tour } from "../../../specrace/ui/static/shows/tour.js";
import { put } from "./fixtures.js";
import { REEL } from "./small_race.js";

// A tour on a page whose recorded races have these names and are all `wire`, and the page's warnings.
function open(names, wire) {
  const warnings = [];
  const gallery = {
    cards: names.map((name) => ({ name })),
    playAll: async (requested, take) => take(requested.map(() => wire)),
  };
  const stage = { node: put(), gallery, warn: (text) => warnings.push(text) };
  return { tour: new Tour(stage, { proof: {} }), warnings };
}

export const cases = {
  "the tour is offered if the page has both of its races": () => [
    [["smollm2-copying", "a", "smollm2-losing"], ["smollm2-copying"], []].map((names) => open(names).tour.offered),
    [true, false, false],
  ],
  "for unsuitable races the page shows one sentence": async () => {
    const { tour, warnings } = open([], { ...REEL, steps: [] });
    await tour.begin();
    return [
      [warnings, tour.open],
      [["The recorded races of this server do not suit the tour."], false],
    ];
  },
};
