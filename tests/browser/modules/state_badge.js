import { nameModel, nameState, StateBadge } from "../../../specrace/ui/static/stage/state_badge.js";
import { put } from "./fixtures.js";

const LIVE = { phase: "running", mode: "live", running: "true" };
const RESULT = { mode: "result", outcome: "counted", running: "false" };

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "each state has one name": () => [
    [
      {},
      { mode: "result", phase: "waiting" },
      LIVE,
      { ...LIVE, held: "true" },
      { ...LIVE, counting: "true" },
      // The race has ended on the server, but the page still plays it.
      { ...LIVE, phase: "finished" },
      // Repetitions that have ended: the race itself is run 1, so the next one is run 2.
      { ...RESULT, running: "true", again: "0" },
      { ...RESULT, running: "true", again: "3", outcome: "disturbed" },
      RESULT,
      { ...RESULT, outcome: "stopped" },
      { ...RESULT, outcome: "disturbed", recorded: "true" },
      { mode: "replay", running: "true" },
      { ...RESULT, recorded: "true" },
      { ...RESULT, recorded: "true", otherQuestion: "true" },
    ].map(nameState),
    [
      "",
      "Preparing",
      "Racing",
      "Waiting",
      "Starting",
      "Racing",
      "Repeating: run 2",
      "Repeating: run 5",
      "Finished",
      "Stopped",
      "Disturbed",
      "Replay",
      "Replayed",
      "Earlier race",
    ],
  ],
  "a recorded race names its model while it is played and at its end": () => [
    ["idle", "replay", "result"]
      .map((mode) => nameModel({ mode, recorded: "true", model: "m" }))
      .concat(
        nameModel({ mode: "replay", recorded: "false", model: "m" }),
        nameModel({ mode: "replay", recorded: "true", model: "" }),
        nameModel({ mode: "replay", recorded: "true", model: "m + an adapter" }),
        nameModel({ mode: "result", recorded: "true", model: "m", otherQuestion: "true" }),
      ),
    ["", " m", " m", "", "", " m", ""],
  ],
  "the badge follows the stage": async () => {
    const [stage, badge] = put(["section", {}], ["span", {}]).children;
    const watched = new StateBadge(stage, badge);
    const seen = [badge.textContent];
    for (const change of [LIVE, { mode: "result", again: "1" }, { running: "false" }]) {
      Object.assign(stage.dataset, change);
      await Promise.resolve();
      seen.push(`${badge.textContent} ${badge.dataset.state} ${badge.title.slice(0, 10)}`);
    }
    stage.parentElement.remove();
    return [
      [watched.badge === badge, ...seen],
      [true, "", "Racing racing ", "Repeating: run 3 repeating The server", "Finished finished "],
    ];
  },
};
