import {
  drawScene,
  LENGTH_MS,
  PHASES,
  placeScene,
  readTheme,
  readTime,
  startOf,
} from "../../../specrace/ui/static/explanations/picture.js";
import { makeScenes } from "../../../specrace/ui/static/explanations/scenes.js";
import { HOSTILE } from "./fixtures.js";
import { REEL } from "./small_race.js";

const [best, failed] = makeScenes(REEL);
const theme = readTheme(document.body);
// A scene's picture when this share of a phase (source, draft, verify, accept, cost) is done.
const at = (scene, phase, share, width = 1280, height = 668) =>
  drawScene(scene, placeScene(scene, width, height), startOf(phase) + share * PHASES[phase][1], theme);
const texts = (picture, selector) => [...picture.querySelectorAll(selector)].map((node) => node.textContent);
const END = 0.999;

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "five phases, which take about twelve seconds": () => [
    [PHASES.length, LENGTH_MS >= 11_000 && LENGTH_MS <= 14_000],
    [5, true],
  ],
  "the phase at a time, and the share of each phase that is done": () => [
    [
      readTime(-5).phase,
      readTime(startOf(2)).phase,
      readTime(1e9).phase,
      Object.values(readTime(startOf(1)).done),
      Object.values(readTime(LENGTH_MS).done),
    ],
    [0, 2, 4, [1, 0, 0, 0, 0], [1, 1, 1, 1, 1]],
  ],
  "the same moment gives the same picture": () => [at(best, 3, 0.4).isEqualNode(at(best, 3, 0.4)), true],
  "the copied words are marked in the source": () => [
    [
      texts(at(best, 0, END), "[data-part=source] text")[0],
      at(best, 0, 0.1).querySelectorAll("[data-part=source] path").length,
      at(best, 0, END).querySelectorAll("[data-part=source] path").length,
    ],
    ["From passage 1, “On cats”", 0, 4],
  ],
  "ghost tokens are in motion, then in the tree": () => [
    [
      texts(at(best, 1, 0.3), "[data-ghost]").length > 0,
      texts(at(best, 1, END), "[data-ghost]"),
      texts(at(best, 1, END), "[data-node]"),
    ],
    [true, [], ["The", "cat", "sat", "dog", "·"]],
  ],
  "the model's tokens appear during its pass": () => [
    [texts(at(best, 2, 0), "[data-part=own] text"), texts(at(best, 2, END), "[data-part=own] text")],
    [[], ["cat", "sat", "on"]],
  ],
  "the accepted run joins the text, and the model's token follows": () => [
    [
      texts(at(best, 3, 0.6), "[data-part=strip] text"),
      texts(at(best, 3, END), "[data-part=strip] text"),
      at(best, 3, END).querySelectorAll("[data-part=run]").length,
    ],
    [["The", "cat", "sat"], ["The", "cat", "sat", "on"], 1],
  ],
  "the rejected branch falls and fades": () => {
    const [early, late] = [0.2, 0.7].map((share) => at(best, 3, share).querySelector("[data-kind=rejected]"));
    const y = (node) => Number(/ ([\d.]+)\)/.exec(node.getAttribute("transform"))[1]);
    return [y(late) > y(early) && late.getAttribute("opacity") < early.getAttribute("opacity"), true];
  },
  "if all are rejected, one token follows": () => [
    [
      texts(at(failed, 3, END), "[data-part=strip] text"),
      at(failed, 3, 0.2).querySelectorAll("[data-kind=rejected]").length,
    ],
    [["The", "cat"], 2],
  ],
  "two bars on one scale": () => {
    const [step, singles] = [...at(best, 4, END).querySelectorAll("[data-ms]")].map((bar) =>
      Number(bar.getAttribute("width")),
    );
    return [
      [Math.abs(step / singles - 20 / 30) < 1e-6, texts(at(best, 4, END), "[data-part=time]").length],
      [true, 2],
    ];
  },
  "no text is too small for a projector, or outside the picture": () => {
    const host = document.body.appendChild(document.createElement("div"));
    const faulty = [best, failed].flatMap((scene) =>
      PHASES.flatMap((_, phase) => {
        const picture = at(scene, phase, END);
        host.replaceChildren(picture);
        return [...picture.querySelectorAll("text")].filter((node) => {
          const box = node.getBBox();
          const frame = picture.getBoundingClientRect();
          const area = node.getBoundingClientRect();
          return (
            box.height &&
            (parseFloat(getComputedStyle(node).fontSize) < 24 || area.left < frame.left || area.right > frame.right)
          );
        });
      }),
    );
    host.remove();
    return [faulty.length, 0];
  },
  "HTML in a text is not parsed": () => {
    const scene = {
      ...best,
      title: HOSTILE,
      pending: HOSTILE,
      source: { name: HOSTILE, rows: [{ words: [{ text: HOSTILE, nodes: [1] }] }] },
    };
    const host = document.body.appendChild(at(scene, 0, END));
    host.remove();
    return [host.querySelectorAll("img, script").length, 0];
  },
};
