import { collectRace } from "../../../specrace/ui/static/questions/collect_race.js";
import { listedReel } from "./fixtures.js";

// Collects a race whose stream sends these messages; a string is an event without data. Returns the result or the
// error, the notes, whether the stream was closed, and whether its URL ends with the race's key.
async function collect(messages, signal = new AbortController().signal) {
  const streams = [];
  const original = window.EventSource;
  window.EventSource = class extends EventTarget {
    constructor(url) {
      super();
      this.url = url;
      this.closed = false;
      streams.push(this);
    }

    close() {
      this.closed = true;
    }
  };
  const notes = [];
  const race = collectRace("key", (note) => notes.push(note), signal);
  window.EventSource = original;
  for (const message of messages) {
    const event =
      typeof message === "string" ? new Event(message) : new MessageEvent("message", { data: JSON.stringify(message) });
    streams[0].dispatchEvent(event);
  }
  const result = await race.catch((error) => error.message);
  return { result, notes, closed: streams[0].closed, url: streams[0].url.endsWith("/key") };
}

// The server sends a reel in parts: the head, the steps, the end.
const { head, started, steps, race, ...end } = listedReel();
const BEGIN = [
  { kind: "note", phase: "waiting", message: "You're next." },
  { kind: "head", parts: [{ head, started }] },
  { kind: "step", parts: steps.slice(0, 1) },
  { kind: "step", parts: steps.slice(1) },
];

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "a whole race": async () => [
    await collect([...BEGIN, { kind: "end", parts: [end] }, "end"]),
    { result: { reel: { ...listedReel(), race } }, notes: ["You're next."], closed: true, url: true },
  ],
  "a race that cannot run": async () => [
    (await collect([{ kind: "note", phase: "failed", message: "Too long." }])).result,
    { error: "Too long." },
  ],
  "a race that was stopped": async () => [
    [
      (await collect([...BEGIN, { kind: "end", parts: [{ ...end, phase: "stopped" }] }])).result.slice(0, 7),
      (await collect([{ kind: "note", phase: "stopped", message: "Stopped." }])).result.slice(0, 7),
    ],
    ["Stopped", "Stopped"],
  ],
  "a lost connection": async () => [(await collect([...BEGIN, "error"])).result.slice(0, 19), "The connection was "],
  "the visitor stops the list": async () => {
    const turn = new AbortController();
    const collected = collect(BEGIN, turn.signal);
    turn.abort(new Error("Stopped by hand."));
    const { result, closed } = await collected;
    return [
      [result, closed],
      ["Stopped by hand.", true],
    ];
  },
};
