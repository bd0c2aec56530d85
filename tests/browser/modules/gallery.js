import { Gallery } from "../../../specrace/ui/static/gallery/gallery.js";
import { HOSTILE, put } from "./fixtures.js";

const CARD = { name: "a", question: HOSTILE, fastest: HOSTILE, speedup: 2, lanes: [], ms: 10 };

// A gallery with one card, on a page with all its elements. `calls` lists the reels and errors that it passed on.
function open(server, takesFiles = true) {
  const host = put(["dialog", {}]);
  for (const tag of ["input", "button", "button", "p", "p"]) host.firstChild.append(document.createElement(tag));
  const [file, opens, closes, shelf, opener] = host.firstChild.children;
  file.className = "file";
  file.type = "file";
  shelf.className = "shelf";
  opener.className = "opener";
  opens.dataset.do = "open";
  closes.dataset.do = "close";
  const calls = [];
  const openReel = (reel) => calls.push(reel);
  return {
    gallery: new Gallery(host.firstChild, [CARD], {
      server,
      openReel,
      takesFiles,
      showError: (words) => calls.push(words),
    }),
    calls,
    shelf,
    opener,
  };
}

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "a card is text": () => {
    const { shelf } = open({});
    return [
      [shelf.querySelector("b").textContent, shelf.querySelectorAll("img, script").length],
      [HOSTILE, 0],
    ];
  },
  "a server that accepts no files": () => {
    const { gallery, opener } = open({}, false);
    const dataTransfer = { types: ["Files"] };
    gallery.drag({ dataTransfer, target: document.body, preventDefault: () => {} });
    return [
      [opener.hidden, dataTransfer.dropEffect, document.body.dataset.drop],
      [true, "none", undefined],
    ];
  },
  "a file that is too large": async () => {
    const { gallery, calls } = open({});
    await gallery.open({ name: "big", size: 1e9 });
    return [calls, ["big is larger than 16 MB; open a shorter race."]];
  },
  "a short link to a server that keeps no races": () => {
    const { gallery, calls } = open({});
    gallery.openShared("0a1b");
    return [calls, ["This server keeps no races for short links; ask for a link or a file with the race itself."]];
  },
  "of two requested recordings only the last one is opened": async () => {
    const answers = [];
    const { gallery, calls } = open({ play_recorded: () => new Promise((answer) => answers.push(answer)) });
    const both = [gallery.play("a"), gallery.play("b")];
    answers[1]({ reel: '"b"' });
    answers[0]({ reel: '"a"' });
    await Promise.all(both);
    return [calls, ["b"]];
  },
  "recordings that arrive after a cancel are dropped without an error": async () => {
    const answers = [];
    const server = { play_recorded: () => new Promise((answer, fail) => answers.push({ answer, fail })) };
    const { gallery, calls } = open(server);
    const all = [gallery.play("a"), gallery.play("b", { automatic: true })];
    gallery.cancel();
    answers[0].answer({ reel: '"a"' });
    answers[1].fail(new Error("gone"));
    return [
      [await Promise.all(all), calls],
      [[false, false], []],
    ];
  },
  "only a recording that the visitor did not ask for is cancelled": async () => {
    const { gallery, calls } = open({ play_recorded: async (name) => ({ reel: `"${name}"` }) });
    for (const [name, automatic] of [
      ["automatic", true],
      ["asked", false],
    ]) {
      const played = gallery.play(name, { automatic });
      gallery.cancelAutomatic();
      await played;
    }
    return [calls, ["asked"]];
  },
  "several recordings together, or an error": async () => {
    const server = { play_recorded: async (name) => (name === "c" ? { error: "no c" } : { reel: `"${name}"` }) };
    const { gallery, calls } = open(server);
    const onReels = (reels) => calls.push(reels);
    const played = [await gallery.playAll(["a", "b"], onReels), await gallery.playAll(["a", "c"], onReels)];
    return [
      [played, calls],
      [
        [true, false],
        [["a", "b"], "no c"],
      ],
    ];
  },
  "files that may be logs are passed to the logs' view": async () => {
    const { gallery, calls } = open({});
    gallery.openLogs = (files) => calls.push(files.map((file) => file.name));
    gallery.openDropped(["a.jsonl", "b.parquet", "c.md"].map((name) => new File(["{}"], name)));
    gallery.openDropped([new File(["x"], "photo.png")]);
    return [
      calls,
      [["a.jsonl", "b.parquet"], "photo.png is neither a saved race nor a log; this page takes .jsonl files."],
    ];
  },
  "a server that does not answer": async () => {
    const { gallery, calls } = open({ play_recorded: () => Promise.reject(new Error("gone")) });
    await gallery.play("a");
    return [calls, ["The server does not answer; reload the page."]];
  },
};
