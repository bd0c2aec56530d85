import { Frames } from "../../../specrace/ui/static/frames.js";

// What a screen is told when these come: [race, seq] for a frame.
function tell(drawn, ...coming) {
  const told = [];
  const frames = new Frames({
    drawn,
    begin: (race) => told.push(`race ${race}`),
    count: ({ seq, lost }) => told.push(`frame ${seq}, ${lost} lost`),
    draw: ({ length }) => told.push(`draw ${length}`),
    note: (phase) => told.push(phase),
    takeReel: () => told.push("reel"),
  });
  for (const each of coming) {
    if (Array.isArray(each)) frames.take({ race: each[0], seq: each[1], kind: "delta", results: each[2] });
    else if (typeof each === "function") each(frames);
    else frames.take(each);
  }
  return told;
}

export const cases = {
  "frames in order, and gaps are counted": () => [
    tell(false, [1, 0], [1, 3], [1, 4]),
    ["race 1", "frame 0, 0 lost", "draw 1", "frame 3, 2 lost", "draw 1", "frame 4, 2 lost", "draw 1"],
  ],
  "one that came before, and one of an old race": () => [
    tell(false, [2, 0], [2, 0], [1, 5]),
    ["race 2", "frame 0, 0 lost", "draw 1"],
  ],
  "a race that was left is not looked at": () => [
    tell(
      false,
      [1, 0],
      (frames) => frames.leave(),
      [1, 1],
      { race: 1, kind: "reel" },
      { race: 2, kind: "note", phase: "failed" },
    ),
    ["race 1", "frame 0, 0 lost", "draw 1", "race 2", "failed"],
  ],
  "frames that come fast are drawn together, and the last at once": () => [
    tell(true, [1, 0], [1, 1], [1, 2], [1, 3, []], { race: 1, kind: "reel" }),
    ["race 1", "frame 0, 0 lost", "draw 1", "frame 1, 0 lost", "frame 2, 0 lost", "frame 3, 0 lost", "draw 3", "reel"],
  ],
};
