import { Gallery } from "../../../specrace/ui/static/gallery.js";
import { HOSTILE, put } from "./given.js";

const CARD = { name: "a", question: HOSTILE, fastest: HOSTILE, speedup: 2, lanes: [], ms: 10 };

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
  const told = [];
  const openReel = (reel) => told.push(reel);
  return {
    gallery: new Gallery(host.firstChild, [CARD], {
      server,
      openReel,
      takesFiles,
      complain: (words) => told.push(words),
    }),
    told,
    shelf,
    opener,
  };
}

export const cases = {
  "a card is text": () => {
    const { shelf } = open({});
    return [
      [shelf.querySelector("b").textContent, shelf.querySelectorAll("img, script").length],
      [HOSTILE, 0],
    ];
  },
  "a server that takes no files": () => {
    const { gallery, opener } = open({}, false);
    const dataTransfer = { types: ["Files"] };
    gallery.drag({ dataTransfer, target: document.body, preventDefault: () => {} });
    return [
      [opener.hidden, dataTransfer.dropEffect, document.body.dataset.drop],
      [true, "none", undefined],
    ];
  },
  "too large a file": async () => {
    const { gallery, told } = open({});
    await gallery.open({ name: "big", size: 1e9 });
    return [told, ["big is larger than 16 MB; open a shorter race."]];
  },
  "of two that are asked for the last one counts": async () => {
    const answers = [];
    const { gallery, told } = open({ play_recorded: () => new Promise((answer) => answers.push(answer)) });
    const both = [gallery.play("a"), gallery.play("b")];
    answers[1]({ reel: '"b"' });
    answers[0]({ reel: '"a"' });
    await Promise.all(both);
    return [told, ["b"]];
  },
  "what comes once a race is awaited is dropped, and nothing is said of it": async () => {
    const answers = [];
    const server = { play_recorded: () => new Promise((answer, fail) => answers.push({ answer, fail })) };
    const { gallery, told } = open(server);
    const all = [gallery.play("a"), gallery.play("b", true)];
    gallery.cancel();
    answers[0].answer({ reel: '"a"' });
    answers[1].fail(new Error("gone"));
    return [
      [await Promise.all(all), told],
      [[false, false], []],
    ];
  },
  "only what nobody asked for is withdrawn": async () => {
    const { gallery, told } = open({ play_recorded: async (name) => ({ reel: `"${name}"` }) });
    for (const [name, offered] of [
      ["offered", true],
      ["asked", false],
    ]) {
      const played = gallery.play(name, offered);
      gallery.cancelOffered();
      await played;
    }
    return [told, ["asked"]];
  },
  "several at once, or why not": async () => {
    const server = { play_recorded: async (name) => (name === "c" ? { error: "no c" } : { reel: `"${name}"` }) };
    const { gallery, told } = open(server);
    const take = (reels) => told.push(reels);
    const taken = [await gallery.playAll(["a", "b"], take), await gallery.playAll(["a", "c"], take)];
    return [
      [taken, told],
      [
        [true, false],
        [["a", "b"], "no c"],
      ],
    ];
  },
  "what may be a log is looked into": async () => {
    const { gallery, told } = open({});
    gallery.openLogs = (files) => told.push(files.map((file) => file.name));
    gallery.sort(["a.jsonl", "b.parquet", "c.md"].map((name) => new File(["{}"], name)));
    gallery.sort([new File(["x"], "photo.png")]);
    return [
      told,
      [["a.jsonl", "b.parquet"], "photo.png is neither a saved race nor a log; this page takes .jsonl files."],
    ];
  },
  "a server that is gone": async () => {
    const { gallery, told } = open({ play_recorded: () => Promise.reject(new Error("gone")) });
    await gallery.play("a");
    return [told, ["The server does not answer; reload the page."]];
  },
};
