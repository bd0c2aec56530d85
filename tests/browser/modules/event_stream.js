import { RaceReceiver } from "../../../specrace/ui/static/lib/event_stream.js";

// The calls that a screen gets for these messages. A function among them acts on the receiver.
function receive(...messages) {
  const calls = [];
  const receiver = new RaceReceiver({
    refuseAddress: (words) => calls.push(`refused: ${words}`),
    awaitRace: (race) => calls.push(`race ${race}`),
    showPhase: (phase, words) => calls.push(`${phase}: ${words}`),
    startLiveRace: (part) => calls.push(`head ${part}`),
    addLiveSteps: (parts) => calls.push(`steps ${parts}`),
    endLiveRace: (part) => calls.push(`end ${part}`),
    updateFigures: (part) => calls.push(`again ${part}`),
    setRunning: () => {},
  });
  for (const message of messages) {
    if (typeof message === "function") message(receiver);
    else receiver.receive(message);
  }
  return calls;
}

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "the parts of a race": () => [
    receive(
      { race: 1, kind: "note", phase: "waiting", message: "You're next." },
      { race: 1, kind: "head", parts: ["h"] },
      { race: 1, kind: "step", parts: [1, 2] },
      { race: 1, kind: "end", parts: ["e"] },
      // Figures after further runs, of which only the latest are shown.
      { race: 1, kind: "again", parts: [2, 3] },
    ),
    ["race 1", "waiting: You're next.", "head h", "steps 1,2", "end e", "again 3"],
  ],
  "messages of an old race are ignored": () => [
    receive({ race: 2, kind: "head", parts: ["h"] }, { race: 1, kind: "step", parts: [1] }),
    ["race 2", "head h"],
  ],
  "messages of a race that the page has left are ignored": () => [
    receive(
      { race: 1, kind: "head", parts: ["h"] },
      (receiver) => receiver.abandon(),
      { race: 1, kind: "step", parts: [1] },
      { race: 2, kind: "note", phase: "failed", message: "Too long." },
    ),
    ["race 1", "head h", "race 2", "failed: Too long."],
  ],
  "a lost connection fails a race that has not ended": () => {
    const streams = [];
    const before = window.EventSource;
    window.EventSource = class extends EventTarget {
      constructor() {
        super();
        streams.push(this);
      }

      close() {}
    };
    const breakOff = () => streams.at(-1).dispatchEvent(new Event("error"));
    try {
      const calls = receive(
        { race: 1, kind: "watch", key: "a" },
        { race: 1, kind: "end", parts: ["e"] },
        breakOff,
        { race: 2, kind: "watch", key: "b" },
        breakOff,
      );
      return [calls.map((call) => call.slice(0, 26)), ["race 1", "end e", "race 2", "failed: The connection was"]];
    } finally {
      window.EventSource = before;
    }
  },
  "race 0 stands for an invalid address, also after a race was left": () => [
    receive((receiver) => receiver.abandon(), { race: 0, kind: "note", phase: "failed", message: "No lane ghost." }),
    ["refused: No lane ghost."],
  ],
  "a new server numbers its races from the start": () => [
    receive(
      (receiver) => (receiver.listen = () => {}),
      { race: 9, kind: "watch", server: "a" },
      { race: 8, kind: "watch", server: "a" },
      (receiver) => receiver.abandon(),
      { race: 3, kind: "watch", server: "b" },
      { race: 3, kind: "head", parts: ["h"] },
      { race: 2, kind: "watch", server: "b" },
    ),
    ["race 9", "race 3", "head h"],
  ],
};
