import { StopButton } from "../../../specrace/ui/static/stage/stop_button.js";
import { send } from "../../../specrace/ui/static/lib/stage_events.js";
import { put } from "./fixtures.js";

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "Stop can be pressed from the press of Race to the end of the race": async () => {
    const host = put(["section", {}], ["button", { id: "stop" }]);
    const [stage, stop] = host.children;
    const watched = new StopButton(stage);
    const states = [stop.disabled];
    const note = () => states.push(stop.disabled);
    // First a race that is refused, then one during whose preparation a replay plays.
    for (const act of [
      () => send(stage, "requested"),
      () => send(stage, "problem", "No."),
      () => send(stage, "requested"),
      () => (stage.dataset.mode = "replay"),
      () => Object.assign(stage.dataset, { race: "1", phase: "waiting" }),
      () => Object.assign(stage.dataset, { phase: "running", mode: "live" }),
      () => Object.assign(stage.dataset, { mode: "result", running: "true" }),
      () => (stage.dataset.running = "false"),
    ]) {
      act();
      await Promise.resolve();
      note();
    }
    host.remove();
    return [
      [watched.stage === stage, ...states],
      [true, true, false, true, false, false, false, false, false, true],
    ];
  },
};
