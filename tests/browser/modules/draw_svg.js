import { between, layer, ramp, drawText } from "../../../specrace/ui/static/explanations/draw_svg.js";
import { HOSTILE } from "./fixtures.js";

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "a ramp from 0 to 1, slow at both ends": () => [
    [-1, 0.2, 0.3, 0.4, 2].map((value) => Number(ramp(value, 0.2, 0.4).toFixed(6))),
    [0, 0, 0.5, 1, 1],
  ],
  "a value between two others": () => [between(10, 20, 0.25), 12.5],
  "HTML in a text is not parsed": () => [drawText(HOSTILE, 0, 0, "red").childElementCount, 0],
  "a layer's opacity": () => [layer(1 / 3, "x").getAttribute("opacity"), "0.333"],
};
