import { placeTicks, Track } from "../../../specrace/ui/static/stage/track.js";
import { LANES, put, SERVED, UNTOKENIZED } from "./fixtures.js";

// What a track uses of a lane's frame after a step.
const frame = (lane, tokens, ms, end = "") => ({ lane, meters: { tokens, ms }, end });

// Draws a track for races of `total` tokens after these frames. `finishes` are later totals, [tokens, whether they are
// known].
function draw(total, frames, ...finishes) {
  const host = put();
  const track = new Track(host);
  track.setUp(LANES, total);
  for (const finish of finishes) track.setFinish(...finish);
  for (const shown of frames) track.apply(shown);
  track.draw(400, "slowed 2×");
  return host;
}
// How long the bars are. The finish line is at 0.965 of the track, so 10 of 40 tokens are 0.24125.
const shares = (host) => [...host.querySelectorAll(".bar i")].map((bar) => bar.style.transform);
const words = (host, name) => [...host.querySelectorAll(name)].map((node) => node.textContent);
const RACE = [frame(0, 10, 100), frame(1, 40, 200, "eos"), frame(0, 40, 400, "eos")];

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "ticks are round numbers, and not close to the finish line": () => [
    [placeTicks(40), placeTicks(64), placeTicks(1)],
    [[0, 5, 10, 15, 20, 25, 30, 35], [0, 10, 20, 30, 40, 50], [0]],
  ],
  "a bar is as long as the lane's share of the tokens": () => [
    shares(draw(40, RACE.slice(0, 1))),
    ["scaleX(0.24125)", "scaleX(0)"],
  ],
  "the scale changes when the length is known": () => [
    shares(draw(80, RACE.slice(0, 1), [40, true])),
    ["scaleX(0.24125)", "scaleX(0)"],
  ],
  "a race that is shown again has the same ticks": () => {
    const host = put();
    const track = new Track(host);
    track.setUp(LANES, 40);
    track.setUp(LANES, 40);
    return [words(host, ".ticks i").length, 8];
  },
  "each lane has its own scale if texts differ in length": () => [
    shares(draw([10, 40], RACE.slice(0, 1)))[0],
    "scaleX(0.965)",
  ],
  "the lane that finishes first wins": () => [
    [words(draw(40, RACE), ".place"), words(draw(40, RACE), ".track-row:not(.axis) .tokens")],
    [
      ["2nd", "1st"],
      ["40 tok in 0.40 s", "40 tok in 0.20 s"],
    ],
  ],
  "the result's ranking replaces the order of the finish, and repeated runs replace the time": () => {
    const host = put();
    const track = new Track(host);
    track.setUp(LANES, 40);
    for (const shown of RACE) track.apply(shown);
    const rows = [200, 50].map((rate) => ({ tokens: 40, tokens_per_s: rate }));
    const see = () => [words(host, ".place"), words(host, ".track-row:not(.axis) .tokens")];
    track.draw(400);
    track.conclude(rows, [1, 1], null);
    const once = see();
    track.conclude(rows, [1, 2], { runs: 5 });
    track.draw(400);
    const repeated = see();
    track.setUp(LANES, 40);
    return [
      [once, repeated, see()[0]],
      [
        [
          ["=1st", "=1st"],
          ["40 tok in 0.40 s", "40 tok in 0.20 s"],
        ],
        [
          ["1st", "2nd"],
          ["40 tok in 0.20 s", "40 tok in 0.80 s"],
        ],
        ["", ""],
      ],
    ];
  },
  "a race whose figures do not count has no places, until further runs count": () => {
    const host = put();
    const track = new Track(host);
    track.setUp(LANES, 40);
    for (const shown of RACE) track.apply(shown);
    const rows = [200, 50].map((rate) => ({ tokens: 40, tokens_per_s: rate }));
    const see = () => [...words(host, ".place"), host.dataset.level];
    track.draw(400);
    const played = see();
    track.conclude(rows, [0, 0], null);
    track.draw(400);
    const disturbed = see();
    track.conclude(rows, [1, 1], { runs: 5 });
    return [
      [played, disturbed, see()],
      [
        ["2nd", "1st", "false"],
        ["", "", "false"],
        ["=1st", "=1st", "true"],
      ],
    ];
  },
  "times over several runs say so, in the place of the clock of the run that was played": () => {
    const host = put();
    const track = new Track(host);
    const see = () => words(host, ".axis .side > :not([hidden])");
    track.setUp([...LANES, { lane: "fast", title: "fast (vLLM)", served: SERVED }], 40);
    for (const shown of [...RACE, frame(2, 40, 50, "eos")]) track.apply(shown);
    const rows = [200, 50, 800].map((rate) => ({ tokens: 40, tokens_per_s: rate }));
    track.draw(400);
    track.conclude(rows, [1, 2, 0], null);
    const once = see();
    track.conclude(rows, [1, 2, 0], { runs: 5 });
    return [
      [once, see(), words(host, ".tokens")],
      [["0.40 s", "", ""], ["median of 5 runs"], ["40 tok in 0.20 s", "40 tok in 0.80 s", "1 run: 50.0 ms"]],
    ];
  },
  "the winner is known from its finish on": () => {
    const track = new Track(put());
    const winners = [0, 1, 2, 3].map((count) => {
      track.setUp(LANES, 40);
      for (const shown of RACE.slice(0, count)) track.apply(shown);
      return track.winner;
    });
    return [winners, [undefined, undefined, 1, 1]];
  },
  "a mark shows where the others were when the winner finished": () => {
    const [vanilla, trie] = draw(40, RACE).querySelectorAll(".photo");
    return [
      [vanilla.hidden, vanilla.style.left, trie.hidden],
      [false, "24.125%", true],
    ];
  },
  "the clock, its pace, and what it counts": () => [
    words(draw(40, RACE), ".axis .side > :not([hidden])"),
    ["0.40 s", "slowed 2×", "lanes take turns"],
  ],
  "a server that finishes first wins nothing": () => {
    const host = put();
    const track = new Track(host);
    track.setUp([...LANES, { lane: "fast", title: "fast (vLLM)", served: SERVED }], 40);
    track.apply(frame(2, 40, 50, "eos"));
    const early = track.winner;
    for (const shown of RACE) track.apply(shown);
    track.draw(400);
    return [
      [early, track.winner, words(host, ".place"), words(host, ".name").slice(0, 3), track.rows[2].photo.hidden],
      [undefined, 1, ["2nd", "1st", ""], ["Vanilla", "Trie", "fast"], true],
    ];
  },
  "a server that does not count its tokens has the time of its end": () => {
    const host = put();
    const track = new Track(host);
    track.setUp([...LANES, { lane: "text", title: "text", served: UNTOKENIZED }], 40);
    track.apply(frame(2, 0, 50, ""));
    track.draw(50);
    const before = words(host, ".tokens").at(-1);
    track.apply(frame(2, 0, 70, "eos"));
    track.draw(70);
    return [
      [before, words(host, ".tokens").at(-1)],
      ["", "ended after 70.0 ms"],
    ];
  },
};
