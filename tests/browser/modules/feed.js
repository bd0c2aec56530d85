import { Feed } from "../../../specrace/ui/static/feed.js";

// What a screen is told when these messages come.
function tell(...coming) {
  const told = [];
  const feed = new Feed({
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
