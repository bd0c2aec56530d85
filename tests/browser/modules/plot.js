import { Plot } from "../../../specrace/ui/static/plots/plot.js";
import { svg } from "../../../specrace/ui/static/lib/dom.js";
import { HOSTILE, put } from "./fixtures.js";

// Each case returns [actual, expected], which test_modules.py compares.
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
  "a saved picture has its font, title and source, and not the replay's cursor": () => {
    const draw = (picture) => {
      picture.append(svg("text", { y: 20 }, "12"), svg("line", { class: "now" }));
      return 80;
    };
    const plot = new Plot({ name: "x", title: "Tokens", words: "", columns: [], rows: [], draw });
    plot.source = `“${HOSTILE}” · smollm2-135m`;
    put().append(plot.node);
    plot.draw();
    const saved = new DOMParser().parseFromString(plot.toSvgText("@font-face{}"), "image/svg+xml");
    const texts = [...saved.querySelectorAll("text")].map((node) => node.textContent);
    plot.node.parentNode.remove();
    return [
      [
        texts.slice(0, 2),
        texts.slice(2).join(" ").endsWith("smollm2-135m"),
        saved.querySelector("style").textContent,
        saved.querySelectorAll(".now, [textLength], script").length,
      ],
      [["Tokens", "12"], true, "@font-face{}", 0],
    ];
  },
};
