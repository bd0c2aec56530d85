/**
 * The events on the page's .stage element, with the type of their `detail`.
 *
 * The stage sends: `opened`, another race is on the stage (its lanes); `steps`, steps of the race have arrived; `reel`,
 * the race is complete; `begun`, the race starts, live or as a replay; `moved`, a lane has shown another step;
 * `cursor`, the step that is shown has changed; `result`, the end of the race was shown, and `figures`, figures over
 * several runs have arrived (both without rows if the figures do not count); `finish`, the end of a live race was shown
 * for the first time; `lost`, a live race will not be finished; `refused`, the settings in the page's address are
 * wrong.
 *
 * The stage receives: `seek`, show this step; `problem`, show this sentence as an error; `lanes`, the names of the
 * lanes that are chosen now; `requested`, the visitor has asked the server for a race; `documents`, the visitor's own
 * documents have changed.
 * @import { LaneFrame, ResultRow, ShownLane } from "./wire.d.ts"
 * @import { PlayedReel, ReadStep } from "../stage/reel.js"
 * @typedef {{
 *   opened: ShownLane[], steps: ReadStep[], reel: PlayedReel, begun: { live: boolean }, moved: LaneFrame,
 *   cursor: { lane: number, step: number }, result: ResultRow[], figures: ResultRow[], finish: PlayedReel,
 *   lost: void, refused: void,
 *   seek: { lane: number, step: number }, problem: string, lanes: string[], requested: void, documents: void,
 * }} StageEvents
 */

/**
 * @template {keyof StageEvents} Name
 * @param {EventTarget} stage
 * @param {Name} name
 * @param {StageEvents[Name]} [detail]
 */
export function send(stage, name, detail) {
  stage.dispatchEvent(new CustomEvent(name, { detail }));
}

/**
 * @template {keyof StageEvents} Name
 * @param {EventTarget} stage
 * @param {Name} name
 * @param {(detail: StageEvents[Name]) => void} act
 */
export function listen(stage, name, act) {
  stage.addEventListener(name, (event) => act(/** @type {CustomEvent} */ (event).detail));
}
