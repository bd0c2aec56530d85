import { writeChapters } from "../../../specrace/ui/static/explanations/chapters.js";
import { REEL } from "./small_race.js";

// A race that serves as both races of the tour: in it the trie pays, and lookahead does not.
const reel = structuredClone(REEL);
Object.assign(reel.head, { question: "Where is the cat?", cost_curve: { rows: [1, 4, 16], ratio: [1, 1.5, 2] } });
Object.assign(reel.started.about, { parameters: 134_515_008, roofline: { weight_bytes: 538_060_032 } });
reel.results.forEach((row) => (row.tau = 2.04));
// The first is the race in which drafting pays.
const chapters = writeChapters(reel, reel);
const words = chapters.map(({ shots }) => shots.map((shot) => shot.words).join(" "));

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "five chapters": () => [
    chapters.map(({ title }) => title),
    ["The idle machine", "Guess", "Check in one pass", "Win", "Lose"],
  ],
  // The bounds are our choice: five chapters then take at most four minutes.
  "each chapter takes 30 to 48 seconds": () => [
    chapters
      .map(({ shots }) => shots.reduce((sum, shot) => sum + shot.ms, 0))
      .every((ms) => ms >= 30_000 && ms <= 48_000),
    true,
  ],
  "every figure is from the races": () => {
    const figures = ["135 million", "538 MB", "in 20 ms, not 8 × 10 ms", "4 draft tokens", "2 of 4", "2.0×", "0.9×"];
    return [figures.filter((figure) => !words.some((text) => text.includes(figure))), []];
  },
  "every sentence is short enough to read from the last row": () => [
    chapters.flatMap(({ shots }) => shots).filter((shot) => shot.words.length > 150),
    [],
  ],
  "the last chapter shows no failed step if no draft fails": () => {
    const steps = reel.steps.filter(({ lane }) => lane < 2);
    const [, , , , lose] = writeChapters(reel, { ...reel, steps });
    return [lose.shots.map(({ view }) => view), ["race", "result", "end"]];
  },
  "unsuitable races have no chapters": () => {
    const about = { ...reel.started.about, roofline: undefined };
    // Without the model's figures; without the steps of the lane that drafts well; without a lane slower than vanilla.
    const unknown = { ...reel, started: { ...reel.started, about } };
    const plain = { ...reel, steps: reel.steps.filter(({ lane }) => lane !== 1) };
    const paying = { ...reel, results: reel.results.slice(0, 2) };
    return [
      [writeChapters(unknown, reel), writeChapters(plain, reel), writeChapters(reel, paying)],
      [[], [], []],
    ];
  },
};
