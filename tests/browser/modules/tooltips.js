import { TOOLTIPS, TIME_PARTS, laneTooltip } from "../../../specrace/ui/static/lib/tooltips.js";
import { EVENT } from "./fixtures.js";

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "every part of a step's time has a name": () => [TIME_PARTS.map(([part]) => part), Object.keys(EVENT.timing)],
  "tooltips are sentences": () => [Object.values(TOOLTIPS).filter((words) => !/^[A-Z].*\.$/.test(words)), []],
  "a lane's tooltip is its summary, or its title": () => [
    [{ title: "Trie", summary: "copies" }, { title: "Trie" }].map((lane) => laneTooltip(lane).split(" Press")[0]),
    ["Copies.", "Trie."],
  ],
};
