import { Plot } from "../../../specrace/ui/static/plots/plot.js";
import { HOSTILE, put } from "./fixtures.js";

export const cases = {
  "a plot is drawn again only when its width changes": () => {
    const widths = [];
    const draw = (_, width) => void widths.push(width);
    const plot = new Plot({ name: "x", title: HOSTILE, words: "", columns: [], rows: [], draw });
    const host = put();
    plot.draw();
    host.append(plot.node);
    for (const width of [300, 300, 200]) {
      host.style.width = `${width}px`;
      plot.canvas.style.width = `${width}px`;
      plot.draw();
    }
    return [
      [widths, plot.node.querySelectorAll("img").length],
      [[300, 200], 0],
    ];
  },
};
