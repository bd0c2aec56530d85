import { placeTicks, Track } from "../../../specrace/ui/static/track.js";
import { LANES, put } from "./given.js";

const frame = (lane, tokens, ms, end = "") => ({ lane, meters: { tokens, ms }, end });

function draw(total, frames, ...aims) {
  const host = put();
  const track = new Track(host);
  track.show(LANES, total);
  for (const aim of aims) track.aim(...aim);
  for (const shown of frames) track.apply(shown);
  track.draw(400, "slowed 2×");
  return host;
}
const shares = (host) => [...host.querySelectorAll(".bar i")].map((bar) => bar.style.transform);
const words = (host, name) => [...host.querySelectorAll(name)].map((node) => node.textContent);
const RACE = [frame(0, 10, 100), frame(1, 40, 200, "eos"), frame(0, 40, 400, "eos")];

export const cases = {
  "ticks are round numbers, and keep off the line": () => [
    [placeTicks(40), placeTicks(64), placeTicks(1)],
    [[0, 5, 10, 15, 20, 25, 30, 35], [0, 10, 20, 30, 40, 50], [0]],
  ],
  "a bar is as long as its text": () => [shares(draw(40, RACE.slice(0, 1))), ["scaleX(0.24125)", "scaleX(0)"]],
  "the line moves when the end is known": () => [
    shares(draw(80, RACE.slice(0, 1), [40, true])),
    ["scaleX(0.24125)", "scaleX(0)"],
  ],
  "a race that is shown again has its ticks": () => {
    const host = put();
    const track = new Track(host);
    track.show(LANES, 40);
    track.show(LANES, 40);
    return [words(host, ".ticks i").length, 8];
  },
  "every lane has its own end where texts differ": () => [shares(draw([10, 40], RACE.slice(0, 1)))[0], "scaleX(0.965)"],
  "the first over the line wins": () => [
    [words(draw(40, RACE), ".place"), words(draw(40, RACE), ".track-row:not(.axis) .tokens")],
    [
      ["2nd", "1st"],
      ["40 tok in 0.40 s", "40 tok in 0.20 s"],
    ],
  ],
  "and is known from then on": () => {
    const track = new Track(put());
    const winners = [0, 1, 2, 3].map((count) => {
      track.show(LANES, 40);
      for (const shown of RACE.slice(0, count)) track.apply(shown);
      return track.winner;
    });
    return [winners, [undefined, undefined, 1, 1]];
  },
  "a photo of that moment": () => {
    const [vanilla, trie] = draw(40, RACE).querySelectorAll(".photo");
    return [
      [vanilla.hidden, vanilla.style.left, trie.hidden],
      [false, "24.125%", true],
    ];
  },
  "the clock, and how it is slowed": () => [words(draw(40, RACE), ".axis .side b"), ["0.40 s", "slowed 2×"]],
};
