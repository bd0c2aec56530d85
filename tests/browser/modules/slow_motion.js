import { SlowMotion } from "../../../specrace/ui/static/explanations/slow_motion.js";
import { put } from "./fixtures.js";
import { REEL } from "./small_race.js";

function open(reel) {
  const sentences = [];
  const host = put();
  const slow = new SlowMotion(host, (text) => sentences.push(text));
  Object.assign(slow.canvas.style, { width: "640px", height: "360px" });
  slow.open(reel);
  return { slow, sentences, host };
}

// The scene and the phase that are shown.
const where = ({ slow }) => [slow.node.dataset.scene, slow.node.dataset.phase].join(" ");

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "without a race that drafts the page shows a sentence": () => {
    const [none, undrafted] = [undefined, { ...REEL, results: REEL.results.slice(0, 1) }].map(open);
    return [
      [none.slow.node.open, undrafted.slow.node.open, none.sentences.length, undrafted.sentences.length],
      [false, false, 1, 1],
    ];
  },
  "without motion each phase is shown until a key is pressed": () => {
    const shown = open(REEL);
    const seen = [where(shown)];
    // There are ten phases, so the tenth press changes nothing.
    for (let press = 0; press < 10; press++) {
      shown.slow.handleKey(new KeyboardEvent("keydown", { key: "ArrowRight" }));
      seen.push(where(shown));
    }
    shown.slow.handleKey(new KeyboardEvent("keydown", { key: "ArrowLeft" }));
    seen.push(where(shown));
    shown.slow.node.close();
    const phases = ["source", "draft", "verify", "accept", "cost"];
    const all = [0, 1].flatMap((scene) => phases.map((phase) => `${scene} ${phase}`));
    return [
      [seen, shown.slow.playing],
      [[...all, "1 cost", "1 accept"], 0],
    ];
  },
  "the file is named after the step": () => {
    const { slow } = open(REEL);
    slow.node.close();
    return [slow.nameFile("svg"), "specrace-trie-step-2.svg"];
  },
  "the key that opens slow motion also closes it": () => {
    const { slow } = open(REEL);
    slow.handleKey(new KeyboardEvent("keydown", { key: "m" }));
    return [slow.node.open, false];
  },
};
