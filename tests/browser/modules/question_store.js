import { openStore, QuestionStore } from "../../../specrace/ui/static/questions/question_store.js";
import { listedReel, listedRow, withoutStorage } from "./fixtures.js";

const list = (id, changed) => ({ id, changed, questions: ["Why?", "How?"], settings: [["vanilla"], 8], documents: [] });

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "a list and its races are kept for this tab": async () => {
    const store = await openStore();
    await store.saveList(list("a", Date.now()));
    await store.saveRace(list("a", Date.now()), 1, listedRow(2), listedReel());
    const { list: kept, rows } = await (await openStore()).load();
    const reel = await store.loadReel("a", 1);
    await store.deleteList("a");
    return [
      [kept.settings, rows[0], rows[1].lanes[1].speedup, reel, await store.load(), await store.loadReel("a", 1)],
      [[["vanilla"], 8], undefined, 2, listedReel(), undefined, undefined],
    ];
  },
  "a list of yesterday is deleted": async () => {
    const store = await openStore();
    const now = Date.now();
    // A day and 1 ms ago, and now.
    for (const [id, changed] of [
      ["old", now - 86_400_001],
      ["new", now],
    ]) {
      await store.saveList(list(id, changed));
      await store.saveRace(list(id, changed), 0, listedRow(2), listedReel());
    }
    await store.deleteOld(now);
    const remaining = [await store.loadReel("old", 0), (await store.load()).list.id];
    await store.deleteList("new");
    return [remaining, [undefined, "new"]];
  },
  "a browser that keeps nothing": async () => {
    const store = new QuestionStore(undefined);
    await store.saveList(list("a", 0));
    await store.saveRace(list("a", 0), 0, listedRow(2), listedReel());
    const reel = await store.loadReel("a", 0);
    await store.deleteList("a");
    return [
      [store.keeps, await store.load(), reel, await store.loadReel("a", 0)],
      [false, undefined, listedReel(), undefined],
    ];
  },
  "a browser that forbids storage": () =>
    withoutStorage(async () => {
      const store = await openStore();
      return [
        [store.keeps, await store.load()],
        [false, undefined],
      ];
    }),
};
