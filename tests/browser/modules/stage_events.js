import { listen, send } from "../../../specrace/ui/static/lib/stage_events.js";

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "a listener gets the details of events with its name": () => {
    const stage = document.createElement("div");
    const received = [];
    listen(stage, "seek", (detail) => received.push(detail));
    send(stage, "cursor", { lane: 0, step: 1 });
    send(stage, "seek", { lane: 2, step: 3 });
    return [received, [{ lane: 2, step: 3 }]];
  },
};
