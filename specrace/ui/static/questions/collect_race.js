// Receives a race of a list from the server, to its end. The page does not play it.
/** @import { EndPart, HeadPart, Reel, StepPart } from "../lib/wire.d.ts" */
import { ROUTES } from "../lib/constants.js";

const LOST = "The connection was lost; press Resume once the server answers.";
const ENDED_ELSEWHERE = "Stopped, because this page stopped its race or began another one; press Resume to go on.";

/**
 * Watches the race with this key. If the watching stops, the server ends the race. Rejects with an Error that says why
 * the list cannot continue.
 * @param {string} key
 * @param {(sentence: string) => void} onNote called with why the race has not begun yet
 * @param {AbortSignal} signal ends the watching
 * @returns {Promise<{ reel?: Reel, error?: string }>} the race, or why this question cannot be raced
 */
export function collectRace(key, onNote, signal) {
  return new Promise((resolve, reject) => {
    const source = new EventSource(`${ROUTES.race}/${key}`);
    /** @type {HeadPart | undefined} */
    let head;
    /** @type {StepPart[]} */
    const steps = [];
    // Ends the watching; `act` is `resolve` or `reject`.
    const settle = (act, value) => {
      source.close();
      act(value);
    };
    signal.addEventListener("abort", () => settle(reject, signal.reason), { once: true });
    source.addEventListener("error", () => settle(reject, new Error(LOST)));
    source.addEventListener("end", () => settle(reject, new Error(ENDED_ELSEWHERE)));
    source.addEventListener("message", ({ data }) => {
      const message = JSON.parse(data);
      if (message.kind === "head") head = message.parts[0];
      else if (message.kind === "step") steps.push(...message.parts);
      else if (message.kind === "end") finish(message.parts[0]);
      else if (message.phase === "waiting") onNote(message.message);
      else if (message.phase === "failed") settle(resolve, { error: message.message });
      else settle(reject, new Error(ENDED_ELSEWHERE));
    });

    /** @param {EndPart} end */
    function finish(end) {
      if (end.phase === "stopped") settle(reject, new Error(ENDED_ELSEWHERE));
      // The page does not play this race, so its number does not matter.
      else settle(resolve, { reel: { race: 0, ...head, steps, ...end } });
    }
  });
}
