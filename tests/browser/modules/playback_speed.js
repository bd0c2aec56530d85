import {
  describeSpeed,
  Forecast,
  formatPlaybackSpeed,
  playbackMs,
  playbackSpeed,
} from "../../../specrace/ui/static/stage/playback_speed.js";

const step = (lane, tokens, ms, end = "") => ({ lane, at: ms, frame: { meters: { tokens }, end } });

// What is expected after these steps: the tokens of the answer, its race time in ms, and whether its length is known.
// Until a lane has ended, the length is 64 tokens, doubled while the longest lane is close to it.
function forecast(maxTokens, ...steps) {
  const estimate = new Forecast([{}, {}], maxTokens);
  steps.forEach((shown) => estimate.add(shown));
  return [estimate.tokens, estimate.ms, estimate.known];
}

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "the playback of a race takes 12 to 20 seconds": () => [
    [300, 15_000, 60_000].map(playbackMs),
    [12_000, 15_000, 20_000],
  ],
  "the speed of a playback": () => [
    [playbackSpeed(300), playbackSpeed(15_000), playbackSpeed(60_000)].map((speed) => speed.toFixed(3)),
    ["0.025", "1.000", "3.000"],
  ],
  "the rest of the race fills the rest of the playback": () => [playbackSpeed(6000, 4000, 2000), 0.5],
  "a race that ends after its planned playback is still shown smoothly": () => [playbackSpeed(6000, 13_000, 4000), 1],
  "speeds in words": () => [
    [1 / 40.4, 1 / 2.44, 0.999, 1, 3, 0].map(describeSpeed),
    ["slowed 40×", "slowed 2.4×", "", "", "sped up 3×", ""],
  ],
  "speeds as multiples of real time": () => [
    [1 / 350, 1 / 24, 0.156, 1, 2.54].map(formatPlaybackSpeed),
    ["0.003×", "0.04×", "0.16×", "1×", "2.5×"],
  ],
  "the answer's length is not known yet": () => [forecast(400, step(0, 10, 200), step(1, 30, 200)), [64, 1280, false]],
  "the expected length grows with the longest lane": () => [forecast(400, step(1, 60, 600))[0], 128],
  "the expected length is at most the limit": () => [forecast(100, step(1, 90, 900))[0], 100],
  "a lane that has ended gives the length": () => [
    forecast(400, step(0, 10, 200), step(1, 40, 200, "eos")),
    [40, 800, true],
  ],
  "before the first step": () => [forecast(400), [64, 0, false]],
  "a server's text says nothing about the length of the answer": () => {
    const estimate = new Forecast([{}, { served: {} }], 160);
    estimate.add({ lane: 1, at: 5, frame: { meters: { tokens: 9 }, end: "eos" } });
    return [
      [estimate.known, estimate.tokens],
      [false, 64],
    ];
  },
};
