import { Questions } from "../../../specrace/ui/static/questions/questions.js";
import { HOSTILE, listedReel, put } from "./fixtures.js";

// The open dialog, what it did to the stage, and its status line. A list that another case left behind is discarded.
async function open() {
  const opened = [];
  const dialog = new Questions(put(), { pause: () => opened.push("pause"), openReel: (reel) => opened.push(reel) });
  await dialog.open();
  await dialog.list.discard();
  return { dialog, opened, line: () => dialog.statusLine.textContent };
}

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "files, suggestions and typed questions become one list": async () => {
    const { dialog, line } = await open();
    dialog.field.value = "Why?";
    await dialog.addFile(new File([`${HOSTILE}\nWhy?`], "list.txt"));
    const read = line();
    dialog.receive({ kind: "suggested", id: "1", questions: ["How?"], message: "" });
    const drawn = line();
    dialog.receive({ kind: "suggested", id: "2", questions: [], message: "No question can be made." });
    await dialog.addFile(new File(["x"], "a.pdf"));
    const result = [read, drawn, line(), dialog.statusLine.dataset.kind, dialog.field.value.split("\n")];
    dialog.node.close();
    return [
      result,
      [
        "list.txt is read.",
        "1 question is drawn; change it as you like.",
        "a.pdf: it is no list of questions; give .txt, .csv, .tsv or .jsonl.",
        "bad",
        ["Why?", HOSTILE.replace(/\s+/g, " ").trim(), "How?"],
      ],
    ];
  },
  "an empty list is refused": async () => {
    const { dialog, line } = await open();
    await dialog.begin();
    const refused = [line().slice(0, 15), dialog.form.hidden, dialog.resumeButton.hidden];
    dialog.node.close();
    return [refused, ["Type a question", false, true]];
  },
  "a race opens on the stage, and a new list keeps the questions": async () => {
    const { dialog, opened } = await open();
    dialog.list.channel = {
      answers: async () => true,
      press: (fill) => {
        fill(["", null]);
        dialog.receive({ kind: "listed", id: "1", phase: "waiting", key: "k", message: "" });
      },
      collect: async () => ({ reel: listedReel() }),
    };
    dialog.field.value = "Why?\nHow?";
    await dialog.begin();
    const buttons = [...dialog.scroller.querySelectorAll("button")];
    const shown = [dialog.form.hidden, dialog.total.textContent.slice(0, 15), buttons.map((node) => node.textContent)];
    await dialog.openRace(1);
    const stillOpen = dialog.node.open;
    await dialog.open();
    await dialog.clear();
    const cleared = [dialog.form.hidden, dialog.field.value, dialog.scroller.children.length];
    dialog.node.close();
    return [
      [shown, opened, stillOpen, cleared],
      [[true, "Trie is fastest", ["Why?", "How?"]], ["pause", listedReel(), "pause"], false, [false, "Why?\nHow?", 0]],
    ];
  },
};
