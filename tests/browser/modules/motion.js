import { later, never, runDue } from "../../../specrace/ui/static/motion.js";

export const cases = {
  "what is due runs, once, and what was called off does not": () => {
    const ran = [];
    later(() => ran.push("due"), -1);
    const distant = later(() => ran.push("not yet"), 1e6);
    never(later(() => ran.push("never"), -1));
    runDue();
    runDue();
    return [
      [ran, never(distant), never(distant), never(undefined)],
      [["due"], true, false, false],
    ];
  },
};
