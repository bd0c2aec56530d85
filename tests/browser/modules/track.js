import { axisFor, markTimes } from "../../../specrace/ui/static/track.js";

export const cases = {
  "the axis is longer than the race has run": () => [
    [0, 237, 238, 960, 1e6].map(axisFor),
    [250, 250, 500, 2000, 1e9 / 900],
  ],
  "marks between two frames": () => [markTimes({ tokens: 8, ms: 80 }, { tokens: 21, ms: 210 }, 10), [100, 200]],
  "a mark is made once": () => [markTimes({ tokens: 10, ms: 80 }, { tokens: 19, ms: 210 }, 10), []],
};
