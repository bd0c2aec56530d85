import { schedule, cancel, runDue } from "../../../specrace/ui/static/motion.js";

export const cases = {
  "what is due runs, once, and what was called off does not": () => {
    const ran = [];
    schedule(() => ran.push("due"), -1);
    const distant = schedule(() => ran.push("not yet"), 1e6);
    cancel(schedule(() => ran.push("never"), -1));
    runDue();
    runDue();
    return [
      [ran, cancel(distant), cancel(distant), cancel(undefined)],
      [["due"], true, false, false],
    ];
  },
};
