import { Tour } from "../../../specrace/ui/static/explanations/tour.js";
import { put } from "./fixtures.js";
import { REEL } from "./small_race.js";

// A tour on a page whose recorded races have these names and are all `wire`, and the errors that the page shows.
function open(names, wire) {
  const errors = [];
  const gallery = {
    cards: names.map((name) => ({ name })),
    playAll: async (requested, onReels) => onReels(requested.map(() => wire)),
  };
  const stage = { node: put(), gallery, showError: (text) => errors.push(text) };
  return { tour: new Tour(stage, { proof: {} }), errors };
}

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "the tour is available if the page has both of its races": () => [
    [["smollm2-copying", "a", "smollm2-losing"], ["smollm2-copying"], []].map((names) => open(names).tour.available),
    [true, false, false],
  ],
  "after the tour the stage shows the race before it, with all lanes, and has the keys": async () => {
    const { tour } = open([], REEL);
    const calls = [];
    tour.proof = { node: { open: false } };
    tour.previousReel = { ...REEL, results: [] };
    tour.stage.node.tabIndex = -1;
    Object.assign(tour.stage, {
      paneRow: { toggleSolo: (lane) => calls.push(["solo", lane]) },
      playReel: (reel) => calls.push(["play", reel === tour.previousReel]),
      player: { pause: () => {}, skipToEnd: () => calls.push(["end"]) },
    });
    tour.leave();
    const hasKeys = document.activeElement === tour.stage.node;
    tour.previousReel = undefined;
    tour.leave();
    return [
      [calls, hasKeys],
      [[["solo", undefined], ["play", true], ["end"], ["solo", undefined]], true],
    ];
  },
  "for unsuitable races the page shows one sentence": async () => {
    const { tour, errors } = open([], { ...REEL, steps: [] });
    await tour.begin();
    return [
      [errors, tour.open],
      [["The recorded races of this server do not suit the tour."], false],
    ];
  },
};
