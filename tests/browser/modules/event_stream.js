import { Feed } from "../../../specrace/ui/static/event_stream.js";

// What a screen is told when these messages come.
function tell(...coming) {
  const told = [];
  const feed = new Feed({
    refuse: (words) => told.push(`refused: ${words}`),
    wait: (race) => told.push(`race ${race}`),
    note: (phase, words) => told.push(`${phase}: ${words}`),
    takeHead: (part) => told.push(`head ${part}`),
    takeSteps: (parts) => told.push(`steps ${parts}`),
    takeEnd: (part) => told.push(`end ${part}`),
    takeAgain: (part) => told.push(`again ${part}`),
  });
  for (const each of coming) {
    if (typeof each === "function") each(feed);
    else feed.take(each);
  }
  return told;
}

export const cases = {
  "the parts of a race": () => [
    tell(
      { race: 1, kind: "note", phase: "waiting", message: "You're next." },
      { race: 1, kind: "head", parts: ["h"] },
      { race: 1, kind: "step", parts: [1, 2] },
      { race: 1, kind: "end", parts: ["e"] },
      { race: 1, kind: "again", parts: [2, 3] },
    ),
    ["race 1", "waiting: You're next.", "head h", "steps 1,2", "end e", "again 3"],
  ],
  "an old race is not looked at": () => [
    tell({ race: 2, kind: "head", parts: ["h"] }, { race: 1, kind: "step", parts: [1] }),
    ["race 2", "head h"],
  ],
  "nor is one that was left": () => [
    tell(
      { race: 1, kind: "head", parts: ["h"] },
      (feed) => feed.leave(),
      { race: 1, kind: "step", parts: [1] },
      { race: 2, kind: "note", phase: "failed", message: "Too long." },
    ),
    ["race 1", "head h", "race 2", "failed: Too long."],
  ],
  "a race that is whole is not lost with the connection": () => {
    const listened = [];
    const before = window.EventSource;
    window.EventSource = class extends EventTarget {
      constructor() {
        super();
        listened.push(this);
      }

      close() {}
    };
    const break_off = () => listened.at(-1).dispatchEvent(new Event("error"));
    try {
      const told = tell(
        { race: 1, kind: "watch", key: "a" },
        { race: 1, kind: "end", parts: ["e"] },
        break_off,
        { race: 2, kind: "watch", key: "b" },
        break_off,
      );
      return [told.map((each) => each.slice(0, 26)), ["race 1", "end e", "race 2", "failed: The connection was"]];
    } finally {
      window.EventSource = before;
    }
  },
  "of no race: the address cannot be read, whatever was left": () => [
    tell((feed) => feed.leave(), { race: 0, kind: "note", phase: "failed", message: "No lane ghost." }),
    ["refused: No lane ghost."],
  ],
  "a new server's numbers begin anew": () => [
    tell(
      (feed) => (feed.listen = () => {}),
      { race: 9, kind: "watch", server: "a" },
      { race: 8, kind: "watch", server: "a" },
      (feed) => feed.leave(),
      { race: 3, kind: "watch", server: "b" },
      { race: 3, kind: "head", parts: ["h"] },
      { race: 2, kind: "watch", server: "b" },
    ),
    ["race 9", "race 3", "head h"],
  ],
};
