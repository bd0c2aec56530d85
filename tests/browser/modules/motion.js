import { schedule, cancel, runDue } from "../../../specrace/ui/static/lib/motion.js";

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "due tasks run once, and cancelled tasks do not run": () => {
    const done = [];
    schedule(() => done.push("due"), -1);
    const distant = schedule(() => done.push("not due"), 1e6);
    cancel(schedule(() => done.push("cancelled"), -1));
    runDue();
    runDue();
    return [
      [done, cancel(distant), cancel(distant), cancel(undefined)],
      [["due"], true, false, false],
    ];
  },
};
