import { drawAxes, PLOT, ticks, wholeTicks } from "../../../specrace/ui/static/plots/axes.js";
import { svg } from "../../../specrace/ui/static/lib/dom.js";

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "round ticks up to the maximum": () => [
    [ticks(9), ticks(0.9, 3)],
    [
      [0, 2, 4, 6, 8, 10],
      [0, 0.5, 1],
    ],
  ],
  "ticks for no data": () => [
    [ticks(0), ticks(NaN)],
    [
      [0, 1],
      [0, 1],
    ],
  ],
  "whole-number ticks": () => [
    [wholeTicks(3.5, 8), wholeTicks(13, 4)],
    [
      [0, 1, 2, 3, 4],
      [0, 5, 10, 15],
    ],
  ],
  "scales reach from corner to corner": () => {
    const [toX, toY] = drawAxes(svg("svg"), 400, { marks: [0, 10], words: "x" }, { marks: [0, 5], words: "y" });
    return [
      [toX(0), toX(10), toY(0), toY(5)],
      [PLOT.left, 400 - PLOT.right, PLOT.height - PLOT.bottom, PLOT.top],
    ];
  },
};
