import { MEANS, PARTS } from "../../../specrace/ui/static/meanings.js";
import { EVENT } from "./given.js";

export const cases = {
  "every part of a step's time has a name": () => [PARTS.map(([part]) => part), Object.keys(EVENT.timing)],
  "meanings are sentences": () => [Object.values(MEANS).filter((words) => !/^[A-Z].*\.$/.test(words)), []],
};
