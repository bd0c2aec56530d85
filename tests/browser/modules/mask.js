import { drawMask } from "../../../specrace/ui/static/inspector/mask.js";
import { EVENT } from "./fixtures.js";

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "a node sees itself and its ancestors": () => {
    const rows = [...drawMask(EVENT).querySelectorAll("[data-node]")];
    // Each cell is a part of the row's path that begins with an M.
    const cells = (row) => row.querySelector("path:not(.tick)").getAttribute("d").split("M").length - 1;
    return [
      [rows.map(cells), rows[2].querySelector("title").textContent],
      [[1, 2, 3, 2, 3], "sat sees the → cat and itself"],
    ];
  },
};
