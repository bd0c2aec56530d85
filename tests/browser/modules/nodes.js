import { drawTree, landing } from "../../../specrace/ui/static/explanations/nodes.js";
import { PHASES, placeScene, readTheme } from "../../../specrace/ui/static/explanations/picture.js";
import { makeScenes } from "../../../specrace/ui/static/explanations/scenes.js";
import { REEL } from "./small_race.js";

const [best, failed] = makeScenes(REEL);
const theme = readTheme(document.body);
// Draws a scene's tree. `shares` says how much of each phase is done: source, draft, verify, accept, cost.
function at(scene, ...shares) {
  const done = Object.fromEntries(PHASES.map(([name], phase) => [name, shares[phase]]));
  return drawTree({ places: placeScene(scene, 1280, 668), theme, done });
}
const kinds = (picture) => [...picture.querySelectorAll("[data-kind]")].map((node) => node.dataset.kind);

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "ghost tokens land one after the other, within the draft phase": () => [
    [landing(0, 9)[1] < landing(8, 9)[1], landing(8, 9)[1] < 1],
    [true, true],
  ],
  "before the draft its places are empty, and there is no tree after the verdict": () => [
    [at(best, 1, 0, 0, 0, 0), at(best, 1, 1, 1, 1, 0.5)].map((picture) => [
      picture.childElementCount,
      picture.textContent,
    ]),
    [
      [5, ""],
      [0, ""],
    ],
  ],
  "all tokens are proposed until the verdict": () => [
    [kinds(at(best, 1, 1, 1, 0, 0)), kinds(at(best, 1, 1, 1, 0.2, 0))],
    [
      ["root", "proposed", "proposed", "proposed", "proposed"],
      ["root", "accepted", "accepted", "rejected", "rejected"],
    ],
  ],
  "a model's token that is not in the draft is marked": () => [
    [best, failed].map((scene) => at(scene, 1, 1, 1, 0, 0).textContent.includes("≠")),
    [false, true],
  ],
};
