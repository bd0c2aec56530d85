import { Player } from "../../../specrace/ui/static/stage/player.js";
import { put, STEPS } from "./fixtures.js";

const BUTTONS = ["play", "back", "on", "result"];

// A player at the end of the race STEPS, whose steps end at 5, 6 and 9 ms, and the calls of its screen: "1.0" is step 0
// of lane 1.
function load() {
  const shown = [];
  const host = put(
    ...BUTTONS.map(() => ["button", {}]),
    ["input", { className: "scrubber" }],
    ["span", { className: "time" }],
    ["select", { className: "speed" }],
  );
  BUTTONS.forEach((name, index) => (host.children[index].dataset.do = name));
  host.lastChild.append(new Option("auto", "auto"), new Option("0.5"));
  const screen = {
    begin: () => {},
    clear: () => shown.push("clear"),
    showStep: ({ lane, index }) => shown.push(`${lane}.${index}`),
    draw: () => {},
    setSpeedText: () => {},
    cursor: ({ lane, index }) => shown.push(`at ${lane}.${index}`),
    end: () => shown.push("end"),
  };
  const player = new Player(host, screen);
  player.load({ steps: STEPS });
  player.markAllShown();
  return { player, shown, host };
}

// The calls of the screen during these actions.
function play(...actions) {
  const { player, shown } = load();
  for (const act of actions) act(player);
  return shown;
}

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "a step by its lane and number": () => [
    [load().player.findStep(0, 1), load().player.findStep(1, 1)],
    [2, -1],
  ],
  "going back starts over": () => [
    play(
      (player) => player.goTo(1),
      (player) => player.goTo(0),
    ),
    ["clear", "0.0", "1.0", "at 1.0", "clear", "0.0", "at 0.0"],
  ],
  "going back in time starts over, too": () => [
    play(
      (player) => player.seek(6.5),
      (player) => player.seek(5),
    ),
    ["clear", "0.0", "1.0", "at 1.0", "clear", "0.0", "at 0.0"],
  ],
  "going forwards does not start over": () => [
    play(
      (player) => player.seek(5),
      (player) => player.seek(6.5),
    ),
    ["clear", "0.0", "at 0.0", "1.0", "at 1.0"],
  ],
  "a move goes to the next step of the lane that is shown alone": () => [
    play(
      (player) => player.goTo(0),
      (player) => (player.solo = 0),
      (player) => player.move(1),
    ),
    ["clear", "0.0", "at 0.0", "1.0", "0.1", "at 0.1"],
  ],
  "the result shows all remaining steps": () => [
    play(
      (player) => player.goTo(1),
      (player) => player.skipToEnd(),
    ),
    ["clear", "0.0", "1.0", "at 1.0", "0.1", "end"],
  ],
  "a live race is shown as far as it has arrived": () => {
    const { player, shown } = load();
    player.openLive({ ms: 24_000 });
    player.add(STEPS.slice(0, 2));
    player.catchUp();
    player.skipToEnd();
    player.goTo(0);
    return [
      [shown, player.live, player.length, player.next],
      [["0.0", "1.0", "at 1.0"], true, 6, 2],
    ];
  },
  "a live race that has ended is shown to its end": () => {
    const { player, shown } = load();
    player.openLive({ ms: 24_000 });
    player.add(STEPS.slice(0, 2));
    player.add(STEPS.slice(2));
    player.endLive();
    player.skipToEnd();
    return [
      [shown, player.live],
      [["0.0", "1.0", "0.1", "end"], false],
    ];
  },
  "the end of a live race has the speed of a replay, not that of its last moment": () => {
    const { player } = load();
    player.openLive({ ms: 9 });
    player.add(STEPS);
    player.time = player.length - 0.01;
    player.endLive();
    player.skipToEnd();
    // A race of 9 ms is played in 12 s.
    return [Math.round(player.speed * 12_000), 9];
  },
  "the default speed and a chosen speed": () => {
    const { player } = load();
    const { speed } = player;
    player.speedField.value = "0.5";
    return [
      [speed * 12_000, player.speed, player.speedWords],
      [9, 0.5, "slowed 2×"],
    ];
  },
  "a button that would change nothing is disabled, and the list says what auto is": () => {
    const { player, host } = load();
    const enabled = () => [...host.querySelectorAll("button:enabled")].map((node) => node.dataset.do);
    const speed = () => host.querySelector("option").textContent;
    // On auto, 9 ms are played in 12 s.
    const states = [[enabled(), speed()]];
    for (const act of [() => player.seek(0), () => player.goTo(1), () => player.goTo(2), () => player.unload()]) {
      act();
      states.push([enabled(), speed()]);
    }
    return [
      states,
      [
        [["play", "back"], "auto: 0.0008×"],
        [["play", "on", "result"], "auto: 0.0008×"],
        [["play", "back", "on", "result"], "auto: 0.0008×"],
        [["play", "back", "result"], "auto: 0.0008×"],
        [[], "auto"],
      ],
    ];
  },
  "without a race the player shows nothing": () => {
    const { player, shown } = load();
    player.unload();
    player.play();
    player.move(1);
    return [
      [player.loaded, shown],
      [false, []],
    ];
  },
};
