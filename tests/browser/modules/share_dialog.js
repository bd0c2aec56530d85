import { ShareDialog } from "../../../specrace/ui/static/sharing/share_dialog.js";
import { REEL } from "./small_race.js";

// Only a race that is over has its event `finished`.
const WHOLE = { ...REEL, finished: {} };
const HTML = "/specrace/ui/static/stage/stage.html";

// What `act` returns for a dialog on a stage, and the sentences that the stage has announced.
async function open(act, { takesFiles = true, hours = 0, reel = WHOLE, live = false } = {}) {
  const html = await (await fetch(HTML)).text();
  const node = new DOMParser().parseFromString(html, "text/html").querySelector("dialog.share");
  document.body.append(node);
  const said = [];
  const stage = {
    find: () => node,
    gallery: { takesFiles },
    player: { live },
    reel,
    announce: (words) => said.push(words),
    pauseWithError: (words) => said.push(words),
  };
  try {
    return await act(new ShareDialog(stage, hours), said);
  } finally {
    node.remove();
  }
}

function offered({ dialog }) {
  return [...dialog.querySelectorAll(".card:not([hidden])")].map(({ dataset }) => dataset.do);
}

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "a server that takes no files opens no race in a link": async () => [
    [await open(offered), await open(offered, { takesFiles: false })],
    [
      ["pack", "link", "save", "export", "film"],
      ["link", "save", "export", "film"],
    ],
  ],
  "a server that keeps races offers a short link, and says for how long": () =>
    open(
      (share) => [
        [offered(share)[1], share.find(".kept").textContent],
        ["short", "Shorter; the server keeps this race for 2 hours."],
      ],
      { hours: 2 },
    ),
  "only a whole race can be shared": async () => {
    const answers = [];
    for (const state of [{ reel: null }, { live: true }, { reel: REEL }, {}])
      answers.push(
        await open((share, said) => {
          share.open();
          return [share.dialog.open, ...said.map((words) => words.slice(0, 16))];
        }, state),
      );
    return [answers, [[false, "There is no race"], [false, "This race is not"], [false, "This race is not"], [true]]];
  },
  "a choice closes the dialog, and the page says what came of it": () =>
    open(async (share, said) => {
      share.open();
      share.find("[data-do=link]").click();
      const isOpen = share.dialog.open;
      const { clipboard } = navigator;
      Object.defineProperty(navigator, "clipboard", { value: { writeText: async () => {} }, configurable: true });
      await share.actions.link();
      Object.defineProperty(navigator, "clipboard", { value: clipboard, configurable: true });
      return [
        [isOpen, said],
        [false, ["The link is copied. It leaves out model, dtype and top-k; a recording keeps them."]],
      ];
    }),
};
